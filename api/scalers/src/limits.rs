//! How much may an autoscaler ask, and how long is an answer good?

use std::time::Duration;

/// Most connections at a time. Further ones wait to be accepted.
pub const CONNECTIONS_MAX: usize = 256;
/// Time for the first byte of a connection, and for its TLS handshake.
pub const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// Most calls at a time on one connection. KEDA holds one connection for all of its objects.
pub const CALLS_MAX: u32 = 256;
/// Most push streams at a time, on all connections.
pub const STREAMS_MAX: usize = 1_024;
/// Most bytes of a message.
pub const MESSAGE_BYTES_MAX: usize = 16 << 10;
/// Most bytes of the headers of a request.
pub const HEADER_BYTES_MAX: u32 = 16 << 10;
/// Most keys of a trigger.
pub const METADATA_KEYS_MAX: usize = 16;
/// Longest key or value of a trigger in bytes.
pub const METADATA_BYTES_MAX: usize = 256;
/// Longest query of a URL in bytes.
pub const URL_QUERY_BYTES_MAX: usize = 4 << 10;
/// Most requirements of a label selector.
pub const REQUIREMENTS_MAX: usize = 32;
/// Most names that a message lists.
pub const NAMES_LISTED_MAX: usize = 20;
/// A board that was not renewed for this long answers nothing: the database may know newer advice.
pub const BOARD_AGE_MAX: Duration = Duration::from_secs(30);
/// Pause between two pings on a silent connection, and the time for their answer.
pub const PING_EVERY: Duration = Duration::from_secs(30);
