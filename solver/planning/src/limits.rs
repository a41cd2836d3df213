//! When to stop, and whom to tell on the way: the caller's clock, cancel flag and ear.

use apportion_domain::StopReason;
use apportion_estimator::Stop;
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

/// Part of the time left that a search gets where its plan is replayed afterwards.
const SEARCH_PART: f64 = 0.8;
/// Longest that the work on what a search has found may go on after the limit: flows, a replay. What was found is not lost to the
/// limit, and the limit is kept but for this.
pub(crate) const FINISH_TIME: Duration = Duration::from_millis(300);

/// Limits of one run. The clock is the caller's: planning reads none.
#[derive(Clone)]
pub(crate) struct Limits {
    pub elapsed: Arc<dyn Fn() -> Duration + Send + Sync>,
    pub cancel: Arc<AtomicBool>,
    /// Stop when `elapsed` says this or more.
    pub until: Option<Duration>,
    /// The same for work on what has been found already.
    pub finish: Option<Duration>,
    /// Hears how far the search is.
    pub listener: Option<Listener>,
}

impl Limits {
    /// A clock without limits.
    pub fn new(elapsed: Arc<dyn Fn() -> Duration + Send + Sync>) -> Self {
        Self { elapsed, cancel: Arc::default(), until: None, finish: None, listener: None }
    }

    /// These limits until another moment, with nothing after it.
    pub fn until(&self, until: Duration) -> Self {
        Self { until: Some(until), finish: Some(until), ..self.clone() }
    }

    /// For a search whose plan is replayed afterwards.
    pub fn for_search(&self) -> Self {
        self.part(SEARCH_PART)
    }

    /// For work on what a search has found.
    pub fn finishing(&self) -> Self {
        Self { until: self.finish, ..self.clone() }
    }

    /// The limits for a run of the estimator.
    pub fn stop(&self) -> Stop {
        let limits = self.quiet();
        Stop::when(move || limits.stopped())
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

    /// Whether it was told to stop.
    pub fn is_cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }

    /// Why to stop, if so.
    pub fn reason(&self) -> Option<StopReason> {
        if self.is_cancelled() {
            return Some(StopReason::Cancelled);
        }
        self.until.is_some_and(|until| (self.elapsed)() >= until).then_some(StopReason::TimeLimit)
    }

    /// Why it ended, of work that the limits have ended.
    pub fn why(&self) -> StopReason {
        self.reason().unwrap_or(StopReason::TimeLimit)
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
