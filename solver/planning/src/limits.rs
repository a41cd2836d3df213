//! When to stop: the caller's clock and cancel flag.

use apportion_domain::StopReason;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Limits of one run. The clock is the caller's: planning reads none.
#[derive(Clone)]
pub(crate) struct Limits {
    pub elapsed: Arc<dyn Fn() -> Duration + Send + Sync>,
    pub cancel: Arc<AtomicBool>,
    /// Stop when `elapsed` says this or more.
    pub until: Option<Duration>,
}

impl Limits {
    /// Whether it is time to stop.
    pub fn stopped(&self) -> bool {
        self.reason().is_some()
    }

    /// Why to stop, if so.
    pub fn reason(&self) -> Option<StopReason> {
        if self.cancel.load(Ordering::Relaxed) {
            return Some(StopReason::Cancelled);
        }
        self.until.is_some_and(|until| (self.elapsed)() >= until).then_some(StopReason::TimeLimit)
    }

    /// Time left; `None` is unlimited.
    pub fn left(&self) -> Option<Duration> {
        self.until.map(|until| until.saturating_sub((self.elapsed)()))
    }

    /// The same, but at most `share` of the time that is left.
    pub fn part(&self, share: f64) -> Limits {
        let until = self.left().map(|left| (self.elapsed)() + left.mul_f64(share));
        Limits { until, ..self.clone() }
    }
}
