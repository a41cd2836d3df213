//! Offline queries: in the gaps, and in nobody's way.

use super::world::*;
use super::*;
use crate::policies::LEVEL_OFFLINE;
use std::sync::mpsc::Receiver;

fn offline() -> RequestTerms {
    RequestTerms { level: LEVEL_OFFLINE, ..RequestTerms::default() }
}

/// One task, one replica, batches of at most 4 in 10 ms.
fn one(dropping: &str, batching: &str) -> World {
    let mut world = World::new(1, sums);
    world.apply_target(&served(target(1, "a", &[], &[(1, 0, 4, 10, &[(1, 1)])]), batching, dropping));
    world.pass(5 * MS);
    world
}

/// Latencies of online requests in milliseconds, one each `every_ms` for `for_ms`.
fn online(world: &mut World, every_ms: u64, for_ms: u64) -> Vec<u64> {
    let mut answers = Vec::new();
    for _ in 0..for_ms / every_ms {
        answers.push(world.ask(1, "p", &[1.0]));
        world.pass(every_ms * MS);
    }
    world.pass(200 * MS);
    let latency = |a: Receiver<RequestAnswer>| match a.try_recv().expect("an answer") {
        RequestAnswer::Done { latency_ns, .. } => latency_ns / MS,
        other => panic!("{other:?}"),
    };
    answers.into_iter().map(latency).collect()
}

/// How many have been answered since they were last asked after.
fn done(answers: &mut Vec<Receiver<RequestAnswer>>) -> usize {
    let before = answers.len();
    answers.retain_mut(|a| !matches!(a.try_recv(), Ok(RequestAnswer::Done { .. })));
    before - answers.len()
}

#[test]
fn an_online_query_waits_for_at_most_one_offline_query() {
    for (dropping, batching) in
        [("naive", "at_start"), ("pard", "forming"), ("last_task", "wait_until"), ("pard-oc", "at_start")]
    {
        let mut world = one(dropping, batching);
        let mut waiting: Vec<_> = (0..60).map(|_| world.ask_on(1, "p", &[1.0], offline())).collect();
        // A quarter of the device is used: one request of 10 ms each 40 ms.
        let latencies = online(&mut world, 40, 4_000);
        // Under `wait_until` a query waits for others for as long as it can.
        let most_ms = if batching == "wait_until" { 100 } else { 20 };
        assert!(latencies.iter().all(|ms| *ms <= most_ms), "{dropping} {batching}: {latencies:?}");
        let served = done(&mut waiting);
        assert!(served > 30, "{dropping} {batching}: {served} of 60 in 4 s");
        world.pass(20_000 * MS);
        assert_eq!(world.unfinished(), [0], "{dropping} {batching}");
        let counts = world.nodes.get_mut(&1).expect("there").take_counts();
        let offered: u32 = counts.pipelines["p"].bins.values().sum();
        assert_eq!(offered, 100, "no demand is reported for offline queries");
    }
}

#[test]
fn under_load_nothing_offline_runs() {
    let mut world = one("naive", "at_start");
    online(&mut world, 12, 2_400);
    let mut waiting: Vec<_> = (0..20).map(|_| world.ask_on(1, "p", &[1.0], offline())).collect();
    // It takes until the next announcement to see that the device is used again.
    let latencies = online(&mut world, 12, 4_800);
    assert!(latencies.iter().filter(|ms| **ms > 10).count() <= 20, "{latencies:?}");
    let (begun, before) = (done(&mut waiting), world.batches.len());
    assert!(begun <= 20);
    let later = online(&mut world, 12, 1_200);
    assert!(world.batches.len() - before >= 100 && later.len() == 100);
    world.pass(30_000 * MS);
    assert_eq!(world.unfinished(), [0]);
}

#[test]
fn a_draining_replica_passes_its_offline_queries_on() {
    let mut world = World::new(2, sums);
    world.apply_target(&target(1, "a", &[], &[(1, 0, 1, 10, &[(1, 1)])]));
    world.pass(5 * MS);
    let timed = RequestTerms { timeout_ns: Some(50 * MS), ..offline() };
    let mut short: Vec<_> = (0..20).map(|_| world.ask_on(1, "p", &[1.0], timed.clone())).collect();
    world.pass(100 * MS);
    let answered = done(&mut short);
    assert!((3..=6).contains(&answered), "{answered} of 20 have had their turn in 50 ms");
    assert_eq!(world.unfinished()[0], 0, "the rest was cancelled");
    let mut long: Vec<_> = (0..100).map(|_| world.ask_on(1, "p", &[1.0], offline())).collect();
    world.pass(20 * MS);
    world.apply_target(&target(2, "a", &[], &[(2, 0, 1, 10, &[(2, 2)])]));
    world.pass(5_000 * MS);
    assert_eq!((done(&mut long), world.unfinished()), (100, vec![0, 0]));
    assert_eq!(world.loaded[&1], BTreeSet::new(), "the old replica was not held up");
}
