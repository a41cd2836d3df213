//! How do commands talk to a running service?

use crate::args;
use crate::http_client::{HttpAnswer, HttpClient, HttpRequest};
use anyhow::{Context, anyhow};
use apportion_support::exit::Failure;
use apportion_support::input;
use apportion_support::pages::next_page;
use apportion_wire::BadInput;
use bytes::Bytes;
use clap::Args;
use http_body_util::Full;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, LINK};
use reqwest::{Method, StatusCode, Url};
use serde_json::Value;
use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

/// Longest wait for one answer. A plan may take as long as its time limit.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(330);
/// Longest wait for an address that may not answer yet.
const SIGN_WAIT_MAX: Duration = Duration::from_secs(2);

/// The service that a command talks to.
#[derive(Args, Debug)]
pub struct ServerArgs {
    /// The service.
    #[arg(long, default_value = "http://127.0.0.1:7070", env = "APPORTION_SERVER", hide_env_values = true, value_parser = args::service_url)]
    server: String,
    /// File with the token that the service asks for [default: the text of APPORTION_API_TOKEN, if it is set].
    #[arg(long, value_name = "FILE", env = "APPORTION_API_TOKEN_FILE")]
    api_token_file: Option<String>,
    /// File with the authorities of the service's certificate, as PEM [default: the authorities of this machine].
    #[arg(long, value_name = "FILE", env = "APPORTION_CACERT")]
    cacert: Option<PathBuf>,
}

/// The service to which a command may leave its work.
#[derive(Args, Debug)]
pub struct RemoteArgs {
    /// Run as a job of this service instead of on this machine.
    #[arg(long = "server", value_name = "URL", value_parser = args::service_url)]
    url: Option<String>,
    /// File with the token that the service asks for [default: the text of APPORTION_API_TOKEN, if it is set].
    #[arg(long, value_name = "FILE", env = "APPORTION_API_TOKEN_FILE")]
    api_token_file: Option<String>,
    /// File with the authorities of the service's certificate, as PEM [default: the authorities of this machine].
    #[arg(long, value_name = "FILE", env = "APPORTION_CACERT")]
    cacert: Option<PathBuf>,
}

impl RemoteArgs {
    /// The service; `None`: the command works on this machine.
    pub fn server(&self) -> Option<ServerArgs> {
        let server = self.url.clone()?;
        Some(ServerArgs { server, api_token_file: self.api_token_file.clone(), cacert: self.cacert.clone() })
    }
}

/// The part of a list that a command prints.
#[derive(Args, Debug)]
pub struct ListArgs {
    /// Most entries [default: all].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
}

/// Most entries of one answer of the service.
const PAGE_ENTRIES_MAX: u64 = 1_000;

/// The variable that names the file with the token.
const FILE_VARIABLE: &str = "APPORTION_API_TOKEN_FILE";
/// The variable with the token, where no file has it.
const TOKEN_VARIABLE: &str = "APPORTION_API_TOKEN";

/// The header with the token for a service: that of the file, or of the variables.
///
/// # Errors
/// If the file cannot be read, or if no header can carry the token.
pub fn authorization(file: Option<&str>) -> Result<Option<HeaderValue>, Failure> {
    let file = file.map(str::to_owned).or_else(|| std::env::var(FILE_VARIABLE).ok());
    let (place, token) = match (file, std::env::var(TOKEN_VARIABLE)) {
        (Some(file), _) => {
            let token = input::read_text(&file)?;
            (file, token)
        }
        (None, Ok(token)) => (TOKEN_VARIABLE.to_owned(), token),
        (None, Err(_)) => return Ok(None),
    };
    let value = HeaderValue::from_str(&format!("Bearer {}", token.trim()));
    let mut value = value.map_err(|_| {
        Failure::BadInput(format!("{place}: the token has characters that no header can carry: expected one line of ASCII"))
    })?;
    value.set_sensitive(true);
    Ok(Some(value))
}

/// A connection to one service.
pub struct ServiceClient {
    base: Url,
    http: HttpClient,
    /// Only the service gets it.
    authorization: Option<HeaderValue>,
}

/// An answer of the service.
pub struct ServiceAnswer {
    /// Its status.
    pub status: StatusCode,
    /// Its body; null if it is no JSON.
    pub body: Value,
    /// The path of the next page, if it is a page of a list.
    pub next: Option<String>,
}

impl ServiceClient {
    /// A client of the service of a command line. It connects with the first call.
    ///
    /// # Errors
    /// If the client cannot be made.
    pub fn new(args: &ServerArgs) -> Result<Self, Failure> {
        let http = HttpClient::new(&args.server, args.cacert.as_deref())?;
        let authorization = authorization(args.api_token_file.as_deref())?;
        let base = Url::parse(&args.server).with_context(|| format!("--server {}: expected a URL", args.server))?;
        Ok(Self { base, http, authorization })
    }

    /// The path of a resource. Names may have any letters.
    pub fn path(&self, segments: &[&str]) -> String {
        let mut url = self.base.clone();
        url.set_path("");
        if let Ok(mut path) = url.path_segments_mut() {
            path.clear().extend(segments);
        }
        url.path().to_owned()
    }

    /// Reads a resource.
    ///
    /// # Errors
    /// If the service cannot be reached, or refuses.
    pub async fn get(&self, path: &str) -> Result<Value, Failure> {
        self.accepted(path, self.send(Method::GET, path, &[], None).await?)
    }

    /// Reads a list, page by page.
    ///
    /// # Errors
    /// If the service cannot be reached, or refuses.
    pub async fn list(&self, path: &str, args: &ListArgs) -> Result<Value, Failure> {
        let limit = args.limit.unwrap_or(u64::MAX);
        let mut entries = Vec::new();
        let mut next = Some(format!("{path}?limit={}", limit.min(PAGE_ENTRIES_MAX)));
        while let Some(page) = next.filter(|_| (entries.len() as u64) < limit) {
            let mut answer = self.send(Method::GET, &page, &[], None).await?;
            next = answer.next.take();
            match self.accepted(&page, answer)? {
                Value::Array(more) => entries.extend(more),
                other => return Err(anyhow!("{}: expected a list, found {other}", self.url(&page)).into()),
            }
        }
        entries.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        Ok(Value::Array(entries))
    }

    /// Reads a whole list, page by page.
    ///
    /// # Errors
    /// If the service cannot be reached, or refuses.
    pub async fn list_all(&self, path: &str) -> Result<Value, Failure> {
        self.list(path, &ListArgs { limit: None }).await
    }

    /// Sends a request.
    ///
    /// # Errors
    /// If the service cannot be reached.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, String)],
        body: Option<&Value>,
    ) -> Result<ServiceAnswer, Failure> {
        let mut request = http::Request::builder().method(method).uri(address(&self.url(path))?);
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let body = match body {
            Some(body) => {
                request = request.header(CONTENT_TYPE, "application/json");
                serde_json::to_vec(body).context("a body")?
            }
            None => Vec::new(),
        };
        self.finish(request.body(Full::new(Bytes::from(body))).context("making a request")?, path).await
    }

    /// Sends a request to a path with the token, and reads the answer.
    async fn finish(&self, mut request: HttpRequest, path: &str) -> Result<ServiceAnswer, Failure> {
        if let Some(token) = &self.authorization {
            request.headers_mut().insert(AUTHORIZATION, token.clone());
        }
        let answer = self.http.send(request, ANSWER_WAIT_MAX).await;
        let answer: HttpAnswer = answer.with_context(|| format!("talking to the service at {}", self.base))?;
        let next = next_page(path, answer.headers.get(LINK).and_then(|link| link.to_str().ok()));
        let text = answer.text();
        Ok(ServiceAnswer { status: answer.status, body: serde_json::from_str(&text).unwrap_or(Value::String(text)), next })
    }

    /// Posts a text.
    ///
    /// # Errors
    /// If the service cannot be reached, or refuses.
    pub async fn upload(&self, path: &str, media_type: &'static str, text: Vec<u8>) -> Result<Value, Failure> {
        let request = http::Request::post(address(&self.url(path))?).header(CONTENT_TYPE, media_type);
        let request = request.body(Full::new(Bytes::from(text))).context("making a request")?;
        self.accepted(path, self.finish(request, path).await?)
    }

    /// The body of an answer, or the service's refusal. A refused value is bad input.
    ///
    /// # Errors
    /// If the service refused.
    pub fn accepted(&self, path: &str, answer: ServiceAnswer) -> Result<Value, Failure> {
        let ServiceAnswer { status, body, .. } = answer;
        if status.is_success() {
            return Ok(body);
        }
        let detail = body["detail"].as_str().map_or_else(|| body.to_string(), str::to_owned);
        let url = self.url(path);
        match status {
            StatusCode::NOT_FOUND => {
                Err(BadInput::one(&url, "", "not found", format!("a name that is there: {detail}")).into())
            }
            StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY => {
                Err(Failure::BadInput(format!("{url}: {detail}")))
            }
            _ => Err(anyhow!("{url}: {status}: {detail}").into()),
        }
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base.as_str().trim_end_matches('/'))
    }

    /// Whether an address answers with success.
    pub async fn answers(&self, url: &str) -> bool {
        let Ok(address) = address(url) else { return false };
        let Ok(request) = http::Request::get(address).body(Full::default()) else { return false };
        self.http.send(request, SIGN_WAIT_MAX).await.is_ok_and(|answer| answer.status.is_success())
    }
}

/// A URL with all letters that need it as percent codes.
fn address(url: &str) -> Result<String, Failure> {
    Ok(Url::parse(url).with_context(|| format!("{url}: expected a URL"))?.into())
}

/// Runs a conversation with the service to its end.
///
/// # Errors
/// Those of the conversation, and if no runtime can be started.
pub fn converse<T>(conversation: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Runtime::new().context("starting the runtime")?;
    runtime.block_on(conversation)
}
