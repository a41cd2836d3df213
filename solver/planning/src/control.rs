//! When to stop: the caller's clock and flag.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Limit and cancellation of one run. Planning reads no clock of its own.
#[derive(Clone)]
pub struct Control {
    /// Monotonic time since the run started.
    pub elapsed: Arc<dyn Fn() -> Duration + Send + Sync>,
    /// Set by the caller to stop the run.
    pub cancel: Arc<AtomicBool>,
    /// Limit of `elapsed`.
    pub limit: Option<Duration>,
}

impl Control {
    /// Time left; `None` without a limit.
    #[must_use]
    pub fn left(&self) -> Option<Duration> {
        self.limit.map(|limit| limit.saturating_sub((self.elapsed)()))
    }

    /// Whether the caller wants an end.
    #[must_use]
    pub fn cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }

    /// Whether the run must stop, for either reason.
    #[must_use]
    pub fn must_stop(&self) -> bool {
        self.cancelled() || self.left() == Some(Duration::ZERO)
    }
}
