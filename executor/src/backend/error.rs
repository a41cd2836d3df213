//! Why does a batch not fit its variant, or a model file not follow the convention?
//!
//! Each message is whole, with its cause, because [`BackendError`](super::BackendError) passes it on as a text.

use crate::causes::describe;
use crate::open_inference::error::WriteError;
use apportion_node::frames::MESSAGE_BYTES_MAX;
use apportion_node::tensor::DataError;

/// How a tensor differs from its specification: the end of a sentence that begins with the tensor's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TensorMismatch {
    /// It has another datatype.
    #[error("is {expected}, not {found}")]
    Datatype {
        /// Name of the variant's datatype.
        expected: &'static str,
        /// Name of the tensor's datatype.
        found: &'static str,
    },
    /// It has another shape.
    #[error("has the shape {expected:?} (-1 is any), not {found:?}")]
    Shape {
        /// The variant's shape.
        expected: Vec<i64>,
        /// The tensor's shape.
        found: Vec<usize>,
    },
    /// Its data do not fill its shape.
    #[error("does not hold its elements: {0}")]
    Data(DataError),
}

/// Why a variant cannot take a batch.
#[derive(Debug, thiserror::Error)]
pub enum BatchError {
    /// The variant has no input of this name.
    #[error("there is no input {name}; the inputs are {}", .known.join(", "))]
    Unknown {
        /// Name of the tensor.
        name: String,
        /// Names of the variant's inputs.
        known: Vec<String>,
    },
    /// Two tensors are for the input with this name.
    #[error("input {0} comes twice")]
    Twice(String),
    /// The tensor of an input does not fit.
    #[error("input {name} {mismatch}")]
    Mismatch {
        /// Name of the input.
        name: String,
        /// The difference.
        mismatch: TensorMismatch,
    },
    /// No tensor is for the input with this name.
    #[error("input {0} is missing")]
    Missing(String),
    /// Two tensors differ in their rows.
    #[error("input {name} has {found} rows, {first} has {expected}")]
    Rows {
        /// Name of the input.
        name: String,
        /// Its rows.
        found: usize,
        /// Name of the first input.
        first: String,
        /// Rows of the first input.
        expected: usize,
    },
    /// A BOOL of the input with this name has another value.
    #[error("{0}: a BOOL is a byte 0 or 1")]
    NotBool(String),
    /// A text of the input with this name is malformed.
    #[error("{0}: a BYTES is a text in UTF-8 without a zero here")]
    NotText(String),
    /// ONNX Runtime refuses a tensor.
    #[error("{name}: {error}")]
    Runtime {
        /// Name of the tensor.
        name: String,
        /// The runtime's error.
        error: ort::Error,
    },
    /// A tensor has no form in JSON, which the other server needs.
    #[error("{}", describe(.0))]
    Json(WriteError),
}

/// Why an output of ONNX Runtime is no tensor.
#[derive(Debug, thiserror::Error)]
pub enum OnnxOutputError {
    /// It is of another kind.
    #[error("output {name}: it is a {found}")]
    NotATensor {
        /// Name of the output.
        name: String,
        /// The runtime's name of its kind.
        found: String,
    },
    /// ONNX Runtime does not hand out its elements.
    #[error("output {name}: {error}")]
    Runtime {
        /// Name of the output.
        name: String,
        /// The runtime's error.
        error: ort::Error,
    },
}

/// Why an input or output of a model file cannot be that of a variant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OutletError {
    /// It is of another kind.
    #[error("{name}: it is a {found}, only tensors can be passed on")]
    NotATensor {
        /// Its name.
        name: String,
        /// The runtime's name of its kind.
        found: String,
    },
    /// No datatype has its elements.
    #[error("{name}: its elements are {found}, which no message can carry")]
    Elements {
        /// Its name.
        name: String,
        /// The runtime's name of its elements.
        found: String,
    },
    /// The one with this name has no dimension.
    #[error("{0}: it is a scalar, its first dimension must be the batch")]
    Scalar(String),
}

/// Why a model file does not follow the convention.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// An input is no tensor of rows.
    #[error("input {0}")]
    Input(OutletError),
    /// An output is no tensor of rows.
    #[error("output {0}")]
    Output(OutletError),
    /// A row of an input or output is too large for a message.
    #[error("{name}: a row of its shape {shape:?} has more than {MESSAGE_BYTES_MAX} bytes, which no message carries")]
    LargeRow {
        /// Name of the input or output.
        name: String,
        /// Its shape.
        shape: Vec<i64>,
    },
    /// It has no input, or no output.
    #[error("a variant has at least one input and one output")]
    Empty,
    /// It takes batches of one size only.
    #[error(
        "input {name}: its first axis is always {rows}, and must be the rows of a batch, any number of them; `apportion init` \
         with this file says how to cure it"
    )]
    FixedRows {
        /// Name of the input.
        name: String,
        /// Its first dimension.
        rows: i64,
    },
}

/// Why ONNX Runtime's profile of the first batch is not known.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeProfileError {
    /// The runtime does not end its profiling.
    #[error("{0}")]
    Runtime(ort::Error),
    /// The file that it names cannot be read.
    #[error("{file}: {error}")]
    File {
        /// The file.
        file: String,
        /// The system's error.
        error: std::io::Error,
    },
    /// The file has another form.
    #[error("the runtime's profile: {0}")]
    Json(serde_json::Error),
}

/// This text is the name of no [`Provider`](super::Provider).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?}: expected cpu or cuda")]
pub struct UnknownProvider(pub String);
