//! How is a profiled pipeline registered with a service?

use super::settings::add_missing_settings;
use crate::http_client::{HttpAnswer, HttpClient};
use anyhow::{Context, Result};
use apportion_profiler::TaskFiles;
use apportion_wire::ProfileSet;
use bytes::Bytes;
use http_body_util::Full;
use reqwest::StatusCode;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, ETAG, HeaderValue, IF_MATCH};
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
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
        if let Some(token) = &self.authorization {
            request.headers_mut().insert(AUTHORIZATION, token.clone());
        }
        self.http.send(request, ANSWER_WAIT_MAX).await.context("talking to the service")
    }

    async fn put(&self, request: http::request::Builder, document: &impl Serialize) -> Result<HttpAnswer> {
        let request = request.header(CONTENT_TYPE, "application/json");
        self.send(request, serde_json::to_vec(document).context("a document")?).await
    }
}

/// Sends the model files by digest, then the pipeline, then its profile. Without model files the variants get no digests:
/// another server has them. Settings that the pipeline leaves out stay as they
/// are registered, and so do the profiles of other hardware types.
///
/// # Errors
/// If a file cannot be read, or the service refuses.
pub async fn register(registry: &Registry, mut pipeline: Value, files: &[TaskFiles], set: &ProfileSet) -> Result<()> {
    let base = &registry.base;
    let tasks = pipeline["tasks"].as_array_mut().into_iter().flatten();
    for (task, files) in tasks.zip(files) {
        for (variant, file) in task["variants"].as_array_mut().into_iter().flatten().zip(&files.variants) {
            let bytes = std::fs::read(&file.file).with_context(|| file.file.display().to_string())?;
            let digest: String = Sha256::digest(&bytes).iter().map(|b| format!("{b:02x}")).collect();
            let mut url = reqwest::Url::parse(&format!("{base}/v1/files/{digest}"))
                .with_context(|| format!("--register {base}: expected a URL"))?;
            url.query_pairs_mut().append_pair("source", &source_of(&file.file));
            let url = url.to_string();
            accepted(&url, registry.send(http::Request::put(&url), bytes).await?)?;
            variant["model_digest"] = digest.into();
        }
    }
    let name = pipeline["name"].as_str().context("a pipeline without a name")?.to_owned();
    let mut url = reqwest::Url::parse(base).with_context(|| format!("--register {base}: expected a URL"))?;
    let mut segments = url.path_segments_mut().map_err(|()| anyhow::anyhow!("--register {base}: expected http://.."))?;
    segments.extend(["v1", "pipelines", &name]);
    drop(segments);
    put_pipeline(registry, url.as_str(), &pipeline).await?;
    let profiles = format!("{url}/profiles");
    accepted(&profiles, registry.put(http::Request::put(&profiles), set).await?)?;
    Ok(())
}

/// Where a file comes from, for the service: its path on this machine.
fn source_of(file: &Path) -> String {
    const SOURCE_CHARS_MAX: usize = 1_000;
    let path = file.canonicalize().unwrap_or_else(|_| file.to_owned()).display().to_string();
    path.chars().filter(|c| !c.is_control()).take(SOURCE_CHARS_MAX).collect()
}

/// Replaces the pipeline, completed by the registered settings. If it has changed meanwhile, it is read again.
async fn put_pipeline(registry: &Registry, url: &str, pipeline: &Value) -> Result<()> {
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
        }
        let answer = registry.put(put, &sent).await?;
        if answer.status != StatusCode::PRECONDITION_FAILED {
            return accepted(url, answer).map(drop);
        }
    }
    anyhow::bail!("{url}: another client keeps changing this pipeline; try again")
}

fn accepted(url: &str, answer: HttpAnswer) -> Result<HttpAnswer> {
    if answer.status.is_success() {
        return Ok(answer);
    }
    anyhow::bail!("{url}: {}: {}", answer.status, answer.text())
}
