//! How is a profiled pipeline registered with a service?

use super::settings::add_missing_settings;
use anyhow::{Context, Result};
use apportion_profiler::TaskFiles;
use apportion_wire::ProfileSet;
use reqwest::header::{AUTHORIZATION, ETAG, HeaderValue, IF_MATCH};
use reqwest::{Client, RequestBuilder, Response, StatusCode};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// How often a pipeline is read again that another client changes at the same time.
const TRIES_MAX: u32 = 5;

/// Sends the model files by digest, then the pipeline, then its profile. Without model files the variants get no digests:
/// another server has them. Settings that the pipeline leaves out stay as they
/// are registered, and so do the profiles of other hardware types.
///
/// # Errors
/// If a file cannot be read, or the service refuses.
pub async fn register(
    base: &str,
    authorization: Option<HeaderValue>,
    mut pipeline: Value,
    files: &[TaskFiles],
    set: &ProfileSet,
) -> Result<()> {
    let base = base.trim_end_matches('/');
    let headers = authorization.map(|token| (AUTHORIZATION, token)).into_iter().collect();
    let client = Client::builder().default_headers(headers).build().context("making a client")?;
    let tasks = pipeline["tasks"].as_array_mut().into_iter().flatten();
    for (task, files) in tasks.zip(files) {
        for (variant, file) in task["variants"].as_array_mut().into_iter().flatten().zip(&files.variants) {
            let bytes = std::fs::read(&file.file).with_context(|| file.file.display().to_string())?;
            let digest: String = Sha256::digest(&bytes).iter().map(|b| format!("{b:02x}")).collect();
            accepted(send(client.put(format!("{base}/v1/files/{digest}")).body(bytes)).await?).await?;
            variant["model_digest"] = digest.into();
        }
    }
    let name = pipeline["name"].as_str().context("a pipeline without a name")?.to_owned();
    let mut url = reqwest::Url::parse(base).with_context(|| format!("--register {base}: expected a URL"))?;
    let mut segments = url.path_segments_mut().map_err(|()| anyhow::anyhow!("--register {base}: expected http://.."))?;
    segments.extend(["v1", "pipelines", &name]);
    drop(segments);
    put_pipeline(&client, &url, &pipeline).await?;
    let profiles = format!("{url}/profiles");
    accepted(send(client.put(profiles).json(set)).await?).await?;
    Ok(())
}

/// Replaces the pipeline, completed by the registered settings. If it has changed meanwhile, it is read again.
async fn put_pipeline(client: &Client, url: &reqwest::Url, pipeline: &Value) -> Result<()> {
    for _ in 0..TRIES_MAX {
        let had = send(client.get(url.clone())).await?;
        let mut put = client.put(url.clone());
        let mut sent = pipeline.clone();
        if had.status() != StatusCode::NOT_FOUND {
            let had = accepted(had).await?;
            if let Some(tag) = had.headers().get(ETAG) {
                put = put.header(IF_MATCH, tag);
            }
            add_missing_settings(&mut sent, &had.json().await.context("reading the registered pipeline")?);
        }
        let answer = send(put.json(&sent)).await?;
        if answer.status() != StatusCode::PRECONDITION_FAILED {
            return accepted(answer).await.map(drop);
        }
    }
    anyhow::bail!("{url}: another client keeps changing this pipeline; try again")
}

async fn send(request: RequestBuilder) -> Result<Response> {
    request.send().await.context("talking to the service")
}

async fn accepted(response: Response) -> Result<Response> {
    let (url, status) = (response.url().clone(), response.status());
    if status.is_success() {
        return Ok(response);
    }
    let said = response.text().await.unwrap_or_default();
    anyhow::bail!("{url}: {status}: {said}")
}
