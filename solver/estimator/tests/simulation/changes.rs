//! Runs whose replicas come, go, die and slow down: scripts by hand, and what must hold whatever happens.

use crate::common::{Built, Fan, Stage, Times, arrivals, build_loading, finishes, rate, stage, with_pipeline};
use apportion_domain::{Batching, Dropping, GroupName, Moment, Queueing, RoutingPolicy, Share, TimeSpan};
use apportion_estimator::controllers::{Hpa, HpaConfig, RayServe, RayServeConfig, tuner};
use apportion_estimator::{
    ArrivalProcess, OnFailure, Replay, RequestOutcome, Scenario, ScenarioEvent, SimulateOptions, Workload, replay, simulate,
};
use proptest::prelude::*;

fn ms(ms: f64) -> Moment {
    Moment::from_millis(ms)
}

fn group(task: usize) -> GroupName {
    GroupName { task: format!("t{task}"), variant: "v".into(), hardware: "h".into(), share: Share::WHOLE }
}

fn to_have(replicas: u32) -> ScenarioEvent {
    ScenarioEvent::Replicas { pipeline: "p".into(), group: group(0), replicas }
}

fn run(built: &Built, workload: &Workload, scenario: Scenario<'_>) -> Replay {
    let options = SimulateOptions { requests: true, ..SimulateOptions::default() };
    replay(&built.problem, &built.plan, workload, &options, scenario).expect("a run")
}

/// One task of 10 ms, batch 1, on `count` devices.
fn one(queueing: Queueing, replicas: u32, load_ms: f64, count: Option<u32>) -> Built {
    build_loading(&[stage(0, replicas, 1, 10.0, 0.0)], queueing, Times { network_ms: 0.0, slo_ms: 1_000.0, load_ms }, count)
}

fn at_ms(moments: &[u64]) -> Workload {
    arrivals(&moments.iter().map(|m| m * 1_000_000).collect::<Vec<_>>())
}

fn script(built: &Built, moments: &[u64], events: Vec<(Moment, ScenarioEvent)>) -> (Vec<u64>, Replay) {
    let detection = TimeSpan::from_millis(3.0);
    let replay = run(built, &at_ms(moments), Scenario { events, detection, ..Scenario::default() });
    let ended = finishes(&replay.simulation).into_iter().map(|f| f / 1_000_000).collect();
    (ended, replay)
}

#[test]
fn a_replay_without_changes_equals_the_plain_run() {
    let stages = [stage(0, 2, 4, 5.0, 2.0), stage(0, 3, 2, 4.0, 1.0)];
    for queueing in [Queueing::Central, Queueing::PerReplica] {
        let built = build_loading(&stages, queueing, Times { network_ms: 1.0, slo_ms: 60.0, load_ms: 100.0 }, None);
        let workload = rate(150.0, 20, ArrivalProcess::Poisson, 3);
        let replay = run(&built, &workload, Scenario::default());
        let plain = crate::common::run(&built, &workload);
        assert_eq!(replay.simulation.total, plain.total);
        assert_eq!(replay.simulation.requests, plain.requests);
        assert_eq!(replay.windows.iter().map(|w| w.arrived).sum::<u64>(), plain.total.requests);
        assert_eq!(replay.windows.iter().map(|w| w.ok).sum::<u64>(), plain.total.ok);
        assert!((replay.cost_per_hour - 10.0).abs() < 1e-9, "five replicas at 2.0");
    }
}

#[test]
fn a_new_replica_serves_after_its_load_time() {
    let (ended, replay) = script(&one(Queueing::Central, 1, 15.0, None), &[0, 0, 0, 0], vec![(ms(0.0), to_have(2))]);
    assert_eq!(ended, [10, 20, 25, 30]);
    assert!((replay.cost - 2.0 * 2.0 * 30.0 / 3_600_000.0).abs() < 1e-12, "{}", replay.cost);
    // With queues of its own it takes new queries only.
    let (ended, _) = script(&one(Queueing::PerReplica, 1, 15.0, None), &[0, 0, 20, 20], vec![(ms(0.0), to_have(2))]);
    assert_eq!(ended, [10, 20, 30, 30]);
}

#[test]
fn a_leaving_replica_finishes_its_queries() {
    let events = vec![(ms(5.0), to_have(1))];
    let (ended, replay) = script(&one(Queueing::PerReplica, 2, 0.0, None), &[0, 0, 0, 0, 15, 15], events.clone());
    assert_eq!(ended, [10, 10, 20, 20, 30, 40]);
    // Both until 20 ms, then one until 40 ms.
    assert!((replay.cost - 2.0 * 60.0 / 3_600_000.0).abs() < 2.0 * 10.0 / 3_600_000.0 + 1e-12, "{}", replay.cost);
    // From a central queue it takes no more: it ends at 10 ms.
    let (ended, replay) = script(&one(Queueing::Central, 2, 0.0, None), &[0, 0, 0, 0], events);
    assert_eq!(ended, [10, 10, 20, 30]);
    assert!((replay.cost - 2.0 * 40.0 / 3_600_000.0).abs() < 1e-12, "{}", replay.cost);
}

#[test]
fn queries_of_a_dead_replica_are_sent_again() {
    let fail = || vec![(ms(5.0), ScenarioEvent::Fail { pipeline: "p".into(), group: group(0), replica: 1 })];
    for queueing in [Queueing::PerReplica, Queueing::Central] {
        // Noticed at 8 ms; the other replica is free at 10 ms.
        assert_eq!(script(&one(queueing, 2, 100.0, None), &[0, 0], fail()).0, [10, 20], "{queueing}");
        // A replacement that loads in 1 ms is first where there is one queue; in the other's queue it waits for that one.
        let end = if queueing == Queueing::Central { 19 } else { 20 };
        assert_eq!(script(&one(queueing, 2, 1.0, None), &[0, 0], fail()).0, [10, end], "{queueing}");
        let on_failure = OnFailure::Lose;
        let scenario = Scenario { events: fail(), on_failure, ..Scenario::default() };
        let lost = run(&one(queueing, 2, 100.0, None), &at_ms(&[0, 0]), scenario);
        assert_eq!(lost.simulation.requests[1].outcome, RequestOutcome::Failed, "{queueing}");
        assert_eq!((lost.simulation.total.ok, lost.simulation.total.failed), (1, 1));
        assert!((lost.invalid_rate - 0.5).abs() < 1e-9, "one of two batches: {}", lost.invalid_rate);
    }
}

#[test]
fn a_query_that_is_sent_again_skips_the_ingress() {
    let built = with_pipeline(&one(Queueing::PerReplica, 2, 100.0, None), |draft| {
        (draft.ingress_ms, draft.network_ms_per_mib, draft.ingress_kib_per_query) = (4.0, 8.0, 256.0);
    });
    let events = vec![(ms(11.0), ScenarioEvent::Fail { pipeline: "p".into(), group: group(0), replica: 1 })];
    // Both begin at 6 ms. The failure is noticed at 14 ms, and the hop takes 2 ms: the other replica is free then.
    assert_eq!(script(&built, &[0, 0], events).0, [16, 26]);
}

#[test]
fn the_last_replicas_queries_wait_for_its_replacement() {
    for queueing in [Queueing::PerReplica, Queueing::Central] {
        let events = vec![(ms(5.0), ScenarioEvent::Fail { pipeline: "p".into(), group: group(0), replica: 0 })];
        let (ended, _) = script(&one(queueing, 1, 100.0, None), &[0, 0, 50], events);
        let mut sorted = ended.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, [118, 128, 138], "{queueing}: loaded at 108 ms");
    }
}

#[test]
fn a_slow_replica_takes_longer_for_a_while() {
    let slow = ScenarioEvent::Slow { pipeline: "p".into(), group: group(0), replica: 0, factor: 3.0, until: ms(15.0) };
    assert_eq!(script(&one(Queueing::Central, 1, 0.0, None), &[0, 40], vec![(ms(0.0), slow)]).0, [30, 50]);
}

#[test]
fn a_new_replica_waits_for_a_free_device() {
    let stages = [stage(0, 2, 1, 10.0, 0.0), stage(0, 1, 1, 10.0, 0.0)];
    let built =
        build_loading(&stages, Queueing::Central, Times { network_ms: 0.0, slo_ms: 1_000.0, load_ms: 20.0 }, Some(3));
    let more = ScenarioEvent::Replicas { pipeline: "p".into(), group: group(1), replicas: 2 };
    let events = vec![(ms(0.0), more.clone()), (ms(100.0), to_have(1))];
    let moments: Vec<u64> = (0..40).map(|i| i * 10).collect();
    let window = TimeSpan::from_millis(10.0);
    let replay = run(&built, &at_ms(&moments), Scenario { events, window, ..Scenario::default() });
    assert!(replay.windows.iter().all(|w| w.cost <= 3.0 * 2.0 * 10.0 / 3_600_000.0 + 1e-12), "three devices at most");
    assert!((replay.windows[5].replicas - 3.0).abs() < 1e-9);
    assert!(replay.windows[11].replicas < 2.5, "one goes, one loads");
    assert!((replay.windows[20].replicas - 3.0).abs() < 1e-9);
    let unknown = ScenarioEvent::Replicas { pipeline: "p".into(), group: group(7), replicas: 2 };
    let scenario = Scenario { events: vec![(ms(0.0), unknown)], ..Scenario::default() };
    let error =
        apportion_estimator::replay(&built.problem, &built.plan, &at_ms(&[0]), &SimulateOptions::default(), scenario);
    assert!(error.expect_err("no such group").to_string().contains("t7/v/h"));
}

/// 20 queries per second, then 60, then 20 again.
fn step() -> Workload {
    let rows = (0..240).map(|s| (s, if (60..150).contains(&s) { 60.0 } else { 20.0 })).collect();
    let trace = apportion_domain::ArrivalTrace::rates(rows).expect("rates");
    Workload { traces: vec![trace], arrivals: ArrivalProcess::Poisson, seed: 2 }
}

#[test]
fn controllers_follow_a_step_cheaper_than_its_peak() {
    let built = |replicas| {
        build_loading(
            &[stage(0, replicas, 1, 50.0, 0.0)],
            Queueing::Central,
            Times { network_ms: 0.0, slo_ms: 400.0, load_ms: 2_000.0 },
            Some(20),
        )
    };
    let plan = built(2);
    let none = run(&plan, &step(), Scenario::default());
    let peak = run(&built(5), &step(), Scenario::default());
    let sample = rate(20.0, 60, ArrivalProcess::Poisson, 9);
    let tuned = tuner(&plan.problem, &plan.plan, &sample).expect("a plan that fits");
    let tuned = run(&plan, &step(), Scenario { controllers: vec![tuned], ..Scenario::default() });
    let hpa = Hpa::new(HpaConfig::default());
    let hpa = run(&plan, &step(), Scenario { controllers: vec![Box::new(hpa)], ..Scenario::default() });
    let ray = RayServe::new(RayServeConfig::default());
    let ray = run(&plan, &step(), Scenario { controllers: vec![Box::new(ray)], ..Scenario::default() });
    let attained = |r: &Replay| r.simulation.total.attainment;
    for (name, r) in [("tuner", &tuned), ("hpa", &hpa), ("ray", &ray)] {
        assert!(attained(r) > attained(&none) + 0.05, "{name}: {} after {}", attained(r), attained(&none));
        assert!(r.changes > 0 && r.cost > none.cost, "{name}");
    }
    assert!(attained(&tuned) > attained(&hpa) && attained(&tuned) > attained(&ray), "{}", attained(&tuned));
    assert!(attained(&peak) > 0.99, "{}", attained(&peak));
}

#[test]
fn new_replicas_get_queries_like_planned_ones() {
    // 12 replicas of 40 ms make three queries each for 24 of 10 ms, in batches of 4. They are planned from the start, or
    // grow from a third in two steps before the load comes. New senders must not be copies of each other, which would all
    // send to the same replica at once.
    let child = || Stage { fanout: Fan::Mean(3.0), ..stage(0, 24, 4, 7.0, 0.75) };
    let wait = |replicas: [u32; 2], events: Vec<(Moment, ScenarioEvent)>| {
        let stages = [stage(0, replicas[0], 1, 40.0, 0.0), Stage { replicas: replicas[1], ..child() }];
        let built =
            build_loading(&stages, Queueing::PerReplica, Times { network_ms: 0.0, slo_ms: 1_000.0, load_ms: 0.0 }, None);
        let rates = (0..40).map(|s| (s, if s < 5 { 1.0 } else { 200.0 })).collect();
        let trace = apportion_domain::ArrivalTrace::rates(rates).expect("rates");
        let workload = Workload { traces: vec![trace], arrivals: ArrivalProcess::Poisson, seed: 4 };
        run(&built, &workload, Scenario { events, ..Scenario::default() }).simulation.total.waiting[1].mean_ms
    };
    let to_have = |at: f64, task: usize, replicas: u32| {
        (ms(at), ScenarioEvent::Replicas { pipeline: "p".into(), group: group(task), replicas })
    };
    let planned = wait([12, 24], vec![]);
    let grown = vec![to_have(1e3, 0, 8), to_have(1.5e3, 1, 16), to_have(2e3, 0, 12), to_have(2.5e3, 1, 24)];
    let grown = wait([4, 8], grown);
    assert!(grown < 1.1 * planned, "{grown} ms against {planned}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn every_request_has_one_outcome_under_any_events(
        events in prop::collection::vec((0_u64..4_000, 0_usize..3, 0_u32..6, 0_u8..4), 0..25),
        central: bool, jsq: bool, batching in 0_usize..3, dropping in 0_usize..5, lose: bool, seed in 0_u64..1_000,
    ) {
        let queueing = if central { Queueing::Central } else { Queueing::PerReplica };
        let stages = [stage(0, 2, 4, 5.0, 2.0), stage(0, 3, 2, 4.0, 1.0), stage(0, 1, 8, 5.0, 1.0)];
        let mut built = build_loading(&stages, queueing, Times { network_ms: 1.0, slo_ms: 120.0, load_ms: 150.0 }, Some(9));
        let serving = &mut built.plan.pipelines[0].serving;
        serving.routing = if jsq { RoutingPolicy::Jsq } else { RoutingPolicy::Stride };
        serving.batching = [Batching::AtStart, Batching::Forming, Batching::WaitUntil][batching];
        serving.dropping =
            [Dropping::Naive, Dropping::PerTask, Dropping::Reroute, Dropping::Pard, Dropping::ClipperPlusPlus][dropping];
        let event = |&(at, task, number, kind): &(u64, usize, u32, u8)| {
            let (pipeline, group) = ("p".to_owned(), group(task));
            let event = match kind {
                0 => ScenarioEvent::Fail { pipeline, group, replica: number },
                1 => ScenarioEvent::Slow { pipeline, group, replica: number, factor: 2.5, until: ms(at as f64 + 500.0) },
                _ => ScenarioEvent::Replicas { pipeline, group, replicas: number },
            };
            (ms(at as f64), event)
        };
        let on_failure = if lose { OnFailure::Lose } else { OnFailure::SendAgain };
        let scenario = || Scenario {
            events: events.iter().map(event).collect(),
            on_failure,
            detection: TimeSpan::from_millis(100.0),
            ..Scenario::default()
        };
        let workload = rate(120.0, 5, ArrivalProcess::Poisson, seed);
        let replay = run(&built, &workload, scenario());
        let total = &replay.simulation.total;
        prop_assert_eq!(total.ok + total.late + total.dropped + total.failed, total.requests);
        prop_assert!(lose || total.failed == 0, "{} failed", total.failed);
        prop_assert_eq!(replay.simulation.requests.len() as u64, total.requests);
        prop_assert_eq!(replay.windows.iter().map(|w| w.ok).sum::<u64>(), total.ok);
        prop_assert!(replay.cost_per_hour <= 18.0 + 1e-9, "nine devices at 2.0");
        prop_assert!(replay.utilisation <= 1.5 && (0.0..=1.0).contains(&replay.invalid_rate));
        let again = run(&built, &workload, scenario());
        prop_assert_eq!(&again.simulation.requests, &replay.simulation.requests);
        if events.is_empty() {
            let options = SimulateOptions::default();
            let plain = simulate(&built.problem, &built.plan, &workload, &options).expect("a run");
            prop_assert_eq!(&plain.total, total);
        }
    }
}
