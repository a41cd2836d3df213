//! Why can JSON not be read as a tensor's elements, or the elements not be written as JSON?

/// Why a JSON value is not read as the elements of a tensor.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The value is another thing than an array.
    #[error("{found}: expected an array whose elements are each {expected}")]
    NotAnArray {
        /// The beginning of the value.
        found: String,
        /// The kind of each element, in words.
        expected: &'static str,
    },
    /// The JSON is malformed, an element is of another kind, or there are too many.
    #[error(transparent)]
    Elements(#[from] serde_json::Error),
    /// The datatype with this name has no form in JSON.
    #[error("{0} has no form in JSON: expected binary data (binary_data_size)")]
    NoForm(&'static str),
}

/// Why the elements of a tensor are not written as JSON.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// A text of the output with this name is not UTF-8.
    #[error("output {0} is not UTF-8: ask for it as binary data")]
    NotUtf8(String),
    /// The datatype has no form in JSON.
    #[error("output {name} is {datatype}, which has no form in JSON: ask for it as binary data")]
    NoForm {
        /// Name of the output.
        name: String,
        /// Name of its datatype.
        datatype: &'static str,
    },
    /// The writer of JSON failed.
    #[error("output {name}")]
    Json {
        /// Name of the output.
        name: String,
        /// The writer's error.
        source: serde_json::Error,
    },
}
