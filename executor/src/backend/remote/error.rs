//! Why does another server not run a variant as the plan has it?
//!
//! Each message is whole, with its cause, because [`BackendError`](crate::backend::BackendError) passes it on as a text.

use crate::backend::error::TensorMismatch;
use crate::causes::describe;
use crate::open_inference::error::ReadError;
use reqwest::StatusCode;
use std::fmt;

/// The direction of a variant's tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TensorDirection {
    Input,
    Output,
}

impl fmt::Display for TensorDirection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Input => "input",
            Self::Output => "output",
        })
    }
}

/// Why the server's variant is not the plan's.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum MetadataError {
    #[error("it has no {side} {name}: it has {}", .found.join(", "))]
    Missing { side: TensorDirection, name: String, found: Vec<String> },
    #[error("its {side} {name} is {found}: the plan has {planned}")]
    Datatype { side: TensorDirection, name: String, found: String, planned: &'static str },
    #[error("its {side} {name} has the shape {found:?}: the plan has {planned:?}")]
    Shape { side: TensorDirection, name: String, found: Vec<i64>, planned: Vec<i64> },
    #[error("it needs the {side} {name}, which the plan does not have")]
    Extra { side: TensorDirection, name: String },
}

/// Why there is no client for a server.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectionError {
    #[error("{0}")]
    Runtime(std::io::Error),
    #[error("{}", describe(.0))]
    Client(reqwest::Error),
}

/// Why the tensors of a server's variant are not those of a variant here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureRefusal {
    /// It has no input, or no output.
    #[error("it has no input or no output: expected at least one of each")]
    Empty,
    /// A tensor has elements of an unknown kind.
    #[error("its tensor {name} is {found}: expected a datatype of the Open Inference Protocol")]
    Datatype {
        /// Name of the tensor.
        name: String,
        /// Its datatype as the server says it.
        found: String,
    },
    /// The first dimension of a tensor is not the rows of a batch.
    #[error(
        "its tensor {name} has the shape {found:?}: expected -1 first, for the rows of a batch. With Triton, set \
         max_batch_size in its config.pbtxt, and leave the rows out of `dims`"
    )]
    FixedRows {
        /// Name of the tensor.
        name: String,
        /// Its shape.
        found: Vec<i64>,
    },
}

/// Why a variant is not found on a server.
#[derive(Debug, thiserror::Error)]
pub enum RemoteVariantError {
    /// There is no server, or it does not speak the protocol.
    #[error("{server}: {why}: expected a server of the Open Inference Protocol that is up")]
    Server {
        /// Its URL.
        server: String,
        /// Why not.
        why: String,
    },
    /// The server has other variants.
    #[error("{server}: there is no model {variant:?}: {}", listed(.known))]
    Unknown {
        /// The URL of the server.
        server: String,
        /// The name.
        variant: String,
        /// The names of its models.
        known: Vec<String>,
    },
    /// The server cannot run the variant now.
    #[error("{server}: model {variant:?} is not ready: {why}")]
    NotReady {
        /// The URL of the server.
        server: String,
        /// The name.
        variant: String,
        /// The server's reason.
        why: String,
    },
    /// The variant's tensors do not fit.
    #[error("{server}: model {variant:?}")]
    Signature {
        /// The URL of the server.
        server: String,
        /// The name.
        variant: String,
        /// Why not.
        #[source]
        source: SignatureRefusal,
    },
}

fn listed(known: &[String]) -> String {
    if known.is_empty() { "the server has none".to_owned() } else { format!("expected one of {}", known.join(", ")) }
}

/// Why an answer is not read.
#[derive(Debug, thiserror::Error)]
pub(super) enum UnreadAnswer {
    #[error("{request}: {failure}")]
    Failed { request: String, failure: AnswerFailure },
    #[error("{request}: {error}")]
    Json { request: String, error: serde_json::Error },
}

/// Why there is no good answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum AnswerFailure {
    #[error("{}", describe(.0))]
    Lost(reqwest::Error),
    #[error("its answer is too large: expected at most {bytes_max} bytes")]
    TooLarge { bytes_max: usize },
    #[error("it answered {status}: {said}")]
    Status { status: StatusCode, said: String },
}

impl AnswerFailure {
    /// Whether any other request would have fared alike: the server is overloaded, or out of reach.
    pub(super) fn is_away(&self) -> bool {
        match self {
            Self::Lost(_) => true,
            Self::TooLarge { .. } => false,
            Self::Status { status, .. } => matches!(status.as_u16(), 429 | 502..=504),
        }
    }
}

/// Why an answer does not have the variant's outputs.
#[derive(Debug, thiserror::Error)]
pub(super) enum AnswerError {
    #[error("{header}: {found}: expected the length of the JSON, at most the body's {body_bytes} bytes")]
    Length { header: &'static str, found: String, body_bytes: usize },
    #[error("its answer: {0}")]
    Json(serde_json::Error),
    #[error("its output {name}: {error}")]
    Output { name: String, error: RemoteOutputError },
    #[error("its answer has no output {0}")]
    Missing(String),
    #[error("its output {name} {mismatch}")]
    Mismatch { name: String, mismatch: TensorMismatch },
}

/// Why an output of an answer is no tensor.
#[derive(Debug, thiserror::Error)]
pub(super) enum RemoteOutputError {
    #[error("{0} is no datatype")]
    Datatype(String),
    #[error("shape {0:?} is too large")]
    TooLarge(Vec<usize>),
    #[error("binary_data_size is {size}: {left} bytes are left")]
    Short { size: usize, left: usize },
    #[error(transparent)]
    Elements(#[from] ReadError),
    #[error("expected either data or binary_data_size")]
    Source,
}
