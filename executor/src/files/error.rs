//! Why can an agent not have a file?

use crate::causes::describe;
use std::path::PathBuf;
use std::time::Duration;

/// Why a file cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The state directory does not take it.
    #[error("{0}: {1}")]
    Disk(PathBuf, std::io::Error),
    /// Its source did not hand it out.
    #[error("{0}: {1}")]
    Fetch(String, FetchError),
    /// Its contents are not what they should be.
    #[error("{place}: expected a file with sha256 {expected}, got {found}")]
    Digest {
        /// Where it came from.
        place: String,
        /// Its sha256 by its name, in hexadecimal.
        expected: String,
        /// The sha256 of its contents.
        found: String,
    },
    /// Another agent runs with this state directory.
    #[error("{0}: another agent runs with this state directory: give this one another --state-dir")]
    Taken(PathBuf),
    /// The thread that fetches files has ended.
    #[error("the agent stops")]
    Stopping,
}

/// Why a source did not hand out a file.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The name of the file is malformed.
    #[error("this is no digest: expected 64 hexadecimal digits")]
    NotADigest,
    /// The source did not answer in this time.
    #[error("no answer within {0:?}")]
    NoAnswer(Duration),
    /// The source sent nothing for this time.
    #[error("no byte came for {0:?}")]
    Silent(Duration),
    /// The request over HTTP failed, or its answer broke off.
    #[error("{}", describe(.0))]
    Http(reqwest::Error),
    /// There is no connection to the control plane.
    #[error("{}", describe(.0))]
    Connection(tonic::transport::Error),
    /// The control plane refused the call, or its answer broke off.
    #[error("{:?}: {}", .0.code(), .0.message())]
    Call(Box<tonic::Status>),
}
