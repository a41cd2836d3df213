//! When does a run stop, and how does its caller learn its progress?

use crate::work::WorkBudget;
use apportion_domain::StopReason;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
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

/// How long work on a solution that was already found may go on after a stop.
pub const FINISH_TIME_AFTER_STOP: Duration = Duration::from_secs(2);
/// How long a search for any plan may take after all deadlines have passed without one.
const RESCUE_TIME: Duration = Duration::from_secs(1);

/// Lets a caller end the search of one run, and keep the best that it has found.
#[derive(Debug, Default)]
pub struct StopSignal {
    asked: AtomicBool,
    /// When the run saw it first, by the run's clock.
    seen_at: OnceLock<Duration>,
}

impl StopSignal {
    /// Asks the run to end its search. A second time changes nothing.
    pub fn ask(&self) {
        self.asked.store(true, Ordering::Relaxed);
    }

    /// Whether the run was asked to end its search.
    pub fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// When the run first saw that it was asked; `None` if it was not asked.
    fn seen_at(&self, elapsed: &dyn Fn() -> Duration) -> Option<Duration> {
        self.is_asked().then(|| *self.seen_at.get_or_init(elapsed))
    }
}

/// Limits of one run. The caller passes the clock: this crate reads none.
#[derive(Clone)]
pub struct RunLimits {
    /// Monotonic time since the run started.
    pub elapsed: Arc<dyn Fn() -> Duration + Send + Sync>,
    /// The caller sets it to end the run without a result.
    pub cancel: Arc<AtomicBool>,
    /// The caller ends the search by it, and keeps the best solution so far.
    pub stop: Arc<StopSignal>,
    /// How long the work goes on after a stop; `None`: to its end.
    pub time_after_stop: Option<Duration>,
    /// The same for work on a solution that was already found.
    pub finish_time_after_stop: Duration,
    /// The run stops when `elapsed` reaches this; `None` is unlimited.
    pub deadline: Option<Duration>,
    /// A later deadline for work on a solution that was already found, such as its flows or its replay.
    pub finish_deadline: Option<Duration>,
    /// The run stops when this counted work is done; `None` is unlimited. No clock decides where that is.
    pub work: Option<Arc<WorkBudget>>,
    /// Receives the progress of the search.
    pub listener: Option<Listener>,
}

impl RunLimits {
    /// A clock without limits.
    pub fn new(elapsed: Arc<dyn Fn() -> Duration + Send + Sync>) -> Self {
        Self {
            elapsed,
            cancel: Arc::default(),
            stop: Arc::default(),
            time_after_stop: Some(Duration::ZERO),
            finish_time_after_stop: FINISH_TIME_AFTER_STOP,
            deadline: None,
            finish_deadline: None,
            work: None,
            listener: None,
        }
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
        let time_after_stop = Some(self.finish_time_after_stop);
        Self { deadline: self.finish_deadline, time_after_stop, work: None, ..self.clone() }
    }

    /// Limits for the last step of a plan that was found. The step takes little time, and without it the plan would be
    /// lost. So only a cancellation ends it.
    #[must_use]
    pub fn for_last_step(&self) -> Self {
        Self { deadline: None, finish_deadline: None, time_after_stop: None, work: None, ..self.clone() }
    }

    /// Limits for a quick search for any plan, where a search has ended without one: finishing may go on for one second
    /// from here. A step of that search may have taken so long that the deadline for finishing has passed too.
    #[must_use]
    pub fn for_rescue(&self) -> Self {
        let until = (self.elapsed)() + RESCUE_TIME;
        let finish_deadline = self.finish_deadline.map(|deadline| deadline.max(until));
        let after_stop = self.stop.seen_at(&*self.elapsed).map_or(Duration::ZERO, |seen_at| until.saturating_sub(seen_at));
        let finish_time_after_stop = self.finish_time_after_stop.max(after_stop);
        Self { finish_deadline, finish_time_after_stop, ..self.clone() }
    }

    /// These limits without the later deadline, for a search that only improves a plan.
    #[must_use]
    pub fn without_finishing(&self) -> Self {
        Self { finish_deadline: self.deadline, finish_time_after_stop: Duration::ZERO, ..self.clone() }
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

    /// These limits with at most so many units of counted work, as a part of the work that they allow.
    #[must_use]
    pub fn with_work(&self, units_max: u64) -> Self {
        Self { work: Some(Arc::new(WorkBudget::new(units_max, self.work.clone()))), ..self.clone() }
    }

    /// The same for a search without a plan: the first solution that it reports takes the new limit away.
    #[must_use]
    pub fn with_work_until_found(&self, units_max: u64) -> Self {
        let work = Arc::new(WorkBudget::new(units_max, self.work.clone()));
        let (lifted, outer) = (work.clone(), self.listener.clone());
        let listener: Listener = Arc::new(move |incumbent: Incumbent| {
            if incumbent.value.is_some() {
                lifted.lift();
            }
            if let Some(outer) = &outer {
                outer(incumbent);
            }
        });
        Self { work: Some(work), listener: Some(listener), ..self.clone() }
    }

    /// Counts work that was done.
    pub fn count_work(&self, units: u64) {
        if let Some(work) = &self.work {
            work.count(units);
        }
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

    /// How the caller has ended the run: cancelled or stopped; `None` if it has not.
    pub fn ended_by_caller(&self) -> Option<StopReason> {
        match (self.is_cancelled(), self.stop.is_asked()) {
            (true, _) => Some(StopReason::Cancelled),
            (false, true) => Some(StopReason::Stopped),
            (false, false) => None,
        }
    }

    /// Why the run must stop; `None` if it may go on.
    pub fn stop_reason(&self) -> Option<StopReason> {
        if self.is_cancelled() {
            return Some(StopReason::Cancelled);
        }
        if let Some(after_stop) = self.time_after_stop
            && let Some(seen_at) = self.stop.seen_at(&*self.elapsed)
            && (self.elapsed)() >= seen_at + after_stop
        {
            return Some(StopReason::Stopped);
        }
        if self.deadline.is_some_and(|deadline| (self.elapsed)() >= deadline) {
            return Some(StopReason::TimeLimit);
        }
        // a search that ends after its work has ended by itself
        self.work.as_ref().is_some_and(|work| work.is_spent()).then_some(StopReason::Finished)
    }

    /// Why work ended that these limits have ended: cancelled, stopped, or else the time limit.
    pub fn stop_reason_or_time_limit(&self) -> StopReason {
        self.stop_reason().unwrap_or(StopReason::TimeLimit)
    }

    /// Time before the deadline; `None` is unlimited.
    pub fn time_left(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.saturating_sub((self.elapsed)()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    /// Limits of an hour with a clock that the test sets, in milliseconds.
    fn hour() -> (RunLimits, Arc<AtomicU64>) {
        let now_ms = Arc::new(AtomicU64::new(0));
        let clock = now_ms.clone();
        let limits = RunLimits::new(Arc::new(move || Duration::from_millis(clock.load(Ordering::Relaxed))));
        (limits.ending_at(Duration::from_secs(3_600)), now_ms)
    }

    #[test]
    fn a_stop_ends_the_search_at_once_and_the_finish_soon_after() {
        let (limits, now_ms) = hour();
        let (finishing, last) = (limits.for_finishing(), limits.for_last_step());
        let reasons = || [&limits, &finishing, &last].map(RunLimits::stop_reason);
        now_ms.store(5_000, Ordering::Relaxed);
        assert_eq!((reasons(), limits.ended_by_caller()), ([None; 3], None));
        limits.stop.ask();
        assert_eq!(reasons(), [Some(StopReason::Stopped), None, None]);
        assert_eq!(limits.for_search().stop_reason(), Some(StopReason::Stopped));
        assert_eq!(limits.ended_by_caller(), Some(StopReason::Stopped));
        now_ms.store(4_999 + FINISH_TIME_AFTER_STOP.as_millis() as u64, Ordering::Relaxed);
        limits.stop.ask();
        assert_eq!(reasons(), [Some(StopReason::Stopped), None, None], "the first time counts");
        now_ms.fetch_add(1, Ordering::Relaxed);
        assert_eq!(reasons(), [Some(StopReason::Stopped), Some(StopReason::Stopped), None]);
        limits.cancel.store(true, Ordering::Relaxed);
        assert_eq!(reasons(), [Some(StopReason::Cancelled); 3]);
        assert_eq!(limits.ended_by_caller(), Some(StopReason::Cancelled));
    }

    #[test]
    fn a_rescue_may_finish_for_a_second_from_its_start_but_not_after_a_cancellation() {
        for is_stopped in [false, true] {
            let (limits, now_ms) = hour();
            if is_stopped {
                limits.stop.ask();
                limits.stop_reason();
            }
            now_ms.store(4_000_000, Ordering::Relaxed);
            let ended = Some(if is_stopped { StopReason::Stopped } else { StopReason::TimeLimit });
            assert_eq!([limits.stop_reason(), limits.for_finishing().stop_reason()], [ended; 2]);
            let rescue = limits.for_rescue();
            let after_ms = |ms: u64| {
                now_ms.store(4_000_000 + ms, Ordering::Relaxed);
                [rescue.stop_reason(), rescue.for_finishing().stop_reason()]
            };
            assert_eq!(after_ms(999), [ended, None]);
            // the deadline is looked at after a stop
            assert_eq!(after_ms(1_000).map(|why| why.is_some()), [true; 2]);
            limits.cancel.store(true, Ordering::Relaxed);
            assert_eq!(after_ms(0), [Some(StopReason::Cancelled); 2]);
        }
    }

    #[test]
    fn counted_work_ends_the_search_but_not_the_finish() {
        let limits = RunLimits::new(Arc::new(Duration::default)).with_work(100);
        let part = limits.with_work(30);
        part.count_work(30);
        assert_eq!((part.stop_reason(), limits.stop_reason()), (Some(StopReason::Finished), None));
        limits.with_work(500).count_work(70);
        assert_eq!(limits.stop_reason(), Some(StopReason::Finished));
        assert_eq!([limits.for_finishing(), limits.for_last_step()].map(|of| of.stop_reason()), [None; 2]);
    }

    #[test]
    fn a_reported_solution_takes_the_limit_of_work_away() {
        let limits = RunLimits::new(Arc::new(Duration::default)).with_work_until_found(10);
        limits.count_work(10);
        limits.report_progress("cost", f64::INFINITY, 1.0);
        limits.without_listener().report_progress("cost", 2.0, 1.0);
        assert_eq!(limits.stop_reason(), Some(StopReason::Finished));
        limits.report_progress("cost", 2.0, 1.0);
        assert_eq!(limits.stop_reason(), None);
    }

    #[test]
    fn a_search_that_only_improves_a_plan_finishes_nothing_after_a_stop() {
        let (limits, _) = hour();
        limits.stop.ask();
        assert_eq!(limits.without_finishing().for_finishing().stop_reason(), Some(StopReason::Stopped));
        assert_eq!(limits.for_finishing().stop_reason(), None);
    }
}
