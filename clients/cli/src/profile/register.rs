//! How is a profiled pipeline registered with a service?

use super::settings::add_missing_settings;
use crate::digest::sha256_hex;
use crate::http_client::{HttpAnswer, HttpClient};
use crate::refusal::refusal;
use crate::service::identify;
use anyhow::{Context, Result, anyhow};
use apportion_api::http::files::SOURCE_CHARS_MAX;
use apportion_profiler::TaskFiles;
use apportion_support::exit::Failure;
use apportion_wire::ProfileSet;
use bytes::Bytes;
use http_body_util::Full;
use reqwest::StatusCode;
use reqwest::header::{CONTENT_TYPE, ETAG, HeaderValue, IF_MATCH, IF_NONE_MATCH};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;
use std::time::Duration;

/// Longest wait for one answer. A model file may be large.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(3_600);

/// How often a pipeline is read again that another client changes at the same time.
const TRIES_MAX: u32 = 5;

/// The service with which a pipeline is registered.
pub struct Registry {
    base: String,
    http: HttpClient,
    authorization: Option<HeaderValue>,
}

impl Registry {
    /// The service at a URL. It gets the token of the header. Its certificate is checked by the authorities of the file.
    ///
    /// # Errors
    /// If the file cannot be used.
    pub fn new(base: &str, authorization: Option<HeaderValue>, cacert: Option<&Path>) -> Result<Self> {
        let base = base.trim_end_matches('/').to_owned();
        Ok(Self { http: HttpClient::new(&base, cacert)?, base, authorization })
    }

    async fn send(&self, request: http::request::Builder, body: Vec<u8>) -> Result<HttpAnswer> {
        let mut request = request.body(Full::new(Bytes::from(body))).context("making a request")?;
        identify(&mut request, self.authorization.as_ref());
        let base = &self.base;
        self.http.send(request, ANSWER_WAIT_MAX).await.with_context(|| format!("--register {base}: talking to the service"))
    }

    async fn put(&self, request: http::request::Builder, document: &impl Serialize) -> Result<HttpAnswer> {
        let request = request.header(CONTENT_TYPE, "application/json");
        self.send(request, serde_json::to_vec(document).context("a document")?).await
    }

    /// The address of a pipeline.
    fn pipeline_url(&self, name: &str) -> Result<String> {
        let base = &self.base;
        let mut url = reqwest::Url::parse(base).with_context(|| format!("--register {base}: expected a URL"))?;
        let mut segments = url.path_segments_mut().map_err(|()| anyhow!("--register {base}: expected http://.."))?;
        segments.extend(["v1", "pipelines", name]);
        drop(segments);
        Ok(url.into())
    }

    /// Asks for the pipeline: what is measured afterwards takes long, and would be lost without a service.
    ///
    /// # Errors
    /// If the service cannot be reached, or refuses this client. A pipeline that is not registered is no error.
    pub async fn check(&self, pipeline: &str) -> Result<(), Failure> {
        let url = self.pipeline_url(pipeline)?;
        let answer = self.send(http::Request::get(&url), Vec::new()).await?;
        if answer.status == StatusCode::NOT_FOUND { Ok(()) } else { accepted(&url, answer).map(drop) }
    }
}

/// Sends the model files by digest, then the pipeline, then its profile. Without model files the variants get no digests:
/// another server has them. Settings that the pipeline leaves out stay as they are registered, and so do the profiles of
/// other hardware types.
///
/// # Errors
/// If a file cannot be read, or the service refuses.
pub async fn register(
    registry: &Registry,
    mut pipeline: Value,
    files: &[TaskFiles],
    set: &ProfileSet,
) -> Result<(), Failure> {
    let mut digests: BTreeMap<&Path, String> = BTreeMap::new();
    let tasks = pipeline["tasks"].as_array_mut().into_iter().flatten();
    for (task, files) in tasks.zip(files) {
        for (variant, file) in task["variants"].as_array_mut().into_iter().flatten().zip(&files.variants) {
            // Variants that differ in threads or provider have one file.
            let digest = match digests.entry(&file.file) {
                Entry::Occupied(sent) => sent.into_mut(),
                Entry::Vacant(unsent) => unsent.insert(send_file(registry, &file.file).await?),
            };
            variant["model_digest"] = digest.as_str().into();
        }
    }
    let name = pipeline["name"].as_str().context("a pipeline without a name")?.to_owned();
    let url = registry.pipeline_url(&name)?;
    put_pipeline(registry, &url, &pipeline).await?;
    let profiles = format!("{url}/profiles");
    accepted(&profiles, registry.put(http::Request::put(&profiles), set).await?)?;
    Ok(())
}

/// Sends a model file; gives its digest.
async fn send_file(registry: &Registry, file: &Path) -> Result<String, Failure> {
    let base = &registry.base;
    let bytes = std::fs::read(file).with_context(|| file.display().to_string())?;
    let digest = sha256_hex(&bytes);
    let mut url = reqwest::Url::parse(&format!("{base}/v1/files/{digest}"))
        .with_context(|| format!("--register {base}: expected a URL"))?;
    url.query_pairs_mut().append_pair("source", &source_of(file));
    let url = url.to_string();
    accepted(&url, registry.send(http::Request::put(&url), bytes).await?)?;
    Ok(digest)
}

/// Where a file comes from, for the service: its path on this machine.
fn source_of(file: &Path) -> String {
    let path = file.canonicalize().unwrap_or_else(|_| file.to_owned()).display().to_string();
    path.chars().filter(|c| !c.is_control()).take(SOURCE_CHARS_MAX).collect()
}

/// Replaces the pipeline, completed by the registered settings. If it has changed meanwhile, it is read again.
async fn put_pipeline(registry: &Registry, url: &str, pipeline: &Value) -> Result<(), Failure> {
    for _ in 0..TRIES_MAX {
        let had = registry.send(http::Request::get(url), Vec::new()).await?;
        let mut put = http::Request::put(url);
        let mut sent = pipeline.clone();
        if had.status != StatusCode::NOT_FOUND {
            let had = accepted(url, had)?;
            if let Some(tag) = had.headers.get(ETAG) {
                put = put.header(IF_MATCH, tag);
            }
            add_missing_settings(&mut sent, &serde_json::from_slice(&had.body).context("reading the registered pipeline")?);
        } else {
            put = put.header(IF_NONE_MATCH, "*");
        }
        let answer = registry.put(put, &sent).await?;
        if answer.status != StatusCode::PRECONDITION_FAILED {
            return accepted(url, answer).map(drop);
        }
    }
    Err(anyhow!("{url}: another client keeps changing this pipeline; try again").into())
}

/// The answer, or the service's refusal.
fn accepted(url: &str, answer: HttpAnswer) -> Result<HttpAnswer, Failure> {
    if answer.status.is_success() {
        return Ok(answer);
    }
    let body = serde_json::from_slice(&answer.body).unwrap_or_else(|_| Value::String(answer.text()));
    Err(refusal(url, answer.status, &body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use apportion_domain::{VariantExecution, VariantRuntime};
    use apportion_profiler::VariantFile;
    use serde_json::json;
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::mpsc::{Receiver, channel};

    /// The first line of a request, and its body.
    type SeenRequest = (String, Vec<u8>);

    fn read_request(reader: &mut BufReader<TcpStream>) -> SeenRequest {
        let (mut first, mut bytes) = (String::new(), 0);
        reader.read_line(&mut first).expect("a request");
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).expect("a header");
            if line.trim().is_empty() {
                break;
            }
            if let Some(length) = line.to_lowercase().strip_prefix("content-length:") {
                bytes = length.trim().parse().expect("a number");
            }
        }
        let mut body = vec![0; bytes];
        reader.read_exact(&mut body).expect("a body");
        (first, body)
    }

    /// A server that answers each request with an empty object; its URL, and what it was asked.
    fn server() -> (String, Receiver<SeenRequest>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let (seen, requests) = channel();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut reader = BufReader::new(stream.expect("a connection"));
                seen.send(read_request(&mut reader)).expect("a test that waits");
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
                reader.get_mut().write_all(answer).expect("a client that waits");
            }
        });
        (url, requests)
    }

    #[tokio::test]
    async fn variants_of_one_file_send_it_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let variant = |name: &str, file: &str| {
            let file = folder.path().join(file);
            std::fs::write(&file, file.display().to_string()).expect("written");
            let (runtime, execution) = (VariantRuntime::Onnx, VariantExecution::default());
            VariantFile { name: name.to_owned(), file, runtime, execution }
        };
        let variants = vec![variant("a", "a.onnx"), variant("a-2t", "a.onnx"), variant("b", "b.onnx")];
        let files = [TaskFiles { name: "t".to_owned(), variants, ..TaskFiles::default() }];
        let variants = ["a", "a-2t", "b"].map(|name| json!({"name": name}));
        let pipeline = json!({"name": "p", "tasks": [{"name": "t", "variants": variants}]});
        let (url, requests) = server();
        let registry = Registry::new(&url, None, None).expect("a client");
        register(&registry, pipeline, &files, &ProfileSet::default()).await.expect("it is registered");

        let seen: Vec<SeenRequest> = requests.try_iter().collect();
        let sent = seen.iter().filter(|(first, _)| first.starts_with("PUT /v1/files/")).count();
        assert_eq!(sent, 2, "{seen:?}");
        let put = seen.iter().find(|(first, _)| first.starts_with("PUT /v1/pipelines/p ")).expect("the pipeline is put");
        let put: Value = serde_json::from_slice(&put.1).expect("JSON");
        let digest = |at: usize| put["tasks"][0]["variants"][at]["model_digest"].as_str().expect("a digest");
        assert_eq!(digest(0), digest(1));
        assert_ne!(digest(0), digest(2));
    }
}
