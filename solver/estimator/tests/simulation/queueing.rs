//! The simulation against closed forms of queueing theory, and what must hold of any run.

use crate::common::{Fan, Stage, build, rate, run, stage};
use apportion_domain::Queueing::{Central, PerReplica};
use apportion_estimator::ArrivalProcess::{Gamma, Poisson, Uniform};
use apportion_estimator::analytic::{md1_wait, mmc_wait};

/// Mean wait at the first task over several seeds, in ms.
fn wait_ms(built: &crate::common::Built, qps: f64) -> f64 {
    const SEEDS: u64 = 4;
    let wait = |seed| run(built, &rate(qps, 2_000, Poisson, seed)).total.waiting[0].mean_ms;
    (1..=SEEDS).map(wait).sum::<f64>() / SEEDS as f64
}

#[test]
fn one_replica_without_batches_waits_as_m_d_1() {
    // 10 ms each. The error of the mean of 4 runs of 2,000 s is below 3 % at a load of 0.8.
    for load in [0.3, 0.5, 0.8] {
        let expected = md1_wait(load / 10.0, 10.0);
        for queueing in [Central, PerReplica] {
            let seen = wait_ms(&build(&[stage(0, 1, 1, 10.0, 0.0)], queueing, 0.0, 1e6), 100.0 * load);
            assert!((seen / expected - 1.0).abs() < 0.03, "load {load}, {queueing}: {seen} ms, by formula {expected} ms");
        }
    }
}

#[test]
fn a_central_queue_waits_as_m_d_c() {
    // Cosmetatos (1976) corrects half the wait of M/M/c to that of M/D/c within 2 %.
    for (servers, load) in [(2_u32, 0.7), (4, 0.8), (8, 0.9)] {
        let c = f64::from(servers);
        let correction = (1.0 - load) * (c - 1.0) * ((4.0 + 5.0 * c).sqrt() - 2.0) / (16.0 * load * c);
        let expected = 0.5 * (1.0 + correction) * mmc_wait(servers, c * load / 10.0, 10.0);
        let seen = wait_ms(&build(&[stage(0, servers, 1, 10.0, 0.0)], Central, 0.0, 1e6), 100.0 * c * load);
        assert!((seen / expected - 1.0).abs() < 0.05, "{servers} at {load}: {seen} ms, by formula {expected} ms");
    }
}

#[test]
fn constant_times_make_turns_equal_a_central_queue() {
    // Batches end in the order in which they start, so the next replica in turn is also the first free one. Crommelin
    // (1932) reduces M/D/c to E_c/D/1 in this way.
    let workload = rate(360.0, 100, Poisson, 2);
    let ends =
        |queueing| crate::common::finishes(&run(&build(&[stage(0, 4, 1, 10.0, 0.0)], queueing, 0.0, 1e6), &workload));
    assert_eq!(ends(Central), ends(PerReplica));
}

#[test]
fn own_queues_wait_longer_at_low_load() {
    // A batch of several takes longer, so that a replica may be passed over that would be free.
    let wait = |queueing| wait_ms(&build(&[stage(0, 4, 8, 5.0, 5.0)], queueing, 0.0, 1e6), 250.0);
    let (central, own) = (wait(Central), wait(PerReplica));
    assert!(central < own, "central {central} ms, own {own} ms");
}

#[test]
fn even_arrivals_settle_in_batches_that_keep_up() {
    // D/D/1: a batch takes 8 ms + 1 ms each, a query comes every 2 ms. A batch of n lasts 8 + n ms and finds (8 + n) / 2
    // waiting at its end. So sizes settle at 8, where a batch lasts exactly 16 ms.
    let simulation = run(&build(&[stage(0, 1, 16, 8.0, 1.0)], Central, 0.0, 1e6), &rate(500.0, 60, Uniform, 1));
    let w = &simulation.total.waiting[0];
    assert!((w.batch - 8.0).abs() < 0.05, "{}", w.batch);
    assert!((w.service_ms - 16.0).abs() < 0.1, "{}", w.service_ms);
    assert!(w.utilisation > 0.999, "{}", w.utilisation);
    assert!(simulation.total.p99_ms <= 16.0 + 16.0 + 0.1, "{}", simulation.total.p99_ms);
}

#[test]
fn utilisation_is_load_over_capacity() {
    let simulation = run(&build(&[stage(0, 1, 1, 4.0, 0.0)], Central, 0.0, 1e6), &rate(150.0, 1_000, Poisson, 3));
    let seen = simulation.total.waiting[0].utilisation;
    assert!((seen / 0.6 - 1.0).abs() < 0.02, "{seen}");
}

/// A tree in which both children draw.
fn tree(replicas: u32) -> Vec<Stage> {
    let cars = Stage { fanout: Fan::Counts(vec![(0, 0.3), (2, 0.5), (5, 0.2)]), ..stage(0, 2 * replicas, 8, 3.0, 1.0) };
    let faces = Stage { fanout: Fan::Mean(0.7), ..stage(0, replicas, 4, 2.0, 2.0) };
    vec![stage(0, replicas, 4, 5.0, 1.0), cars, faces]
}

#[test]
fn a_run_repeats_with_its_seed_and_no_other() {
    for queueing in [Central, PerReplica] {
        let built = build(&tree(4), queueing, 0.3, 60.0);
        let again = |seed| run(&built, &rate(300.0, 20, Gamma(1.5), seed));
        let (a, b, c) = (again(1), again(1), again(2));
        assert_eq!(a.requests, b.requests, "{queueing}");
        assert_eq!(a.total, b.total, "{queueing}");
        assert_ne!(a.requests, c.requests, "{queueing}");
    }
}

#[test]
fn every_request_has_one_outcome_and_the_counts_add_up() {
    let simulation = run(&build(&tree(3), PerReplica, 0.3, 40.0), &rate(300.0, 30, Poisson, 5));
    let e = &simulation.total;
    assert_eq!(e.requests, simulation.requests.len() as u64);
    assert_eq!(e.requests, e.ok + e.late + e.dropped + e.failed);
    assert!(simulation.requests.iter().enumerate().all(|(i, r)| r.request == i as u64));
    assert_eq!(e.attainment, e.ok as f64 / e.requests as f64);
    assert_eq!(simulation.visits, e.waiting.iter().map(|w| w.queries).sum::<u64>());
    // Fan-outs: 0.5 * 2 + 0.2 * 5 = 2, and 0.7.
    let per_request = |t: usize| e.waiting[t].queries as f64 / e.requests as f64;
    assert_eq!(per_request(0), 1.0);
    assert!(
        (per_request(1) - 2.0).abs() < 0.08 && (per_request(2) - 0.7).abs() < 0.03,
        "{} {}",
        per_request(1),
        per_request(2)
    );
}

#[test]
fn more_replicas_do_not_raise_a_central_queues_tail() {
    let p99 = |replicas| run(&build(&tree(replicas), Central, 0.0, 1e6), &rate(400.0, 60, Poisson, 9)).total.p99_ms;
    let tails: Vec<_> = [4, 5, 6, 8, 16].into_iter().map(p99).collect();
    assert!(tails.windows(2).all(|w| w[1] <= 1.02 * w[0]), "{tails:?}");
    assert!(tails[4] < 0.9 * tails[0], "{tails:?}");
}

#[test]
fn percentiles_are_those_of_the_records() {
    let simulation = run(&build(&tree(3), Central, 0.3, 40.0), &rate(300.0, 30, Poisson, 6));
    let latency = |r: &apportion_estimator::RequestRecord| r.finish.expect("answered").since(r.arrival).as_millis();
    let mut latencies: Vec<f64> = simulation.requests.iter().map(latency).collect();
    latencies.sort_by(f64::total_cmp);
    let rank = |p: f64| latencies[(p * latencies.len() as f64).ceil() as usize - 1];
    let e = &simulation.total;
    assert!((e.p50_ms / rank(0.5) - 1.0).abs() < 2e-3, "{} {}", e.p50_ms, rank(0.5));
    assert!((e.p99_ms / rank(0.99) - 1.0).abs() < 2e-3, "{} {}", e.p99_ms, rank(0.99));
}
