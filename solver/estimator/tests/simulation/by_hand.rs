//! Runs computed by hand, to the nanosecond.

use crate::common::{Built, Fan, Stage, arrivals, build, finishes, run, stage};
use apportion_domain::Queueing::{Central, PerReplica};
use apportion_domain::{Batching, Dropping, TaskIndex};
use apportion_estimator::{CutReason, DropReason, RequestOutcome, SimulateError, SimulateOptions, simulate};

const MS: u64 = 1_000_000;

#[test]
fn a_free_replica_starts_with_the_waiting_queries() {
    // A batch takes 10 ms + 2 ms for each query. The first query runs alone from 0 to 12, while 1, 2 and 3 wait. Two of
    // them start together at 12 and end at 26. The last runs alone until 38.
    for queueing in [Central, PerReplica] {
        let built = build(&[stage(0, 1, 2, 10.0, 2.0)], queueing, 0.0, 26.0);
        let simulation = run(&built, &arrivals(&[0, MS, 2 * MS, 3 * MS]));
        assert_eq!(finishes(&simulation), [12 * MS, 26 * MS, 26 * MS, 38 * MS], "{queueing}");
        let outcomes: Vec<_> = simulation.requests.iter().map(|r| r.outcome).collect();
        assert_eq!(
            outcomes,
            [RequestOutcome::Ok, RequestOutcome::Ok, RequestOutcome::Ok, RequestOutcome::Late],
            "{queueing}"
        );
        let e = &simulation.total;
        assert_eq!((e.requests, e.ok, e.late, e.attainment, e.cost_per_hour), (4, 3, 1, 0.75, 7.0));
        let w = &e.waiting[0];
        assert_eq!((w.queries, w.batch), (4, 4.0 / 3.0));
        assert!((w.mean_ms - (0.0 + 11.0 + 10.0 + 23.0) / 4.0).abs() < 1e-9, "{}", w.mean_ms);
        assert!((w.service_ms - (12.0 + 14.0 + 14.0 + 12.0) / 4.0).abs() < 1e-9, "{}", w.service_ms);
        assert!((w.utilisation - 1.0).abs() < 1e-9, "{}", w.utilisation);
    }
}

#[test]
fn a_latency_of_exactly_the_slo_is_on_time() {
    let on_time = |slo_ms| run(&build(&[stage(0, 1, 1, 5.0, 0.5)], Central, 0.25, slo_ms), &arrivals(&[7])).total.ok;
    assert_eq!(on_time(5.75), 1);
    assert_eq!(on_time(5.749_999), 0);
}

#[test]
fn each_hop_costs_the_network() {
    // 0.5 ms into the root, 3 ms there, 0.5 ms to the child, 4 ms there.
    let built = build(&[stage(0, 1, 1, 2.0, 1.0), stage(0, 1, 1, 3.0, 1.0)], PerReplica, 0.5, 100.0);
    assert_eq!(finishes(&run(&built, &arrivals(&[5, 6]))), [5 + 8 * MS, 5 + 12 * MS]);
}

#[test]
fn a_batch_ends_before_queries_of_the_same_instant() {
    // The replica is free again at 3 ms exactly, when two more arrive: they start together, at once.
    let built = build(&[stage(0, 1, 4, 2.0, 1.0)], Central, 0.0, 100.0);
    assert_eq!(finishes(&run(&built, &arrivals(&[0, 3 * MS, 3 * MS]))), [3 * MS, 7 * MS, 7 * MS]);
}

#[test]
fn a_request_ends_with_its_last_leaf() {
    // The root (1 ms) makes three queries at t1 (batch 2: 1 ms + 1 ms each) and none at t2.
    let three = Stage { fanout: Fan::Counts(vec![(3, 1.0)]), ..stage(0, 1, 2, 1.0, 1.0) };
    let none = Stage { fanout: Fan::Mean(0.0), ..stage(0, 1, 1, 50.0, 0.0) };
    let built = build(&[stage(0, 1, 1, 0.0, 1.0), three, none], Central, 0.0, 100.0);
    // At t1: two queries from 1 to 4, the third from 4 to 6.
    let simulation = run(&built, &arrivals(&[0]));
    assert_eq!(finishes(&simulation), [6 * MS]);
    let queries: Vec<_> = simulation.total.waiting.iter().map(|w| w.queries).collect();
    assert_eq!(queries, [1, 3, 0]);
    assert_eq!(simulation.visits, 4);
    // The path to t1 has 0.9 * 0.9; the one to t2 ends at the root, 0.9; both sinks weigh the same.
    assert!((simulation.total.accuracy - 0.855).abs() < 1e-12, "{}", simulation.total.accuracy);
}

#[test]
fn a_query_without_children_is_a_leaf() {
    let none = Stage { fanout: Fan::Mean(0.0), ..stage(0, 1, 1, 50.0, 0.0) };
    let simulation = run(&build(&[stage(0, 1, 1, 0.0, 1.0), none], PerReplica, 0.0, 100.0), &arrivals(&[0]));
    assert_eq!(finishes(&simulation), [MS]);
    assert!((simulation.total.accuracy - 0.9).abs() < 1e-12);
}

#[test]
fn queries_go_to_the_first_free_replica_or_by_turns() {
    // Two replicas, batch 2, 10 ms for each query. Centrally the first two queries share a batch from 0 to 20 and the third
    // runs alone until 10; the fourth finds that replica free.
    let ends = |queueing| {
        finishes(&run(&build(&[stage(0, 2, 2, 0.0, 10.0)], queueing, 0.0, 99.0), &arrivals(&[0, 0, 0, 12 * MS])))
    };
    assert_eq!(ends(Central), [20 * MS, 20 * MS, 10 * MS, 22 * MS]);
    // By turns: replica 0 has the first and third query, replica 1 the second and, at 12, the fourth.
    assert_eq!(ends(PerReplica), [20 * MS, 10 * MS, 20 * MS, 22 * MS]);
    let ends = |queueing| {
        finishes(&run(&build(&[stage(0, 2, 2, 0.0, 10.0)], queueing, 0.0, 99.0), &arrivals(&[0, 0, 0, 11 * MS, 12 * MS])))
    };
    // Centrally the fifth waits for 20 and 21; by turns it goes to replica 0, free at 20.
    assert_eq!(ends(Central), [20 * MS, 20 * MS, 10 * MS, 21 * MS, 30 * MS]);
    assert_eq!(ends(PerReplica), [20 * MS, 10 * MS, 20 * MS, 21 * MS, 30 * MS]);
}

#[test]
fn a_plan_that_does_not_fit_is_refused_by_name() {
    let Built { problem, mut plan } = build(&[stage(0, 1, 1, 1.0, 0.0)], Central, 0.0, 9.0);
    plan.pipelines[0].assignments[0].group.variant = "w".into();
    let error = simulate(&problem, &plan, &arrivals(&[0]), &SimulateOptions::default()).expect_err("refused");
    assert!(matches!(error, SimulateError::Plan(_)) && error.to_string().contains("t0/w/h"), "{error}");
}

#[test]
fn the_next_batch_forms_while_one_runs() {
    // A batch takes 10 ms for each query; with room for two, 1 and 2 enter the next batch and 3 waits for the one after.
    let Built { problem, mut plan } = build(&[stage(0, 1, 2, 0.0, 10.0)], PerReplica, 0.0, 1e6);
    plan.pipelines[0].serving.batching = Batching::Forming;
    let simulation = run(&Built { problem, plan }, &arrivals(&[0, MS, 2 * MS, 3 * MS]));
    assert_eq!(finishes(&simulation), [10 * MS, 30 * MS, 30 * MS, 40 * MS]);
}

#[test]
fn wait_until_waits_while_the_oldest_query_is_on_time() {
    // Batches of two take 4 ms, single ones 3 ms. t1 is granted 2 * 4 ms after t0, so at t0 the first query starts alone at
    // 20 - 8 - 3 = 9 ms. At t1, which is the last task, it starts at 20 - 3 = 17 ms. The second and third fill a batch each
    // time.
    let Built { problem, mut plan } = build(&[stage(0, 1, 2, 2.0, 1.0), stage(0, 1, 2, 2.0, 1.0)], PerReplica, 0.0, 20.0);
    plan.pipelines[0].serving.batching = Batching::WaitUntil;
    let built = Built { problem, plan };
    assert_eq!(finishes(&run(&built, &arrivals(&[0]))), [20 * MS]);
    assert_eq!(finishes(&run(&built, &arrivals(&[0, 30 * MS, 33 * MS]))), [20 * MS, 41 * MS, 41 * MS]);
}

#[test]
fn the_last_task_drops_late_queries_with_a_reason() {
    // 10 ms at t0, one at a time; 10 ms at t1. The second request would end at 30 ms, 1 ms after its deadline.
    let Built { problem, mut plan } = build(&[stage(0, 1, 1, 10.0, 0.0), stage(0, 1, 1, 10.0, 0.0)], PerReplica, 0.0, 28.0);
    plan.pipelines[0].serving.dropping = Dropping::LastTask;
    let simulation = run(&Built { problem, plan }, &arrivals(&[0, MS]));
    let seen: Vec<_> = simulation.requests.iter().map(|r| (r.outcome, r.drop_task, r.reason, r.finish)).collect();
    let ok = (RequestOutcome::Ok, None, None, Some(apportion_domain::Moment::from_nanos(20 * MS)));
    assert_eq!(seen, [ok, (RequestOutcome::Dropped, Some(TaskIndex(1)), Some(DropReason::Deadline), None)]);
}

#[test]
fn a_run_stops_once_enough_have_missed() {
    let Built { problem, plan } = build(&[stage(0, 1, 1, 10.0, 0.0)], Central, 0.0, 1.0);
    let options = SimulateOptions { misses_max: Some(2), ..SimulateOptions::default() };
    let workload = arrivals(&(0..1000).map(|i| i * 100 * MS).collect::<Vec<_>>());
    let cut = simulate(&problem, &plan, &workload, &options).expect_err("no estimate of a run that was cut short");
    assert!(matches!(cut, SimulateError::Cut(CutReason::Missed { missed: 3 })), "{cut}");
}
