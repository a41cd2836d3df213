//! How do the bytes of a file come from its source?

use super::error::FetchError;
use apportion_protocol::v1::FileChunk;
use bytes::Bytes;
use std::time::Duration;

/// After so long without a byte, a download has broken off.
pub(super) const READ_WAIT_MAX: Duration = Duration::from_secs(15);

/// Bytes on their way.
pub(super) enum DownloadStream {
    /// By HTTP, from this byte on.
    Http { from: u64, response: Box<reqwest::Response> },
    /// By the control plane's own call, from this byte on.
    Grpc { from: u64, chunks: Box<tonic::Streaming<FileChunk>> },
    /// The file has no such byte: nothing lacks, or what is here is longer than it.
    Nothing { from: u64 },
}

impl DownloadStream {
    pub(super) fn from(&self) -> u64 {
        match self {
            Self::Http { from, .. } | Self::Grpc { from, .. } | Self::Nothing { from } => *from,
        }
    }

    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, FetchError> {
        let next = async {
            match self {
                Self::Http { response, .. } => response.chunk().await.map_err(FetchError::Http),
                Self::Grpc { chunks, .. } => {
                    let chunk = chunks.message().await.map_err(|status| FetchError::Call(Box::new(status)))?;
                    Ok(chunk.map(|c| c.data.into()))
                }
                Self::Nothing { .. } => Ok(None),
            }
        };
        tokio::time::timeout(READ_WAIT_MAX, next).await.map_err(|_| FetchError::Silent(READ_WAIT_MAX))?
    }
}
