//! How are requests sent to another server, and which answers are good?

use super::error::{AnswerFailure, ConnectionError};
use crate::open_inference::BODY_BYTES_MAX;
use bytes::{Bytes, BytesMut};
use reqwest::header::CONTENT_TYPE;
use serde_json::Value;
use std::time::Duration;

/// The header that says how long the JSON is when bytes follow it.
pub(super) const HEADER_LENGTH: &str = "Inference-Header-Content-Length";
/// How long the server may take to accept a connection.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// How long it may take for one answer: a batch that takes longer has failed.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// Characters of a server's error that are passed on.
const ERROR_CHARS_MAX: usize = 500;

/// A server of the Open Inference Protocol. One thread at a time uses it, outside of any other runtime.
pub(super) struct ServerConnection {
    runtime: tokio::runtime::Runtime,
    client: reqwest::Client,
    /// Its URL without an end.
    server: String,
}

/// The body of a request.
pub(super) enum RequestBody {
    /// JSON alone.
    Json(Vec<u8>),
    /// JSON of this length, and bytes after it.
    Binary {
        /// JSON and bytes.
        body: Vec<u8>,
        /// Bytes of the JSON.
        json_length: usize,
    },
}

/// A good answer.
#[derive(Debug)]
pub(super) struct GoodAnswer {
    /// Its body.
    pub body: Bytes,
    /// Where its JSON ends, if it says so.
    pub json_length: Option<String>,
}

impl ServerConnection {
    /// Makes a client for the server at `url` (`http://host:port`). Nothing is sent yet.
    pub(super) fn open(url: &str) -> Result<Self, ConnectionError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(ConnectionError::Runtime)?;
        let client = reqwest::Client::builder().connect_timeout(CONNECT_MAX).timeout(ANSWER_MAX).tcp_nodelay(true);
        let client = client.build().map_err(ConnectionError::Client)?;
        Ok(Self { runtime, client, server: url.trim_end_matches('/').to_owned() })
    }

    /// The URL of a path that begins with `/`.
    pub(super) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.server)
    }

    /// The body at a path.
    pub(super) fn get(&self, path: &str) -> Result<Bytes, AnswerFailure> {
        let request = self.client.get(self.url(path));
        self.runtime.block_on(answer(request)).map(|answer| answer.body)
    }

    /// The answer to a body.
    pub(super) fn post(&self, path: &str, body: RequestBody) -> Result<GoodAnswer, AnswerFailure> {
        let request = self.client.post(self.url(path));
        let request = match body {
            RequestBody::Json(body) => request.header(CONTENT_TYPE, "application/json").body(body),
            RequestBody::Binary { body, json_length } => {
                let request = request.header(CONTENT_TYPE, "application/octet-stream");
                request.header(HEADER_LENGTH, json_length).body(body)
            }
        };
        self.runtime.block_on(answer(request))
    }
}

async fn answer(request: reqwest::RequestBuilder) -> Result<GoodAnswer, AnswerFailure> {
    let mut response = request.send().await.map_err(AnswerFailure::Lost)?;
    let status = response.status();
    let length = response.headers().get(HEADER_LENGTH).map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned());
    let mut body = BytesMut::new();
    while let Some(chunk) = response.chunk().await.map_err(AnswerFailure::Lost)? {
        body.extend_from_slice(&chunk);
        if body.len() > BODY_BYTES_MAX {
            return Err(AnswerFailure::TooLarge { bytes_max: BODY_BYTES_MAX });
        }
    }
    if status.is_success() {
        return Ok(GoodAnswer { body: body.freeze(), json_length: length });
    }
    let said = serde_json::from_slice::<Value>(&body).ok().and_then(|v| Some(v.get("error")?.as_str()?.to_owned()));
    let said = said.unwrap_or_else(|| String::from_utf8_lossy(&body).into_owned());
    Err(AnswerFailure::Status { status, said: said.chars().take(ERROR_CHARS_MAX).collect() })
}
