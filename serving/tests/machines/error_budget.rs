//! The error budget against the obvious way to count, and its alerts.

use apportion_domain::{Moment, TimeSpan};
use apportion_serving::error_budget::{
    AttainmentPromise, BudgetAlert, BurnRates, ErrorBudget, FAST_ALERT, MISSED_SHARE_MIN, OutcomeCount, SLOW_ALERT,
};
use proptest::prelude::*;

const PART_S: u64 = 10;
const WINDOW_PARTS: u64 = 360;

fn promise() -> AttainmentPromise {
    AttainmentPromise { missed_share_max: 0.01, window: TimeSpan::from_millis(3.6e6) }
}

fn hour() -> ErrorBudget {
    ErrorBudget::new(promise())
}

fn at_s(second: u64) -> Moment {
    Moment::from_nanos(second * 1_000_000_000)
}

#[test]
fn a_percentile_is_a_promise() {
    let of = |percentile: f64| promise().with_percentile(percentile).missed_share_max;
    assert_eq!([99.0, 95.0, 50.0].map(of), [0.01, 0.05, 0.5]);
    assert_eq!([100.0, 0.0].map(of), [MISSED_SHARE_MIN, 1.0 - MISSED_SHARE_MIN], "neither all nor none");
}

fn ended(in_time: u64, missed: u64) -> OutcomeCount {
    OutcomeCount { in_time, missed }
}

/// One report of a script.
#[derive(Clone, Copy, Debug)]
struct Report {
    second: u64,
    count: OutcomeCount,
}

/// The reports of the last `parts` parts of ten seconds, the present part included.
fn counted(reports: &[Report], now_s: u64, parts: u64) -> OutcomeCount {
    let is_in = |r: &&Report| r.second / PART_S + parts > now_s / PART_S;
    reports.iter().filter(is_in).fold(OutcomeCount::default(), |sum, r| sum.with(r.count))
}

fn burnt(count: OutcomeCount) -> f64 {
    if count.total() == 0 { 0.0 } else { count.missed as f64 / (0.01 * count.total() as f64) }
}

proptest! {
    #[test]
    fn a_budget_is_what_a_list_of_reports_says(
        script in prop::collection::vec((0_u64..5_000, 0_u64..200, 0_u64..20), 1..60),
    ) {
        let (mut budget, mut reports, mut second) = (hour(), Vec::new(), 0);
        for (pause, in_time, missed) in script {
            // most pauses are short, some are longer than the window
            second += if pause < 4_000 { pause / 40 } else { pause };
            let count = ended(in_time, missed);
            reports.push(Report { second, count });
            budget.count(at_s(second), count);
            prop_assert_eq!(budget.counted(), counted(&reports, second, WINDOW_PARTS));
            let BurnRates { fast, slow } = budget.burn_rates();
            prop_assert!((fast - burnt(counted(&reports, second, WINDOW_PARTS / 60))).abs() < 1e-9);
            prop_assert!((slow - burnt(counted(&reports, second, WINDOW_PARTS / 6))).abs() < 1e-9);
            prop_assert!((budget.left_ratio() - 1.0 + burnt(budget.counted())).abs() < 1e-9);
        }
    }
}

#[test]
fn the_documented_example_comes_out() {
    let mut budget = hour();
    for second in 0..3_600 {
        let missed = u64::from(second % 4 == 0);
        budget.count(at_s(second), ended(50 - missed, missed));
    }
    assert_eq!(budget.counted(), ended(179_100, 900));
    assert!((budget.left_ratio() - 0.5).abs() < 1e-12);
    // A minute of 3,000 requests with 300 misses, after an hour of which nothing counts.
    budget.count(at_s(7_200), ended(2_700, 300));
    assert!((budget.burn_rates().fast - 10.0).abs() < 1e-12);
}

#[test]
fn the_most_urgent_alert_counts() {
    // An hour without misses permits 1,800; then a burst misses.
    let after = |missed: u64, seconds_later: u64| {
        let mut budget = hour();
        (0..3_600).for_each(|second| budget.count(at_s(second), ended(50, 0)));
        budget.count(at_s(3_600), ended(0, missed));
        (3_601..=3_600 + seconds_later).for_each(|second| budget.count(at_s(second), ended(50, 0)));
        budget.alert()
    };
    assert_eq!(after(0, 0), BudgetAlert::None);
    // A fifth of the budget within a minute; ten minutes of 30,000 requests permit 300.
    assert_eq!(after(500, 0), BudgetAlert::FastBurn);
    assert_eq!(after(1_000, 120), BudgetAlert::SlowBurn);
    assert_eq!(after(500, 120), BudgetAlert::None);
    assert_eq!(after(1_900, 120), BudgetAlert::Spent);
    assert!(BudgetAlert::Spent > BudgetAlert::FastBurn && FAST_ALERT > SLOW_ALERT);
}
