//! How large may a URL, a secret and an answer be?

use std::time::Duration;

/// Longest URL in bytes.
pub const URL_BYTES_MAX: usize = 2_048;
/// Fewest bytes of a secret (Standard Webhooks).
pub const SECRET_BYTES_MIN: usize = 24;
/// Most bytes of a secret (Standard Webhooks).
pub const SECRET_BYTES_MAX: usize = 64;
/// Longest time for resolving the name, connecting, sending, and the head of the answer, together.
pub const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);
/// Most bytes of the head of an answer. The body is not read.
pub const HEAD_BYTES_MAX: usize = 16 << 10;
/// Longest `Retry-After` that is read. A date has 29 characters.
pub const RETRY_AFTER_BYTES_MAX: usize = 64;
/// Longest text of a failure, in characters.
pub const CAUSES_CHARS_MAX: usize = 300;
