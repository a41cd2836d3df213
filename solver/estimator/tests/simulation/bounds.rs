//! A run that is too long, too large or no longer wanted ends soon, and says so instead of an estimate.

use crate::common::{Built, Fan, Stage, build, rate, run, stage};
use apportion_domain::Dropping;
use apportion_domain::Queueing::{Central, PerReplica};
use apportion_estimator::bounds::{BYTES_MAX, LOOK_EVERY};
use apportion_estimator::{
    ArrivalProcess, CutReason, Scenario, SimulateError, SimulateOptions, Stop, expected_visits, replay, simulate,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A detector that finds so many objects, and a classifier that is much too slow for them.
fn detector(objects: f64) -> Built {
    let classifier = Stage { fanout: Fan::Mean(objects), ..stage(0, 2, 8, 1.0, 1.0) };
    build(&[stage(0, 2, 4, 1.0, 1.0), classifier], PerReplica, 0.0, 250.0)
}

/// A stop at the `n`-th question, and how often it was asked.
fn at_question(n: u64) -> (Stop, Arc<AtomicU64>) {
    let asked = Arc::new(AtomicU64::new(0));
    let seen = asked.clone();
    (Stop::when(move || seen.fetch_add(1, Ordering::Relaxed) + 1 >= n), asked)
}

#[test]
fn a_run_that_is_stopped_has_no_estimate() {
    let Built { problem, plan } = detector(1e6);
    let workload = rate(40.0, 60, ArrivalProcess::Poisson, 1);
    for n in [1, 3] {
        let (stop, asked) = at_question(n);
        let options = SimulateOptions { stop, ..SimulateOptions::default() };
        let cut = simulate(&problem, &plan, &workload, &options).expect_err("no estimate");
        assert!(matches!(cut, SimulateError::Cut(CutReason::Stopped)), "{cut}");
        assert_eq!(asked.load(Ordering::Relaxed), n, "nothing is done after the answer");
    }
}

#[test]
fn a_run_checks_its_stop_signal_regularly() {
    // of a million children of one query, of a batch that passes on, and of arrivals that only queue up
    let passing = build(&[stage(0, 8, 64, 1.0, 0.01), stage(0, 8, 64, 1.0, 0.01)], Central, 0.0, 250.0);
    let stuck = build(&[stage(0, 1, 1, 1e5, 0.0)], Central, 0.0, 1e9);
    for (name, Built { problem, plan }, qps, seconds) in
        [("children", detector(1e6), 1.0, 1), ("passing", passing, 10_000.0, 20), ("arrivals", stuck, 100_000.0, 4)]
    {
        let workload = rate(qps, seconds, ArrivalProcess::Uniform, 1);
        let expected = expected_visits(&problem, &plan, &workload.traces);
        assert!(expected > 390_000.0, "{name}: {expected}");
        let (stop, asked) = at_question(u64::MAX);
        let options = SimulateOptions { stop, ..SimulateOptions::default() };
        simulate(&problem, &plan, &workload, &options).expect("a run");
        let least = expected as u64 / LOOK_EVERY;
        assert!(asked.load(Ordering::Relaxed) >= least, "{name}: {asked:?} of at least {least}");
    }
}

#[test]
fn a_run_with_changes_can_be_stopped_too() {
    let Built { problem, plan } = detector(1e5);
    let (stop, asked) = at_question(4);
    let options = SimulateOptions { stop, ..SimulateOptions::default() };
    let workload = rate(40.0, 60, ArrivalProcess::Poisson, 1);
    let cut = replay(&problem, &plan, &workload, &options, Scenario::default()).expect_err("no estimate");
    assert!(matches!(cut, SimulateError::Cut(CutReason::Stopped)), "{cut}");
    assert_eq!(asked.load(Ordering::Relaxed), 4);
}

#[test]
fn a_run_ends_once_it_has_cost_too_much() {
    let Built { problem, plan } = detector(1e2);
    let problem = problem.changed(|d| d.hardware.iter_mut().for_each(|h| h.price_per_hour = 3.0)).expect("valid");
    let workload = rate(1.0, 60, ArrivalProcess::Poisson, 1);
    let run = |cost_max| {
        let scenario = Scenario { cost_max, ..Scenario::default() };
        replay(&problem, &plan, &workload, &SimulateOptions::default(), scenario)
    };
    let whole = run(None).expect("a run");
    assert!(whole.cost > 0.0);
    let cut = run(Some(0.5 * whole.cost)).expect_err("no estimate");
    assert!(matches!(cut, SimulateError::Cut(CutReason::Cost)), "{cut}");
    let enough = run(Some(whole.cost)).expect("a run");
    assert_eq!((enough.simulation.total, enough.cost), (whole.simulation.total, whole.cost));
}

#[test]
fn queries_in_flight_take_bounded_memory() {
    let Built { problem, plan } = detector(1e6);
    let workload = rate(1_000.0, 60, ArrivalProcess::Poisson, 1);
    let cut = simulate(&problem, &plan, &workload, &SimulateOptions::default()).expect_err("no estimate");
    assert!(matches!(cut, SimulateError::Cut(CutReason::Memory)), "{cut}");
    let status = std::fs::read_to_string("/proc/self/status").expect("a status");
    let peak = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).expect("a peak").trim();
    let peak_kib: usize = peak.trim_end_matches(" kB").trim().parse().expect("a number");
    // buffers double while both are there
    assert!(peak_kib << 10 < 2 * BYTES_MAX, "{peak_kib} KiB");
}

#[test]
fn a_run_with_too_many_expected_queries_does_not_begin() {
    let Built { problem, plan } = detector(1e6);
    let workload = rate(40.0, 60, ArrivalProcess::Poisson, 1);
    let expected = expected_visits(&problem, &plan, &workload.traces);
    assert_eq!(expected, 2_400.0 * 1_000_001.0);
    let (stop, asked) = at_question(1);
    let options = SimulateOptions { stop, visits_max: Some(1_000_000_000), ..SimulateOptions::default() };
    let refused = simulate(&problem, &plan, &workload, &options).expect_err("too many").to_string();
    assert_eq!(refused, "2400002400 queries that the run is expected to serve are more than 1000000000");
    assert_eq!(asked.load(Ordering::Relaxed), 0);
}

#[test]
fn replicas_whose_routers_do_not_fit_into_memory_are_refused() {
    let Built { problem, mut plan } = detector(2.0);
    plan.pipelines[0].assignments.iter_mut().for_each(|a| a.replicas = 100_000);
    let workload = rate(1.0, 1, ArrivalProcess::Poisson, 1);
    let refused = simulate(&problem, &plan, &workload, &SimulateOptions::default()).expect_err("too many");
    assert!(matches!(refused, SimulateError::TooLarge { found, .. } if found >= 1e10), "{refused}");
}

#[test]
fn bounds_that_are_not_reached_change_nothing() {
    let fork =
        [stage(0, 2, 4, 3.0, 1.0), Stage { fanout: Fan::Mean(2.7), ..stage(0, 4, 8, 2.0, 1.0) }, stage(0, 3, 2, 1.0, 2.0)];
    for (queueing, network_ms) in [(Central, 0.0), (PerReplica, 0.0), (PerReplica, 0.7)] {
        for dropping in [Dropping::Naive, Dropping::LastTask] {
            let Built { problem, mut plan } = build(&fork, queueing, network_ms, 60.0);
            plan.pipelines[0].serving.dropping = dropping;
            let workload = rate(400.0, 60, ArrivalProcess::Poisson, 5);
            let (stop, asked) = at_question(u64::MAX);
            let options = SimulateOptions { requests: true, stop, visits_max: Some(1 << 40), ..SimulateOptions::default() };
            let bounded = simulate(&problem, &plan, &workload, &options).expect("a run");
            let free = run(&Built { problem, plan }, &workload);
            assert_eq!((&bounded.total, &bounded.pipelines, bounded.visits), (&free.total, &free.pipelines, free.visits));
            assert_eq!(bounded.requests, free.requests);
            assert!(asked.load(Ordering::Relaxed) > 1, "{asked:?}");
        }
    }
}
