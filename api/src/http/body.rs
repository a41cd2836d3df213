//! Reading bodies: bounds, and JSON with its errors as problem documents.

use super::refusal::Refusal;
use actix_web::http::StatusCode;
use actix_web::web::Bytes;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Largest JSON document: a problem, a spec, a profile.
pub const DOCUMENT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Largest trace: about ten million arrivals.
pub const TRACE_BYTES_MAX: usize = 128 * 1024 * 1024;
/// Largest model file.
pub const FILE_BYTES_MAX: u64 = 8 * 1024 * 1024 * 1024;
/// Longest name of anything.
pub const NAME_BYTES_MAX: usize = 128;

/// The body as a JSON tree.
///
/// # Errors
/// 400 if it is none.
pub fn tree(body: &Bytes) -> Result<Value, Refusal> {
    serde_json::from_slice(body)
        .map_err(|error| Refusal::new(StatusCode::BAD_REQUEST, format!("the body is no JSON: {error}")))
}

/// The tree as a value of ours.
///
/// # Errors
/// 422 if it has another form; the message names the key.
pub fn value<T: DeserializeOwned>(tree: Value) -> Result<T, Refusal> {
    serde_json::from_value(tree).map_err(|error| Refusal::value("", error.to_string()))
}

/// The body as text.
///
/// # Errors
/// 400 if it is no UTF-8.
pub fn text(body: &Bytes) -> Result<&str, Refusal> {
    std::str::from_utf8(body)
        .map_err(|error| Refusal::new(StatusCode::BAD_REQUEST, format!("the body is no UTF-8: {error}")))
}

/// A name from a path: not empty, not long, no control characters.
///
/// # Errors
/// 422 if it is none.
pub fn name(name: &str) -> Result<(), Refusal> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
        return Err(Refusal::value(
            "/name",
            format!("expected a name of 1 to {NAME_BYTES_MAX} bytes without control characters"),
        ));
    }
    Ok(())
}
