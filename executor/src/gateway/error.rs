//! Why is a client's request wrong, or its answer not to be had? One enum for each part of a request.
//!
//! A message names the part that is wrong. Its sources say why; [`GatewayRefusal`](super::refusal::GatewayRefusal) joins
//! them all in one line.

use crate::open_inference::error::ReadError;
use apportion_node::tensor::{DataError, TensorSignature};

/// Why a parameter is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParameterError {
    /// Its value is of the wrong kind, or out of bounds.
    #[error("parameter {name} is {found}: expected {expected}")]
    Value {
        /// Its name.
        name: String,
        /// Its value.
        found: String,
        /// The right values, in words.
        expected: &'static str,
    },
    /// It asks for a feature that this server lacks.
    #[error("parameter {0} is not supported here: expected the tensor itself, as data or as bytes")]
    Unsupported(String),
    /// A gRPC message names it without a value.
    #[error("parameter {0} has no value")]
    Empty(String),
}

/// Why the elements of an input are refused.
#[derive(Debug, thiserror::Error)]
pub enum ElementsError {
    /// They are not readable as JSON of their datatype.
    #[error(transparent)]
    Json(#[from] ReadError),
    /// They do not fill the shape.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The JSON has another number of them than the shape.
    #[error("it has {found} elements: expected {expected}")]
    Count {
        /// Elements of the JSON.
        found: usize,
        /// Elements of the shape.
        expected: usize,
    },
    /// A BOOL has another value.
    #[error("a BOOL is a byte 0 or 1")]
    NotBool,
    /// The text at this position is malformed.
    #[error("element {0} is no text: expected UTF-8 without a zero")]
    NotText(usize),
    /// Elements of the datatype with this name have no typed field.
    #[error("{0}: expected raw_input_contents")]
    RawOnly(&'static str),
    /// They are in the field of another datatype.
    #[error("{found} hold something: expected {expected} for {datatype}")]
    Field {
        /// The field that holds elements.
        found: &'static str,
        /// The field of the datatype.
        expected: &'static str,
        /// Name of the datatype.
        datatype: &'static str,
    },
    /// The typed field has another number of them than the shape.
    #[error("{field} has {found} elements: expected {expected}")]
    FieldCount {
        /// The field.
        field: &'static str,
        /// Elements of the field.
        found: usize,
        /// Elements of the shape.
        expected: usize,
    },
    /// A number is out of the datatype's range.
    #[error("{number} does not fit {datatype}")]
    Range {
        /// The number.
        number: String,
        /// Name of the datatype.
        datatype: &'static str,
    },
    /// A text has 2^32 bytes or more.
    #[error("an element is longer than its length can say")]
    LongText,
}

/// Why the inputs of a request do not fit its pipeline.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// The pipeline has no input of this name.
    #[error("input {name}: there is no such input: expected {}", .known.join(", "))]
    Unknown {
        /// Name of the input.
        name: String,
        /// Names of the pipeline's inputs.
        known: Vec<String>,
    },
    /// Two inputs have this name.
    #[error("input {0} is given twice")]
    Twice(String),
    /// The request lacks this input.
    #[error("input {} is missing: expected {} of shape {:?}", .0.name, .0.datatype.name(), .0.shape)]
    Missing(TensorSignature),
    /// It has another datatype.
    #[error("input {name} is {found}: expected {} of shape {:?}", .expected.datatype.name(), .expected.shape)]
    Datatype {
        /// Name of the input.
        name: String,
        /// The request's name of the datatype.
        found: String,
        /// The pipeline's input.
        expected: TensorSignature,
    },
    /// It has another shape.
    #[error("input {name} has shape {found:?}: expected {} of shape {:?}", .expected.datatype.name(), .expected.shape)]
    Shape {
        /// Name of the input.
        name: String,
        /// The request's shape.
        found: Vec<i64>,
        /// The pipeline's input.
        expected: TensorSignature,
    },
    /// The size of its shape overflows.
    #[error("input {name} has shape {shape:?}: this is too large")]
    Overflow {
        /// Name of the input.
        name: String,
        /// The request's shape.
        shape: Vec<i64>,
    },
    /// Its shape is larger than a body.
    #[error("input {name} has shape {shape:?}: expected at most {bytes_max} bytes of {datatype}")]
    Bytes {
        /// Name of the input.
        name: String,
        /// The request's shape.
        shape: Vec<i64>,
        /// Most bytes of an input.
        bytes_max: usize,
        /// Name of the datatype.
        datatype: &'static str,
    },
    /// Its elements are wrong.
    #[error("input {name}: data")]
    Data {
        /// Name of the input.
        name: String,
        /// Why.
        source: ElementsError,
    },
    /// Two inputs differ in their rows.
    #[error("input {name} has {found} rows: expected {expected} as the first input")]
    Rows {
        /// Name of the input.
        name: String,
        /// Its rows.
        found: usize,
        /// Rows of the first input.
        expected: usize,
    },
    /// There is no row.
    #[error("the request has no rows: expected at least one")]
    NoRows,
    /// There are too many rows.
    #[error("the request has {found} rows: expected at most {rows_max}")]
    ManyRows {
        /// Rows of the request.
        found: usize,
        /// Most rows.
        rows_max: usize,
    },
}

/// Why the outputs that a request asks for are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestedOutputError {
    /// The pipeline has no output of this name.
    #[error("output {name}: there is no such output: expected {}", .known.join(", "))]
    Unknown {
        /// Name of the output.
        name: String,
        /// Names of the pipeline's outputs.
        known: Vec<String>,
    },
    /// The request names this output twice.
    #[error("output {0} is asked for twice")]
    Twice(String),
    /// It must come as JSON, which its datatype does not allow.
    #[error("output {name} is {datatype}, which has no form in JSON: expected binary_data true")]
    NoForm {
        /// Name of the output.
        name: String,
        /// Name of its datatype.
        datatype: &'static str,
    },
    /// One of its parameters is refused.
    #[error("output {name}")]
    Parameter {
        /// Name of the output.
        name: String,
        /// Why.
        source: ParameterError,
    },
}

/// Why an answer has no outputs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PiecesError {
    /// Rows of one output cannot be joined.
    #[error("task {task}: rows of its output {output} differ in shape")]
    Shapes {
        /// The sink.
        task: String,
        /// Its output.
        output: String,
    },
}

/// Why an input of an HTTP body has no elements.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// One of its parameters is refused.
    #[error(transparent)]
    Parameter(#[from] ParameterError),
    /// The body ends before them.
    #[error("binary_data_size is {size}: only {left} bytes of the body are left")]
    Short {
        /// Bytes of the input.
        size: usize,
        /// Bytes that follow the inputs before it.
        left: usize,
    },
    /// They follow the JSON, whose length is unknown without this header.
    #[error("binary_data_size needs the header {0}")]
    NoHeader(&'static str),
    /// They come twice.
    #[error("both data and binary_data_size: expected one of them")]
    Both,
    /// They do not come.
    #[error("no data: expected data, or the parameter binary_data_size")]
    Neither,
}

/// Why an HTTP body is no request for inference.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// Its JSON has another form.
    #[error("the body is no inference request{place}")]
    Json {
        /// A colon and the JSON pointer to the wrong value; empty for the whole body.
        place: String,
        /// The parser's error.
        source: serde_json::Error,
    },
    /// The header with the length of the JSON is wrong.
    #[error("{header}: {found:?}: expected the length of the JSON, at most the body's {body_bytes} bytes")]
    Length {
        /// Name of the header.
        header: &'static str,
        /// Its value.
        found: String,
        /// Bytes of the body.
        body_bytes: usize,
    },
    /// Its id is too long.
    #[error("/id: {found} bytes: expected at most {bytes_max}")]
    Id {
        /// Bytes of the id.
        found: usize,
        /// Most bytes.
        bytes_max: usize,
    },
    /// A parameter of the request is refused.
    #[error(transparent)]
    Parameter(#[from] ParameterError),
    /// An input has no elements.
    #[error("input {name}")]
    Input {
        /// Name of the input.
        name: String,
        /// Why.
        source: SourceError,
    },
    /// So many bytes belong to no input.
    #[error("{0} bytes follow the last input's: expected none")]
    Rest(usize),
    /// An output is refused.
    #[error(transparent)]
    Output(#[from] RequestedOutputError),
}

/// Why a gRPC message is no request for inference.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// Its id is too long.
    #[error("id: {found} bytes: expected at most {bytes_max}")]
    Id {
        /// Bytes of the id.
        found: usize,
        /// Most bytes.
        bytes_max: usize,
    },
    /// A parameter of the request is refused.
    #[error(transparent)]
    Parameter(#[from] ParameterError),
    /// Raw tensors and inputs differ in number.
    #[error("raw_input_contents has {found} tensors: expected {inputs}, one for each input, or none")]
    RawCount {
        /// Raw tensors.
        found: usize,
        /// Inputs.
        inputs: usize,
    },
    /// A parameter of an input is refused.
    #[error("input {name}")]
    InputParameter {
        /// Name of the input.
        name: String,
        /// Why.
        source: ParameterError,
    },
    /// The input with this name has its elements twice.
    #[error("input {0}: both contents and raw_input_contents: expected one of them")]
    Both(String),
    /// An output is refused.
    #[error(transparent)]
    Output(#[from] RequestedOutputError),
}

/// Why a gRPC message is not decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScanError {
    /// It does not follow protobuf's wire format.
    #[error("the message is malformed: expected protobuf")]
    Malformed,
    /// Inputs, outputs and parameters take too much memory.
    #[error(
        "the request takes more than {bytes_max} bytes beside its tensors' elements: expected fewer inputs, outputs and \
         parameters"
    )]
    Envelope {
        /// Most bytes.
        bytes_max: usize,
    },
    /// Elements in typed fields take too much memory.
    #[error("contents: the elements take more than {bytes_max} bytes: expected fewer, or raw_input_contents")]
    Elements {
        /// Most bytes.
        bytes_max: usize,
    },
    /// It is larger than messages of its kind may be.
    #[error("the message has {found} bytes: expected at most {bytes_max}")]
    Large {
        /// Its bytes.
        found: usize,
        /// Most bytes.
        bytes_max: usize,
    },
}
