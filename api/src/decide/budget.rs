//! What do missed requests say: how much of the promise is left, is it worth an alert, and must more capacity come?
//!
//! Example: 99 % of the requests shall be answered in time. Of 400 requests of the last 10 s, 40 miss; the promise permits
//! 4. The estimator may say that the plan in force holds, but these requests say that it does not. So a round begins, its
//! demand is raised, and the budget's fast burn rate makes an event.
//!
//! The demand is raised by the factor of [`HeadroomController`], which online quantile tracking moves with each miss. The
//! factor is at least 1: the headroom of the replan settings is a floor that the user chose.

use apportion_domain::Moment;
use apportion_serving::scaling::error_budget::{AttainmentPromise, BudgetAlert, BurnRates, OutcomeCount};
use apportion_serving::scaling::headroom_controller::{HeadroomController, PROMISE};
use std::collections::VecDeque;
use std::fmt;

/// Seconds over which misses speak against a plan.
pub const RECENT_S: usize = 10;
/// With fewer misses in the window, a burn rate says nothing.
const ALERT_MISSES_MIN: u64 = 10;
/// An alert ends after so many seconds without its reason.
const ALERT_ENDS_AFTER_S: i64 = 60;

/// The promise of a pipeline with this percentile, in percent: its share of the requests over an hour.
#[must_use]
pub fn promise_of(percentile: Option<f64>) -> AttainmentPromise {
    percentile.map_or(PROMISE, |percentile| PROMISE.with_percentile(percentile))
}

/// The window of every promise, in whole seconds.
#[must_use]
pub fn window_s() -> i64 {
    (PROMISE.window.as_millis() / 1e3) as i64
}

/// More requests missed than the promise permits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MissedRequests {
    /// Requests that ended late, dropped or failed.
    pub missed: u64,
    /// Requests that ended.
    pub ended: u64,
    /// Requests that may miss.
    pub permitted: f64,
}

impl fmt::Display for MissedRequests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { missed, ended, permitted } = self;
        write!(f, "{missed} of {ended} requests of the last {RECENT_S} s missed, and {permitted:.1} may")
    }
}

/// A budget's alert has changed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AlertChange {
    /// The alert from now on.
    pub alert: BudgetAlert,
    /// The part of the budget that is left.
    pub left_ratio: f64,
    /// Both burn rates.
    pub burn_rates: BurnRates,
}

/// The name of an alert in events.
#[must_use]
pub const fn alert_name(alert: BudgetAlert) -> &'static str {
    match alert {
        BudgetAlert::None => "none",
        BudgetAlert::SlowBurn => "slow_burn",
        BudgetAlert::FastBurn => "fast_burn",
        BudgetAlert::Spent => "spent",
    }
}

/// The alert with this name; none for another text.
#[must_use]
pub fn alert_named(name: &str) -> BudgetAlert {
    let all = [BudgetAlert::SlowBurn, BudgetAlert::FastBurn, BudgetAlert::Spent];
    all.into_iter().find(|alert| alert_name(*alert) == name).unwrap_or_default()
}

/// The outcomes of one pipeline, second by second.
#[derive(Clone, Debug)]
pub struct PipelineBudget {
    controller: HeadroomController,
    /// The last [`RECENT_S`] seconds, the newest last.
    recent: VecDeque<OutcomeCount>,
    alert: BudgetAlert,
    /// The last second with the reason of the present alert.
    reason_at: i64,
}

impl PipelineBudget {
    /// A budget of which nothing is spent.
    #[must_use]
    pub fn new(promise: AttainmentPromise) -> Self {
        Self {
            controller: HeadroomController::new(promise),
            recent: VecDeque::new(),
            alert: BudgetAlert::None,
            reason_at: 0,
        }
    }

    /// Its promise.
    #[must_use]
    pub const fn promise(&self) -> AttainmentPromise {
        self.controller.budget().promise()
    }

    /// Takes the requests into account that ended in this unix second. Seconds come in their order.
    pub fn count(&mut self, second: i64, ended: OutcomeCount) {
        let at = Moment::from_nanos(second.max(0) as u64 * 1_000_000_000);
        self.controller.report(at, ended);
        self.recent.push_back(ended);
        if self.recent.len() > RECENT_S {
            self.recent.pop_front();
        }
        if self.reason_for_alert() >= self.alert {
            self.reason_at = second;
        }
    }

    /// The alert that the budget gives reason for.
    fn reason_for_alert(&self) -> BudgetAlert {
        let budget = self.controller.budget();
        if budget.counted().missed < ALERT_MISSES_MIN { BudgetAlert::None } else { budget.alert() }
    }

    /// The misses of the last seconds, if they are more than the promise permits and than chance explains. At small loads
    /// few seconds prove nothing; an alert about more of them does.
    #[must_use]
    pub fn missed(&self) -> Option<MissedRequests> {
        let recent = self.recent.iter().fold(OutcomeCount::default(), |sum, count| sum.with(*count));
        let permitted = self.promise().permitted(recent);
        let is_proof = self.promise().is_broken_by(recent);
        let is_alert = recent.missed as f64 > permitted && self.reason_for_alert() >= BudgetAlert::SlowBurn;
        (is_proof || is_alert).then(|| MissedRequests { missed: recent.missed, ended: recent.total(), permitted })
    }

    /// The factor on the planned demand, at least 1.
    #[must_use]
    pub fn demand_factor(&self) -> f64 {
        self.controller.demand_factor()
    }

    /// Goes on from the alert that the last leader announced.
    pub fn resume(&mut self, alert: BudgetAlert) {
        (self.alert, self.reason_at) = (alert, 0);
    }

    /// The alert, if it has changed since the last call. It rises at once, and ends after a minute without its reason.
    pub fn take_alert_change(&mut self, second: i64) -> Option<AlertChange> {
        let reason = self.reason_for_alert();
        let is_over = reason < self.alert && second - self.reason_at >= ALERT_ENDS_AFTER_S;
        if reason <= self.alert && !is_over {
            return None;
        }
        (self.alert, self.reason_at) = (reason, second);
        let budget = self.controller.budget();
        Some(AlertChange { alert: reason, left_ratio: budget.left_ratio(), burn_rates: budget.burn_rates() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use apportion_serving::scaling::error_budget::MISSED_SHARE_MIN;

    fn budget() -> PipelineBudget {
        PipelineBudget::new(promise_of(Some(99.0)))
    }

    fn of(in_time: u64, missed: u64) -> OutcomeCount {
        OutcomeCount { in_time, missed }
    }

    #[test]
    fn a_promise_is_the_percentile_over_an_hour() {
        assert!((promise_of(Some(95.0)).missed_share_max - 0.05).abs() < 1e-12);
        assert_eq!(promise_of(None), PROMISE);
        assert_eq!(promise_of(Some(100.0)).missed_share_max, MISSED_SHARE_MIN);
        assert_eq!(window_s(), 3_600);
    }

    #[test]
    fn misses_speak_when_chance_does_not_explain_them() {
        let mut few = budget();
        (0..10).for_each(|s| few.count(s, of(39, u64::from(s < 4))));
        assert_eq!(few.missed(), None, "four of 394 may be chance");
        let mut many = budget();
        (0..10).for_each(|s| many.count(s, of(36, 4)));
        let missed = many.missed().expect("a tenth is no chance");
        assert_eq!(missed.to_string(), "40 of 400 requests of the last 10 s missed, and 4.0 may");
        (10..20).for_each(|s| many.count(s, of(40, 0)));
        assert_eq!(many.missed(), None, "they are gone");
    }

    #[test]
    fn misses_raise_the_demand_and_their_end_lowers_it() {
        let mut budget = budget();
        (0..60).for_each(|s| budget.count(s, of(100, 0)));
        assert_eq!(budget.demand_factor(), 1.0, "never below the user's headroom");
        (60..70).for_each(|s| budget.count(s, of(40, 60)));
        let raised = budget.demand_factor();
        assert!(raised > 1.4, "{raised}");
        (70..1_000).for_each(|s| budget.count(s, of(100, 0)));
        assert!(budget.demand_factor() < raised, "{}", budget.demand_factor());
    }

    #[test]
    fn an_alert_rises_at_once_and_ends_after_a_minute() {
        let mut budget = budget();
        let mut changes = Vec::new();
        for second in 0..4_000 {
            let is_bad = (1_800..1_860).contains(&second);
            budget.count(second, if is_bad { of(80, 20) } else { of(100, 0) });
            changes.extend(budget.take_alert_change(second).map(|change| (second, change.alert)));
        }
        let alerts: Vec<BudgetAlert> = changes.iter().map(|(_, alert)| *alert).collect();
        assert!(alerts.contains(&BudgetAlert::FastBurn), "{changes:?}");
        assert_eq!(alerts.last(), Some(&BudgetAlert::None), "{changes:?}");
        assert!(changes[0].0 >= 1_800 && changes[0].0 < 1_860, "{changes:?}");
        assert!(changes.len() <= 6, "an alert does not flap: {changes:?}");
    }

    #[test]
    fn an_alert_proves_misses_of_a_small_load() {
        let mut budget = budget();
        let mut first = None;
        for second in 0..900 {
            budget.count(second, of(1, u64::from(second % 20 == 0)));
            first = first.or(budget.missed().map(|missed| (second, missed)));
        }
        let (second, missed) = first.expect("a twentieth misses");
        assert!(second > 60 && missed.missed <= 2, "{second}: {missed}");
    }

    #[test]
    fn a_new_leader_goes_on_from_the_last_alert() {
        for alert in [BudgetAlert::None, BudgetAlert::SlowBurn, BudgetAlert::FastBurn, BudgetAlert::Spent] {
            assert_eq!(alert_named(alert_name(alert)), alert);
        }
        let mut budget = budget();
        (0..200).for_each(|s| budget.count(s, of(80, 20)));
        budget.resume(BudgetAlert::Spent);
        assert_eq!(budget.take_alert_change(200), None, "it was announced");
        let mut calm = PipelineBudget::new(promise_of(None));
        (0..200).for_each(|s| calm.count(s, of(100, 0)));
        calm.resume(BudgetAlert::FastBurn);
        assert_eq!(calm.take_alert_change(200).map(|change| change.alert), Some(BudgetAlert::None), "it has ended");
    }

    #[test]
    fn few_misses_are_no_alert() {
        let mut budget = budget();
        for second in 0..100 {
            budget.count(second, of(1, u64::from(second % 12 == 0)));
            assert_eq!(budget.take_alert_change(second), None);
        }
    }
}
