//! From where does an agent fetch model files?

use super::error::FetchError;
use super::stream::{DownloadStream, READ_WAIT_MAX};
use crate::connector::ControlConnector;
use apportion_protocol::v1::{FileRequest, control_client::ControlClient};
use reqwest::{StatusCode, header};
use std::time::Duration;
use tonic::transport::Endpoint;

/// How long a connection may take.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// Who hands out model files.
#[derive(Clone, Default)]
pub struct Source {
    /// The control plane's URL, where `Fetch` is called; empty: not known yet.
    pub join: String,
    /// Where files are had by HTTP instead, as `{url}/{sha256}`; empty: by `Fetch`.
    pub url: String,
    /// What the one or the other asks for.
    pub token: String,
    /// Connects to the control plane.
    pub connector: ControlConnector,
}

impl PartialEq for Source {
    /// One agent has one connector, so it does not count.
    fn eq(&self, other: &Self) -> bool {
        (&self.join, &self.url, &self.token) == (&other.join, &other.url, &other.token)
    }
}

impl std::fmt::Debug for Source {
    /// Without the token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Source").field("join", &self.join).field("url", &self.url).finish_non_exhaustive()
    }
}

impl Source {
    /// Whether no source is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.join.is_empty() && self.url.is_empty()
    }

    /// How messages name it.
    pub(super) fn place(&self, digest: &str) -> String {
        let base = if self.url.is_empty() { &self.join } else { &self.url };
        format!("{base}/{digest}")
    }

    /// The bytes of a file from `offset` on, or from its beginning where only that is to be had.
    ///
    /// # Errors
    /// [`FetchError`] by cause.
    pub(super) async fn open(
        &self,
        http: &reqwest::Client,
        digest: &str,
        offset: u64,
    ) -> Result<DownloadStream, FetchError> {
        let opened = async {
            if self.url.is_empty() { self.call(digest, offset).await } else { self.ask(http, digest, offset).await }
        };
        tokio::time::timeout(READ_WAIT_MAX, opened).await.map_err(|_| FetchError::NoAnswer(READ_WAIT_MAX))?
    }

    async fn ask(&self, http: &reqwest::Client, digest: &str, offset: u64) -> Result<DownloadStream, FetchError> {
        let mut request = http.get(self.place(digest));
        if !self.token.is_empty() {
            request = request.bearer_auth(&self.token);
        }
        if offset > 0 {
            request = request.header(header::RANGE, format!("bytes={offset}-"));
        }
        let response = request.send().await.map_err(FetchError::Http)?;
        let from = if response.status() == StatusCode::PARTIAL_CONTENT { offset } else { 0 };
        if response.status() == StatusCode::RANGE_NOT_SATISFIABLE {
            return Ok(DownloadStream::Nothing { from: offset });
        }
        let response = response.error_for_status().map_err(FetchError::Http)?;
        Ok(DownloadStream::Http { from, response: Box::new(response) })
    }

    async fn call(&self, digest: &str, offset: u64) -> Result<DownloadStream, FetchError> {
        let endpoint = Endpoint::from_shared(self.join.clone()).map_err(FetchError::Connection)?;
        let endpoint = endpoint
            .connect_timeout(CONNECT_MAX)
            .http2_keep_alive_interval(Duration::from_secs(5))
            .keep_alive_timeout(Duration::from_secs(5));
        let channel = self.connector.connect(&endpoint).await.map_err(FetchError::Connection)?;
        let request = FileRequest { token: self.token.clone(), sha256: digest.to_owned(), offset };
        match ControlClient::new(channel).fetch(request).await {
            Ok(response) => Ok(DownloadStream::Grpc { from: offset, chunks: Box::new(response.into_inner()) }),
            Err(status) if status.code() == tonic::Code::OutOfRange => Ok(DownloadStream::Nothing { from: offset }),
            Err(status) => Err(FetchError::Call(Box::new(status))),
        }
    }
}
