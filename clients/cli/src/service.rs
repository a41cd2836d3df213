//! How do commands talk to a running service?

use crate::args;
use crate::contexts::{ServiceContext, read_contexts};
use crate::http_client::{HttpAnswer, HttpClient, HttpRequest, HttpStream};
use crate::refusal::refusal;
use anyhow::{Context, anyhow};
use apportion_support::exit::Failure;
use apportion_support::input;
use apportion_support::pages::next_page;
use bytes::Bytes;
use clap::Args;
use http_body_util::Full;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, ETAG, HeaderName, HeaderValue, LINK};
use reqwest::{Method, StatusCode, Url};
use serde_json::Value;
use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

/// Longest wait for one answer. A plan may take as long as its time limit.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(330);
/// Longest wait for an address that may not answer yet.
const SIGN_WAIT_MAX: Duration = Duration::from_secs(2);
/// Longest silence of a stream of events. The service says something every ten seconds.
const STREAM_SILENCE_MAX: Duration = Duration::from_secs(40);

/// The service without any argument, variable or context.
const SERVER_DEFAULT: &str = "http://127.0.0.1:7070";
/// The variable that names the service.
const SERVER_VARIABLE: &str = "APPORTION_SERVER";
/// The variable that names a context.
const CONTEXT_VARIABLE: &str = "APPORTION_CONTEXT";
/// The variable that names the file with the authorities of the service's certificate.
const CACERT_VARIABLE: &str = "APPORTION_CACERT";

/// The service that a command talks to.
#[derive(Args, Debug)]
pub struct ServerArgs {
    /// The service [default: APPORTION_SERVER, else that of the context, else http://127.0.0.1:7070].
    #[arg(long, value_name = "URL", value_parser = args::service_url, conflicts_with = "context")]
    server: Option<String>,
    /// A context, which names the service, the file with the token and the file with the authorities (`apportion context`)
    /// [default: APPORTION_CONTEXT, else the context in use].
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// File with the token that the service asks for [default: APPORTION_API_TOKEN_FILE, else the text of
    /// APPORTION_API_TOKEN, else the file of the context].
    #[arg(long, value_name = "FILE")]
    api_token_file: Option<String>,
    /// File with the authorities of the service's certificate, as PEM [default: APPORTION_CACERT, else the file of the
    /// context, else the authorities of this machine].
    #[arg(long, value_name = "FILE")]
    cacert: Option<String>,
}

/// A service, the header with the token for it, and the authorities of its certificate.
struct ServiceEndpoint {
    server: String,
    authorization: Option<HeaderValue>,
    cacert: Option<PathBuf>,
}

impl ServerArgs {
    /// The service at this URL, with the files of a command that has flags of its own for them.
    pub fn at(server: String, api_token_file: Option<String>, cacert: Option<String>) -> Self {
        Self { server: Some(server), context: None, api_token_file, cacert }
    }

    /// The service by flag, environment or context, in this order. The token of a context goes to its service only.
    fn endpoint(&self) -> Result<ServiceEndpoint, Failure> {
        if let Some(server) = &self.server {
            return self.given(server.clone());
        }
        if let Some(name) = &self.context {
            let ServiceContext { server, token_file, cacert } = read_contexts()?.named("--context", name)?.clone();
            // The flag chose these files too.
            let file = self.api_token_file.clone().or(token_file);
            let cacert = self.cacert.clone().or(cacert).or_else(|| variable(CACERT_VARIABLE)).map(PathBuf::from);
            return Ok(ServiceEndpoint { server, authorization: authorization(file.as_deref())?, cacert });
        }
        if let Some(server) = variable(SERVER_VARIABLE) {
            let server = args::service_url(&server).map_err(|e| Failure::BadInput(format!("{SERVER_VARIABLE}: {e}")))?;
            return self.given(server);
        }
        let contexts = read_contexts()?;
        let context = match variable(CONTEXT_VARIABLE) {
            Some(name) => Some(contexts.named(CONTEXT_VARIABLE, &name)?),
            None => contexts.in_use(),
        };
        let Some(context) = context else { return self.given(SERVER_DEFAULT.to_owned()) };
        let given = self.given(context.server.clone())?;
        let endpoint =
            ServiceEndpoint { cacert: given.cacert.or_else(|| context.cacert.clone().map(PathBuf::from)), ..given };
        match &context.token_file {
            Some(file) if endpoint.authorization.is_none() => {
                Ok(ServiceEndpoint { authorization: authorization(Some(file))?, ..endpoint })
            }
            _ => Ok(endpoint),
        }
    }

    /// A service with the token and the authorities of the flags or the environment.
    fn given(&self, server: String) -> Result<ServiceEndpoint, Failure> {
        let cacert = self.cacert.clone().or_else(|| variable(CACERT_VARIABLE)).map(PathBuf::from);
        Ok(ServiceEndpoint { server, authorization: authorization(self.api_token_file.as_deref())?, cacert })
    }
}

/// A variable of the environment that has a text.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

/// The service to which a command may leave its work.
#[derive(Args, Debug)]
pub struct RemoteArgs {
    /// Run as a job of this service instead of on this machine.
    #[arg(long = "server", value_name = "URL", value_parser = args::service_url)]
    url: Option<String>,
    /// File with the token that the service asks for [default: APPORTION_API_TOKEN_FILE, else the text of
    /// APPORTION_API_TOKEN].
    #[arg(long, value_name = "FILE")]
    api_token_file: Option<String>,
    /// File with the authorities of the service's certificate, as PEM [default: APPORTION_CACERT, else the authorities of
    /// this machine].
    #[arg(long, value_name = "FILE")]
    cacert: Option<String>,
}

impl RemoteArgs {
    /// The service; `None`: the command works on this machine.
    pub fn server(&self) -> Option<ServerArgs> {
        let server = self.url.clone()?;
        Some(ServerArgs::at(server, self.api_token_file.clone(), self.cacert.clone()))
    }
}

/// The part of a list that a command prints.
#[derive(Args, Debug)]
pub struct ListArgs {
    /// Most entries [default: all].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: Option<u64>,
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

/// The variable with the reason for a change.
const WHY_VARIABLE: &str = "APPORTION_WHY";
/// The header with it, for the audit.
const WHY_HEADER: &str = "apportion-why";

/// Adds what each request says of its client: the token, and the reason for a change.
pub fn identify(request: &mut HttpRequest, authorization: Option<&HeaderValue>) {
    if let Some(token) = authorization {
        request.headers_mut().insert(AUTHORIZATION, token.clone());
    }
    // A text that no header can carry is left out.
    if let Some(Ok(why)) = variable(WHY_VARIABLE).map(|why| HeaderValue::from_bytes(why.as_bytes())) {
        request.headers_mut().insert(WHY_HEADER, why);
    }
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
    /// The entity tag of the resource, if it has one.
    pub tag: Option<String>,
}

impl ServiceClient {
    /// A client of the service of a command line. It connects with the first call.
    ///
    /// # Errors
    /// If the client cannot be made.
    pub fn new(args: &ServerArgs) -> Result<Self, Failure> {
        let ServiceEndpoint { server, authorization, cacert } = args.endpoint()?;
        let http = HttpClient::new(&server, cacert.as_deref())?;
        let base = Url::parse(&server).with_context(|| format!("{server}: expected the URL of a service"))?;
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

    /// A path with these parameters. Values may have any letters.
    pub fn with_query(&self, path: &str, parameters: &[(&str, &str)]) -> String {
        let mut url = self.base.clone();
        url.query_pairs_mut().clear().extend_pairs(parameters);
        match url.query().filter(|query| !query.is_empty()) {
            Some(query) => format!("{path}?{query}"),
            None => path.to_owned(),
        }
    }

    /// Reads a list, page by page. The path may have parameters.
    ///
    /// # Errors
    /// If the service cannot be reached, or refuses.
    pub async fn list(&self, path: &str, args: &ListArgs) -> Result<Value, Failure> {
        let limit = args.limit.unwrap_or(u64::MAX);
        let mut entries = Vec::new();
        let joint = if path.contains('?') { '&' } else { '?' };
        let mut next = Some(format!("{path}{joint}limit={}", limit.min(PAGE_ENTRIES_MAX)));
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
    async fn finish(&self, request: HttpRequest, path: &str) -> Result<ServiceAnswer, Failure> {
        let answer = self.http.send(self.with_token(request), ANSWER_WAIT_MAX).await;
        let answer: HttpAnswer = answer.with_context(|| format!("talking to the service at {}", self.base))?;
        let header = |name: HeaderName| answer.headers.get(name).and_then(|value| value.to_str().ok());
        let (next, tag) = (next_page(path, header(LINK)), header(ETAG).map(str::to_owned));
        let text = answer.text();
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Ok(ServiceAnswer { status: answer.status, body, next, tag })
    }

    fn with_token(&self, mut request: HttpRequest) -> HttpRequest {
        identify(&mut request, self.authorization.as_ref());
        request
    }

    /// Opens the stream of events after the one with number `after`.
    ///
    /// # Errors
    /// If the service cannot be reached, or refuses.
    pub async fn open_stream(&self, path: &str, after: i64) -> Result<HttpStream, Failure> {
        let request = http::Request::get(address(&self.url(path))?).header("last-event-id", after.to_string());
        let request = request.body(Full::default()).context("making a request")?;
        let stream = self.http.open(self.with_token(request), STREAM_SILENCE_MAX).await;
        let stream = stream.with_context(|| format!("talking to the service at {}", self.base))?;
        if stream.status.is_success() {
            return Ok(stream);
        }
        let status = stream.status;
        let text = stream.text().await.context("reading the service's answer")?;
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Err(refusal(&self.url(path), status, &body))
    }

    /// Sends a text.
    ///
    /// # Errors
    /// If the service cannot be reached.
    pub async fn send_text(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, String)],
        media_type: &'static str,
        text: Vec<u8>,
    ) -> Result<ServiceAnswer, Failure> {
        let request = http::Request::builder().method(method).uri(address(&self.url(path))?);
        let mut request = request.header(CONTENT_TYPE, media_type);
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        self.finish(request.body(Full::new(Bytes::from(text))).context("making a request")?, path).await
    }

    /// Posts a text.
    ///
    /// # Errors
    /// If the service cannot be reached, or refuses.
    pub async fn upload(&self, path: &str, media_type: &'static str, text: Vec<u8>) -> Result<Value, Failure> {
        self.accepted(path, self.send_text(Method::POST, path, &[], media_type, text).await?)
    }

    /// The body of an answer, or the service's refusal. A refused value is bad input.
    ///
    /// # Errors
    /// If the service refused.
    pub fn accepted(&self, path: &str, answer: ServiceAnswer) -> Result<Value, Failure> {
        let ServiceAnswer { status, body, .. } = answer;
        if status.is_success() { Ok(body) } else { Err(refusal(&self.url(path), status, &body)) }
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
