//! When to stop, and whom to tell on the way: the caller's clock, cancel flag and ear.

use apportion_domain::StopReason;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How far a search is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Incumbent {
    /// What is searched for: `replicas`, `accuracy` or `cost`.
    pub goal: &'static str,
    /// The best value so far, if any.
    pub value: Option<f64>,
    /// Nothing can be better; `None` as long as nothing is known.
    pub bound: Option<f64>,
}

/// Hears of every better plan and every better bound while a search runs, in the thread that searches.
pub type Listener = Arc<dyn Fn(Incumbent) + Send + Sync>;

/// Limits of one run. The clock is the caller's: planning reads none.
#[derive(Clone)]
pub(crate) struct Limits {
    pub elapsed: Arc<dyn Fn() -> Duration + Send + Sync>,
    pub cancel: Arc<AtomicBool>,
    /// Stop when `elapsed` says this or more.
    pub until: Option<Duration>,
    /// Hears how far the search is.
    pub listener: Option<Listener>,
}

impl Limits {
    /// A clock without limits.
    pub fn new(elapsed: Arc<dyn Fn() -> Duration + Send + Sync>) -> Self {
        Self { elapsed, cancel: Arc::default(), until: None, listener: None }
    }

    /// The same limits, for questions beside the search that nobody listens to.
    pub fn quiet(&self) -> Self {
        Self { listener: None, ..self.clone() }
    }

    /// Tells the listener, if there is one.
    pub fn tell(&self, goal: &'static str, value: f64, bound: f64) {
        if let Some(listener) = &self.listener {
            let known = |x: f64| x.is_finite().then_some(x);
            listener(Incumbent { goal, value: known(value), bound: known(bound) });
        }
    }

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
