//! What do the gateway and the remote backend share of the Open Inference Protocol?

pub mod error;
pub mod numbers;

/// Largest body of a request or an answer in bytes.
pub const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;
