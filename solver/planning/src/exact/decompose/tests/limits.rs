//! What does a search return when its time is up?

use super::{GAP, kind, large, shape, unlimited};
use crate::bench::cluster::cluster;
use crate::bench::drawn::{self, ProblemShape};
use crate::bench::fleet::{FleetKind, FleetSize, fleet};
use crate::exact::decompose::plan_large;
use crate::exact::model::bounds::is_maximised;
use crate::exact::model::goal::Goal;
use crate::exact::model::space::Space;
use crate::exact::model::tightening::Tightening;
use crate::exact::search::best::search;
use crate::exact::search::modes::SearchResult;
use crate::exact::solution::found::BestFound;
use crate::exact::solution::plan::plan_of;
use apportion_domain::{LatencyRule, Mode, Problem};
use apportion_mip::{Incumbent, RunLimits};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A clock that goes on by a tenth of a millisecond whenever somebody looks at it.
#[derive(Clone, Default)]
struct TickingClock(Arc<AtomicU64>);

impl TickingClock {
    /// Limits by this clock, with no end.
    fn limits(&self) -> RunLimits {
        let looks = self.0.clone();
        RunLimits::new(Arc::new(move || Duration::from_micros(100 * looks.fetch_add(1, Ordering::Relaxed))))
    }

    /// The time by now.
    fn now(&self) -> Duration {
        Duration::from_micros(100 * self.0.load(Ordering::Relaxed))
    }
}

fn found(problem: &Problem, limits: &RunLimits, place: &str) -> BestFound {
    match search(problem, &Tightening::none(problem), GAP, limits) {
        SearchResult::Found(found) => *found,
        SearchResult::Infeasible | SearchResult::Unknown(_) => panic!("{place}: no plan"),
    }
}

fn assert_accepted(problem: &Problem, found: &BestFound, place: &str) {
    let plan = plan_of(problem, &found.space, &found.choice, &found.flows).expect("few paths");
    let findings = apportion_checker::check(problem, &plan);
    assert!(findings.is_empty(), "{place}: {findings:?}");
}

/// Pipelines on two types of device.
fn mixed(pipelines: usize) -> Problem {
    let hardware = vec![kind(1.0, Some(14), 1.0), kind(2.2, Some(10), 2.5)];
    drawn::problem(2, &ProblemShape { pipelines, hardware, demand_qps: 150.0, ..shape(Mode::MaxAccuracy) })
}

#[test]
fn a_search_at_its_limit_returns_plan_and_bound() {
    for problem in [cluster(&[], 8, 60, 2), mixed(6)] {
        let best = found(&problem, &unlimited(), "without a limit");
        let mut stopped = 0;
        for until_ms in [0, 2, 10, 50, 250] {
            let place = format!("{until_ms} ms");
            let limits = TickingClock::default().limits();
            let limits = RunLimits { deadline: Some(Duration::from_millis(until_ms)), ..limits };
            let found = found(&problem, &limits, &place);
            assert!(found.value <= best.bound + 1e-9, "{place}: {} above the bound {}", found.value, best.bound);
            assert!(found.bound >= best.value - 1e-9, "{place}: bound {} below {}", found.bound, best.value);
            assert_accepted(&problem, &found, &place);
            stopped += u32::from(found.stopped.is_some());
        }
        assert!(stopped > 0, "no limit was hit");
    }
}

#[test]
fn a_search_has_a_plan_whatever_its_time_and_none_is_better_that_it_reported() {
    let mut reports = 0;
    for problem in [mixed(1), mixed(3)] {
        for until_ms in [0, 1, 2, 5, 10, 20, 50, 100, 200] {
            let reported = Arc::new(Mutex::new(Vec::new()));
            let seen = reported.clone();
            let listener = move |incumbent: Incumbent| {
                // what breaks ties has another value
                let value = incumbent.value.filter(|_| incumbent.goal == "accuracy");
                seen.lock().expect("no panic").extend(value);
            };
            // no time is left for what follows the search
            let limits = TickingClock::default().limits().ending_at(Duration::from_millis(until_ms));
            let limits = RunLimits { listener: Some(Arc::new(listener)), ..limits };
            let place = format!("{until_ms} ms");
            let found = found(&problem, &limits, &place);
            assert_accepted(&problem, &found, &place);
            for &value in &*reported.lock().expect("no panic") {
                reports += 1;
                assert!(found.value >= value - 1e-9, "{place}: {} is below the reported {value}", found.value);
            }
        }
    }
    assert!(reports > 0, "no search has reported a plan");
}

#[test]
fn a_search_stopped_at_its_first_plan_returns_plan_and_bound() {
    let mut asked = 0;
    for (place, problem) in [("1", mixed(1)), ("3", mixed(3)), ("6", mixed(6)), ("cluster", cluster(&[], 8, 60, 2))] {
        let best = found(&problem, &unlimited(), place);
        let limits = TickingClock::default().limits();
        let stop = limits.stop.clone();
        let listener = move |incumbent: Incumbent| {
            if incumbent.value.is_some() {
                stop.ask();
            }
        };
        let limits = RunLimits { listener: Some(Arc::new(listener)), ..limits };
        let found = found(&problem, &limits, place);
        assert!(found.value <= best.bound + 1e-9, "{place}: {} above the bound {}", found.value, best.bound);
        assert!(found.bound >= best.value - 1e-9, "{place}: bound {} below {}", found.bound, best.value);
        assert_accepted(&problem, &found, place);
        asked += u32::from(limits.stop.is_asked());
    }
    assert!(asked > 0, "no search has reported a plan");
}

#[test]
fn a_fleet_with_little_time_keeps_its_fast_plan() {
    let size = FleetSize { pipelines: 40, devices: 2_000 };
    let mut planned = 0;
    for kind in FleetKind::ALL {
        let problem = fleet(kind, size, 100);
        let clock = TickingClock::default();
        let needed = Arc::new(AtomicU64::new(0));
        // the fast plan is the first that is reported; the search stops there
        let limits = clock.limits().ending_at(Duration::from_secs(3_600));
        let (stop, reported, now) = (limits.stop.clone(), needed.clone(), clock.clone());
        let listener = move |incumbent: Incumbent| {
            if incumbent.value.is_some() && !stop.is_asked() {
                reported.store(now.now().as_micros() as u64, Ordering::Relaxed);
                stop.ask();
            }
        };
        let fast = found(&problem, &RunLimits { listener: Some(Arc::new(listener)), ..limits }, kind.name());
        let needed = Duration::from_micros(needed.load(Ordering::Relaxed));
        if needed.is_zero() {
            // the first step of `hardware_then_accuracy` proves its plan without a report
            continue;
        }
        planned += 1;
        for times in [2, 4] {
            let place = format!("{}, {times} times the time of the fast plan", kind.name());
            let found = found(&problem, &TickingClock::default().limits().ending_at(times * needed), &place);
            assert_accepted(&problem, &found, &place);
            let gain = if is_maximised(&problem, found.step) { 1.0 } else { -1.0 };
            let lost = gain * (fast.value - found.value);
            assert!(lost <= 1e-9 * fast.value.abs(), "{place}: {} after {}", found.value, fast.value);
        }
    }
    assert!(planned > 2, "{planned} kinds of fleet");
}

#[test]
fn a_large_pipeline_under_rule_path_is_no_dearer_than_within_budgets() {
    let large = large(1);
    let mut searched = 0;
    for seed in 300..500 {
        let problem = drawn::problem(seed, &large);
        let space = Space::new(&problem, &Tightening::none(&problem), &unlimited()).expect("a space");
        let fast = plan_large(&problem, &space, Goal::CostAndSwitching, GAP, &unlimited());
        let Some((_, cost)) = fast else { continue };
        let by_path = problem.changed(|d| d.objective.latency_rule = LatencyRule::Path).expect("a rule");
        let ticking = TickingClock::default().limits();
        let limits = RunLimits { deadline: Some(Duration::from_secs(1)), ..ticking };
        let place = format!("seed {seed}");
        let found = found(&by_path, &limits, &place);
        assert_accepted(&by_path, &found, &place);
        // the fast search has less time here
        assert!(found.value <= 1.02 * cost, "{place}: {} instead of {cost}", found.value);
        searched += 1;
    }
    assert!(searched > 1, "{searched} large problems");
}
