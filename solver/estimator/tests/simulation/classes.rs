//! Requests by class and by window of their arrival.

use crate::common::{Built, Fan, Times, arrivals, assignment, build, build_loading, rate, stage, with_faster};
use apportion_domain::{GroupName, Moment, Queueing, Share, TimeSpan};
use apportion_estimator::scenario::WINDOWS_MAX;
use apportion_estimator::{
    ArrivalProcess, OnFailure, RequestClasses, RequestOutcome, Scenario, ScenarioEvent, SimulateOptions, Simulation,
    Workload, replay, simulate,
};

const WINDOW: TimeSpan = TimeSpan::from_nanos(500_000_000);

/// A run that counts classes in half seconds.
fn run(built: &Built, workload: &Workload, requests: bool) -> Simulation {
    let options = SimulateOptions { requests, class_window: Some(WINDOW), ..SimulateOptions::default() };
    simulate(&built.problem, &built.plan, workload, &options).expect("a plan that can be simulated")
}

/// Two tasks in a chain; each has a group of `v` and a group of `w`, which is twice as fast and half as accurate.
fn mixed() -> Built {
    let stages = [stage(0, 2, 4, 5.0, 2.0), stage(0, 2, 2, 4.0, 1.0)];
    let times = Times { network_ms: 1.0, slo_ms: 20.0, load_ms: 0.0 };
    let mut built = with_faster(build_loading(&stages, Queueing::PerReplica, times, None));
    let part = &mut built.plan.pipelines[0];
    part.assignments.extend((0..2).map(|task| assignment(task, "w", 2, 1)));
    part.assignments.sort_by(|a, b| a.group.cmp(&b.group));
    built
}

#[test]
fn classes_agree_with_the_records_of_requests() {
    let workload = rate(500.0, 3, ArrivalProcess::Poisson, 4);
    let found = run(&mixed(), &workload, true);
    let mut expected: Vec<RequestClasses> = Vec::new();
    for record in &found.requests {
        let at = (record.arrival.as_nanos() / WINDOW.as_nanos()) as usize;
        expected.resize(expected.len().max(at + 1), RequestClasses::default());
        let window = &mut expected[at];
        window.arrived += 1;
        match record.outcome {
            RequestOutcome::Ok => window.ok += 1,
            RequestOutcome::Late => window.late += 1,
            RequestOutcome::Dropped => window.dropped += 1,
            RequestOutcome::Failed => window.failed += 1,
        }
        // Both tasks by `v` make 0.9 * 0.9.
        let is_accurate = (record.accuracy - 0.81).abs() < 1e-9;
        window.fallback += u64::from(record.outcome == RequestOutcome::Ok && !is_accurate);
    }
    assert_eq!(found.classes, [expected.clone()]);
    assert_eq!(expected.len(), 6, "three seconds");
    let sum = |of: fn(&RequestClasses) -> u64| expected.iter().map(of).sum::<u64>();
    assert!(
        sum(|w| w.fallback) > 0 && sum(|w| w.fallback) < sum(|w| w.ok) && sum(|w| w.late + w.dropped) > 0,
        "{expected:?}"
    );
}

#[test]
fn counting_classes_changes_no_other_result() {
    for built in [mixed(), build(&[stage(0, 2, 4, 5.0, 2.0)], Queueing::Central, 1.0, 40.0)] {
        let workload = rate(400.0, 2, ArrivalProcess::Poisson, 9);
        let plain = simulate(&built.problem, &built.plan, &workload, &SimulateOptions::default()).expect("a run");
        let counted = run(&built, &workload, false);
        assert_eq!((&plain.pipelines, &plain.total, plain.visits), (&counted.pipelines, &counted.total, counted.visits));
        assert!(plain.classes.is_empty() && counted.classes[0].iter().map(|w| w.arrived).sum::<u64>() > 0);
        assert_eq!(counted.classes, run(&built, &workload, true).classes);
    }
}

#[test]
fn the_only_variant_is_no_fallback() {
    let mut stages = [stage(0, 2, 4, 5.0, 2.0), stage(0, 2, 2, 4.0, 1.0)];
    stages[1].fanout = Fan::Mean(1.5);
    let found = run(&build(&stages, Queueing::PerReplica, 1.0, 400.0), &rate(50.0, 2, ArrivalProcess::Uniform, 1), false);
    assert!(found.classes[0].iter().all(|window| window.ok > 0 && window.fallback == 0), "{:?}", found.classes);
}

#[test]
fn arrivals_after_the_last_window_count_there() {
    let options = SimulateOptions { class_window: Some(TimeSpan::from_nanos(1)), ..SimulateOptions::default() };
    let built = build(&[stage(0, 1, 1, 5.0, 0.0)], Queueing::Central, 0.0, 100.0);
    let found = simulate(&built.problem, &built.plan, &arrivals(&[0, 1_000_000, 2_000_000]), &options).expect("a run");
    assert_eq!(found.classes[0].len(), WINDOWS_MAX);
    assert_eq!((found.classes[0][0].ok, found.classes[0][WINDOWS_MAX - 1].ok), (1, 2));
}

#[test]
fn a_request_of_a_dead_replica_has_failed() {
    let built = build(&[stage(0, 2, 1, 10.0, 0.0)], Queueing::PerReplica, 0.0, 100.0);
    let group = GroupName { task: "t0".into(), variant: "v".into(), hardware: "h".into(), share: Share::WHOLE };
    let fail = ScenarioEvent::Fail { pipeline: "p".into(), group, replica: 1 };
    let scenario =
        Scenario { events: vec![(Moment::from_millis(5.0), fail)], on_failure: OnFailure::Lose, ..Scenario::default() };
    let options = SimulateOptions { class_window: Some(WINDOW), ..SimulateOptions::default() };
    let found = replay(&built.problem, &built.plan, &arrivals(&[0, 0]), &options, scenario).expect("a run");
    let expected = RequestClasses { arrived: 2, ok: 1, failed: 1, ..RequestClasses::default() };
    assert_eq!(found.simulation.classes, [vec![expected]]);
}
