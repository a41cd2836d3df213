//! How much does the server of HTTP take at a time?

use std::time::Duration;

/// Threads that answer requests; handlers wait for the database most of the time.
pub(super) const WORKERS: usize = 2;
/// Most open connections. Further ones wait to be accepted.
pub const CONNECTIONS_MAX: usize = 1_024;
/// Longest time for the head of a request, and before that for the beginning of TLS.
pub(super) const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How long requests may run after the service begins to stop, in seconds.
pub(super) const SHUTDOWN_S: u64 = 2;
