//! When does a run stop, and how does its caller learn its progress?

use apportion_domain::StopReason;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How far a search is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Incumbent {
    /// Name of the goal: `replicas`, `accuracy` or `cost`.
    pub goal: &'static str,
    /// The best value so far; `None` before the first solution.
    pub value: Option<f64>,
    /// No solution is better than this; `None` before the first bound.
    pub bound: Option<f64>,
}

/// Receives every better solution and every better bound. The thread that searches calls it.
pub type Listener = Arc<dyn Fn(Incumbent) + Send + Sync>;

/// Share of the remaining time for a search whose plan is replayed afterwards.
const SEARCH_SHARE: f64 = 0.8;

/// Limits of one run. The caller passes the clock: this crate reads none.
#[derive(Clone)]
pub struct RunLimits {
    /// Monotonic time since the run started.
    pub elapsed: Arc<dyn Fn() -> Duration + Send + Sync>,
    /// The caller sets it to stop the run.
    pub cancel: Arc<AtomicBool>,
    /// The run stops when `elapsed` reaches this; `None` is unlimited.
    pub deadline: Option<Duration>,
    /// A later deadline for work on a solution that was already found, such as its flows or its replay.
    pub finish_deadline: Option<Duration>,
    /// Receives the progress of the search.
    pub listener: Option<Listener>,
}

impl RunLimits {
    /// A clock without limits.
    pub fn new(elapsed: Arc<dyn Fn() -> Duration + Send + Sync>) -> Self {
        Self { elapsed, cancel: Arc::default(), deadline: None, finish_deadline: None, listener: None }
    }

    /// These limits with another deadline, which is also the deadline for finishing.
    #[must_use]
    pub fn ending_at(&self, deadline: Duration) -> Self {
        Self { deadline: Some(deadline), finish_deadline: Some(deadline), ..self.clone() }
    }

    /// Limits for a search whose plan is replayed afterwards.
    #[must_use]
    pub fn for_search(&self) -> Self {
        self.with_share_of_time(SEARCH_SHARE)
    }

    /// Limits for work on a solution that was already found.
    #[must_use]
    pub fn for_finishing(&self) -> Self {
        Self { deadline: self.finish_deadline, ..self.clone() }
    }

    /// Limits for the last step of a plan that was found. The step takes little time, and without it the plan would be lost.
    /// So only the caller stops it.
    #[must_use]
    pub fn for_last_step(&self) -> Self {
        Self { deadline: None, finish_deadline: None, ..self.clone() }
    }

    /// These limits without the later deadline, for a search that only improves a plan.
    #[must_use]
    pub fn without_finishing(&self) -> Self {
        Self { finish_deadline: self.deadline, ..self.clone() }
    }

    /// These limits without a listener, for questions beside the search.
    #[must_use]
    pub fn without_listener(&self) -> Self {
        Self { listener: None, ..self.clone() }
    }

    /// These limits with at most this share of the remaining time.
    #[must_use]
    pub fn with_share_of_time(&self, share: f64) -> Self {
        let deadline = self.time_left().map(|left| (self.elapsed)() + left.mul_f64(share));
        Self { deadline, ..self.clone() }
    }

    /// Reports a value and a bound to the listener, if there is one. Infinite numbers count as unknown.
    pub fn report_progress(&self, goal: &'static str, value: f64, bound: f64) {
        if let Some(listener) = &self.listener {
            let known = |x: f64| x.is_finite().then_some(x);
            listener(Incumbent { goal, value: known(value), bound: known(bound) });
        }
    }

    /// Whether the run must stop.
    pub fn exceeded(&self) -> bool {
        self.stop_reason().is_some()
    }

    /// Whether the caller has cancelled the run.
    pub fn is_cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }

    /// Why the run must stop; `None` if it may go on.
    pub fn stop_reason(&self) -> Option<StopReason> {
        if self.is_cancelled() {
            return Some(StopReason::Cancelled);
        }
        self.deadline.is_some_and(|deadline| (self.elapsed)() >= deadline).then_some(StopReason::TimeLimit)
    }

    /// Why work ended that these limits have ended: cancelled, or else the time limit.
    pub fn stop_reason_or_time_limit(&self) -> StopReason {
        self.stop_reason().unwrap_or(StopReason::TimeLimit)
    }

    /// Time before the deadline; `None` is unlimited.
    pub fn time_left(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.saturating_sub((self.elapsed)()))
    }
}
