//! PARD's states by hand: what is left to do, whose turn it is, what a task may take.

use apportion_domain::{Dropping, TimeSpan};
use apportion_serving::dropper::ADMIT_ALL;
use apportion_serving::modules::{LAMBDA, Module, StatePlannerSettings, TooManyPaths, WINDOW_PERIODS};
use apportion_serving::{Monitor, Priority, StatePlanner};
use proptest::prelude::*;

const MS: u64 = 1_000_000;

fn ms(millis: u64) -> TimeSpan {
    TimeSpan::from_nanos(millis * MS)
}

fn module(execution_ms: u64, throughput_qps: f64, after: &[usize]) -> Module {
    Module { execution: ms(execution_ms), throughput_qps, after: after.to_vec(), hop: TimeSpan::ZERO }
}

/// The modules with hops of 1 ms.
fn with_hops(modules: Vec<Module>) -> Vec<Module> {
    modules.into_iter().map(|module| Module { hop: ms(1), ..module }).collect()
}

/// Three tasks in a row: 10, 20 and 30 ms, 100 queries per second each; an SLO of 300 ms and hops of 1 ms.
fn chain(dropping: Dropping) -> StatePlanner {
    let modules = vec![module(10, 100.0, &[1]), module(20, 100.0, &[2]), module(30, 100.0, &[])];
    StatePlanner::new(dropping, ms(300), with_hops(modules)).expect("few paths")
}

/// A monitor with this many arrivals.
fn arrivals(arrived: u64) -> Monitor {
    let mut monitor = Monitor::default();
    monitor.arrived = arrived;
    monitor
}

/// A monitor with this many arrivals, each of which queued and then waited so long.
fn seen(arrived: u64, queued_ms: u64, waited_ms: u64) -> Monitor {
    let mut monitor = arrivals(arrived);
    (0..arrived).for_each(|_| {
        monitor.enter(ms(queued_ms));
        monitor.start(ms(waited_ms));
    });
    monitor
}

fn forward_ms(planner: &StatePlanner) -> Vec<u64> {
    (0..3).map(|m| planner.view(m).forward.as_nanos() / MS).collect()
}

#[test]
fn window_and_quantile_follow_the_settings() {
    let after = |foresight: StatePlannerSettings, periods: usize| {
        let mut planner = chain(Dropping::Pard).with_foresight(foresight);
        planner.observe(2, &mut seen(10, 6, 0));
        for _ in 0..periods {
            planner.synchronise();
        }
        forward_ms(&planner)[1]
    };
    let window = |window_periods| StatePlannerSettings { window_periods, ..StatePlannerSettings::default() };
    assert_eq!([after(window(1), 1), after(window(1), 2)], [31 + 6, 31]);
    assert_eq!([after(window(3), 3), after(window(3), 4)], [31 + 6, 31]);
    assert_eq!(after(StatePlannerSettings::default(), WINDOW_PERIODS), 31 + 6);
    assert_eq!(after(window(0), 1), 31 + 6, "a window is a period at least");
    let waits = |lambda| {
        let mut planner =
            chain(Dropping::Pard).with_foresight(StatePlannerSettings { lambda, ..StatePlannerSettings::default() });
        (0..100).for_each(|wait| planner.observe(2, &mut seen(1, 0, wait)));
        planner.synchronise();
        forward_ms(&planner)[1] - 31
    };
    assert!(waits(0.0) <= 1 && waits(1.0) >= 98, "{} {}", waits(0.0), waits(1.0));
    assert!((48..=52).contains(&waits(0.5)), "{}", waits(0.5));
}

#[test]
fn the_forward_time_depends_on_the_policy() {
    let after = |dropping| {
        let mut planner = chain(dropping);
        planner.observe(1, &mut seen(10, 5, 7));
        planner.observe(2, &mut seen(10, 6, 8));
        assert!(planner.synchronise(), "queries came");
        forward_ms(&planner)
    };
    assert_eq!(forward_ms(&chain(Dropping::Pard)), [52, 31, 0], "nothing is known before the first period has ended");
    assert_eq!(after(Dropping::Pard), [52 + 11 + 15, 31 + 6 + 8, 0]);
    assert_eq!(after(Dropping::PardLower), [52 + 11, 31 + 6, 0]);
    assert_eq!(after(Dropping::PardUpper), [52 + 11 + 50, 31 + 6 + 30, 0]);
    assert_eq!(after(Dropping::PardSf), [52, 31, 0]);
    assert_eq!(after(Dropping::PardBack), [0, 0, 0]);
}

#[test]
fn young_periods_weigh_more_in_the_mean_queueing_delay() {
    let mut planner = chain(Dropping::PardLower);
    planner.observe(2, &mut seen(10, 10, 0));
    planner.synchronise();
    planner.observe(2, &mut seen(20, 40, 0));
    planner.synchronise();
    // (5 * 20 * 40 + 4 * 10 * 10) / (5 * 20 + 4 * 10) = 31.4
    assert_eq!(forward_ms(&planner)[1], 31 + 31);
    (0..4).for_each(|_| assert!(planner.synchronise()));
    assert!(!planner.synchronise(), "the window is empty");
    assert_eq!(forward_ms(&planner)[1], 31);
}

#[test]
fn the_longest_path_of_a_graph_counts_with_its_waits() {
    // 0 leads to 1 (10 ms) and 2 (20 ms), which both lead to 3 (5 ms).
    let modules = vec![module(1, 1.0, &[1, 2]), module(10, 1.0, &[3]), module(20, 1.0, &[3]), module(5, 1.0, &[])];
    let mut planner = StatePlanner::new(Dropping::Pard, ms(100), modules).expect("two paths");
    assert_eq!(planner.view(0).forward, ms(25));
    planner.observe(1, &mut seen(4, 9, 4));
    planner.synchronise();
    assert_eq!(planner.view(0).forward, ms(10 + 9 + 4 + 5));
    // Eleven diamonds in a row have 2^11 paths.
    let mut modules = Vec::new();
    for at in (0..33).step_by(3) {
        modules.extend([module(1, 1.0, &[at + 1, at + 2]), module(1, 1.0, &[at + 3]), module(1, 1.0, &[at + 3])]);
    }
    modules.push(module(1, 1.0, &[]));
    assert_eq!(StatePlanner::new(Dropping::Pard, ms(1), modules).err(), Some(TooManyPaths));
}

/// Whether the query with the most time left comes first, after each period with so many arrivals.
fn play(dropping: Dropping, loads: &[u64]) -> Vec<bool> {
    let mut planner = chain(dropping);
    let turn = |&load: &u64| {
        planner.observe(0, &mut arrivals(load));
        planner.synchronise();
        planner.view(0).priority == Priority::HighBudgetFirst
    };
    loads.iter().map(turn).collect()
}

#[test]
fn priority_turns_outside_of_a_boundary_that_widens_with_bursts() {
    // A throughput of 100. After a steady overload, eps is 0 at first. 80 is far below (mean 110, eps 0.14). 92 is not
    // below until the window has nothing else (eps 0.09, 0.12, 0.13, 0.09, 0).
    assert_eq!(play(Dropping::Pard, &[120, 120, 120, 80]), [true, true, true, false]);
    let slowly = play(Dropping::Pard, &[120, 120, 120, 92, 92, 92, 92, 92]);
    assert_eq!(slowly, [true, true, true, true, true, true, true, false]);
    // 80, then 130: mean 105, eps 0.24, mu 1.3 > 1.24. 80, 110: eps 0.16, mu 1.1. After four of 80, 115: eps 0.13.
    assert_eq!(play(Dropping::Pard, &[80, 80, 80, 80, 115]), [false, false, false, false, true]);
    assert_eq!(play(Dropping::Pard, &[80, 130]), [false, true]);
    assert_eq!(play(Dropping::Pard, &[80, 110]), [false, false]);
    assert_eq!(play(Dropping::PardInstant, &[80, 110, 99, 100]), [false, true, false, false]);
    assert_eq!(play(Dropping::PardHbf, &[80]), [true]);
    assert_eq!(play(Dropping::PardLbf, &[180]), [false]);
}

#[test]
fn budgets_split_the_slo_along_the_longest_path() {
    let budgets = |planner: &StatePlanner| (0..3).map(|m| planner.view(m).budget.as_nanos() / MS).collect::<Vec<_>>();
    // 11, 21 and 31 of 63 parts of 300 ms, less the hop.
    assert_eq!(budgets(&chain(Dropping::ClipperPlusPlus)), [51, 99, 146]);
    assert_eq!(budgets(&chain(Dropping::PardSplit)), [51, 99, 146]);
    assert_eq!(budgets(&chain(Dropping::NexusSplit)), [51, 99, 146]);
    let mut planner = chain(Dropping::PardWcl);
    planner.observe(0, &mut seen(1, 30, 7));
    planner.synchronise();
    // 48, 21 and 31 of 100 parts.
    assert_eq!(budgets(&planner), [143, 62, 92]);
}

#[test]
fn a_long_queue_throttles_its_task_and_those_before_it() {
    let mut planner = chain(Dropping::PardOc);
    let admitted = |p: &StatePlanner| (0..3).map(|m| f64::from(p.view(m).admit) / f64::from(ADMIT_ALL)).collect::<Vec<_>>();
    assert_eq!(admitted(&planner), [1.0, 1.0, 1.0]);
    planner.observe(1, &mut seen(5, 21, 0));
    planner.observe(2, &mut seen(5, 20, 0));
    planner.synchronise();
    let expected = [0.95, 0.95, 1.0];
    assert!(admitted(&planner).iter().zip(expected).all(|(a, e)| (a - e).abs() < 1e-4), "{:?}", admitted(&planner));
    planner.synchronise();
    assert!((admitted(&planner)[0] - 0.9595).abs() < 1e-4);
}

/// How far the last of the loads in each period's window is above a throughput of 100, and the boundary, both in whole
/// numbers. A window of n periods has loads o of mean m; the throughput is T, and eps = sum |o - m| / sum o. The numbers
/// are mu - 1 and eps, times n * T * sum o.
fn beyond_and_band(loads: &[u64]) -> Vec<(i64, i64)> {
    let of = |until: usize| {
        let window: Vec<i64> = loads[until.saturating_sub(WINDOW_PERIODS)..until].iter().map(|&o| o as i64).collect();
        let (n, sum) = (window.len() as i64, window.iter().sum::<i64>());
        let deviation: i64 = window.iter().map(|o| (n * o - sum).abs()).sum();
        (n * sum * (window[window.len() - 1] - 100), 100 * deviation)
    };
    (1..=loads.len()).map(of).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_priority_follows_the_rule_in_whole_numbers(loads in prop::collection::vec(1_u64..200, 1..30)) {
        let rule = beyond_and_band(&loads);
        // Where a load lies on the boundary to the last bit, floats may take either side.
        prop_assume!(rule.iter().all(|(beyond, band)| beyond.abs() != *band));
        let mut is_high = false;
        let expected: Vec<bool> = rule.into_iter().map(|(beyond, band)| {
            is_high = beyond > band || (is_high && beyond > -band);
            is_high
        }).collect();
        prop_assert_eq!(play(Dropping::Pard, &loads), expected);
    }

    // All sums, one wait of each task: the quantile of the lattice's draws lies between nearby quantiles of these.
    #[test]
    fn the_aggregated_wait_is_the_quantile_of_all_sums(
        first in prop::collection::vec(0_u64..60, 8..40),
        second in prop::collection::vec(0_u64..60, 8..40),
    ) {
        let mut planner = chain(Dropping::Pard);
        for (module, waits) in [(1, &first), (2, &second)] {
            let mut monitor = Monitor::default();
            waits.iter().for_each(|&wait| monitor.start(ms(wait)));
            planner.observe(module, &mut monitor);
        }
        planner.synchronise();
        let mut sums: Vec<u64> = first.iter().flat_map(|a| second.iter().map(move |b| a + b)).collect();
        sums.sort_unstable();
        let quantile = |p: f64| sums[((p * sums.len() as f64) as usize).min(sums.len() - 1)];
        let wait = planner.view(0).forward.as_nanos() / MS - 52;
        let (low, high) = (quantile(LAMBDA - 0.05), quantile(LAMBDA + 0.05));
        prop_assert!((low..=high).contains(&wait), "{wait} is not in {low}..={high}");
    }
}
