//! The plan's policies at one or two agents, to the nanosecond.

use super::world::*;
use super::*;
use std::sync::mpsc::{Receiver, TryRecvError};

/// One task `a` with one replica at agent 1, batches of at most `batch` in 10 ms, 25 ms for each request.
fn one(batching: &str, dropping: &str, batch: u32) -> World {
    let mut target = served(target(1, "a", &[], &[(1, 0, batch, 10, &[(1, 1)])]), batching, dropping);
    target.pipelines[0].slo_ns = 25 * MS;
    let mut world = World::new(1, sums);
    world.apply_target(&target);
    world.pass(5 * MS);
    world
}

/// What five requests that come at once have come to, by name.
fn five(world: &mut World) -> Vec<String> {
    let answers: Vec<_> = (0..5).map(|n| world.ask(1, "p", &[n as f32])).collect();
    world.pass(2_500 * MS);
    assert_eq!(world.unfinished(), [0]);
    let name = |answer: &Receiver<RequestAnswer>| match answer.try_recv().expect("an answer") {
        RequestAnswer::Done { late: false, .. } => "ok".to_string(),
        RequestAnswer::Done { .. } => "late".to_string(),
        RequestAnswer::Dropped(reason) => reason,
        other => format!("{other:?}"),
    };
    answers.iter().map(name).collect()
}

#[test]
fn each_policy_drops_what_it_should_and_says_why() {
    let [ok, late] = ["ok", "late"].map(String::from);
    let dropped = |reason: &str| format!("task a: {reason}");
    let cases = [
        ("at_start", "naive", vec![&ok, &ok, &late, &late, &late], ""),
        ("at_start", "last_task", vec![&ok, &ok], "deadline"),
        ("at_start", "nexus", vec![&ok, &ok], "deadline"),
        ("at_start", "nexus-split", vec![&ok, &ok], "budget"),
        ("forming", "pard", vec![&ok, &ok], "predicted"),
        ("forming", "pard-split", vec![&ok, &ok], "budget"),
        // The whole SLO is this task's: who waits for longer has gone.
        ("at_start", "clipper++", vec![&ok, &ok, &late], "budget"),
    ];
    for (batching, dropping, kept, reason) in cases {
        let seen = five(&mut one(batching, dropping, 1));
        let expected = kept.into_iter().cloned().chain(std::iter::repeat(dropped(reason))).take(5);
        assert_eq!(seen, expected.collect::<Vec<_>>(), "{batching} {dropping}");
    }
}

#[test]
fn drops_are_counted_by_reason() {
    let mut world = one("at_start", "last_task", 1);
    five(&mut world);
    let counts = world.nodes.get_mut(&1).expect("there").take_counts();
    assert_eq!(counts.groups[&("p".to_string(), 1)].drops, [("deadline", 3)].into());
    assert_eq!((counts.pipelines["p"].ok, counts.pipelines["p"].dropped), (2, 3));
}

#[test]
fn a_batch_starts_as_late_as_its_oldest_query_allows() {
    let mut world = one("wait_until", "naive", 4);
    let start = world.now_ns;
    let first = world.ask(1, "p", &[1.0]);
    world.pass(7 * MS);
    let second = world.ask(1, "p", &[2.0]);
    world.pass(60 * MS);
    // 25 ms less the batch's own 10.
    assert_eq!(world.batches, [Started { begun_ns: start + 15 * MS, replica: 1, size: 2 }]);
    assert_eq!((outcome(&first), outcome(&second)), (Ok(vec![1.0]), Ok(vec![2.0])));
    let start = world.now_ns;
    let full: Vec<_> = (0..4).map(|n| world.ask(1, "p", &[n as f32])).collect();
    world.pass(MS);
    let started = Started { begun_ns: start, replica: 1, size: 4 };
    assert_eq!((full.len(), world.batches.last()), (4, Some(&started)), "a full batch waits for nothing");
}

/// `a` at agent 1, then `b` at agent 2: slow and accurate, or fast.
fn behind(dropping: &str) -> World {
    let crews: &[Crew<'_>] = &[(1, 0, 1, 10, &[(1, 1)]), (2, 1, 1, 20, &[(2, 2)]), (3, 1, 1, 5, &[(3, 2)])];
    let mut target = served(target(1, "ab", &[(true, 0, 1)], crews), "at_start", dropping);
    let tables = &mut target.pipelines[0].tables;
    tables.iter_mut().filter(|t| t.from == Some(1)).for_each(|t| t.entries.truncate(1));
    target.pipelines[0].backup = vec![3];
    let mut world = World::new(2, sums);
    world.apply_target(&target);
    world.pass(5 * MS);
    world
}

#[test]
fn a_late_query_is_rerouted_or_dropped() {
    // The budget at `a` is twice its 10 ms: the third is 10 ms behind, which the fast group makes up for; the fourth 20.
    for (dropping, third) in [("reroute", true), ("per_task", false)] {
        let mut world = behind(dropping);
        let answers: Vec<_> = (0..4).map(|n| world.ask(1, "p", &[n as f32])).collect();
        world.pass(2_500 * MS);
        assert_eq!(world.unfinished(), [0, 0]);
        let seen: Vec<bool> = answers.iter().map(|a| outcome(a).is_ok()).collect();
        assert_eq!(seen, [true, true, third, false], "{dropping}");
        assert_eq!(world.batches.iter().filter(|b| b.replica == 3).count(), usize::from(third));
        let fourth = world.nodes.get_mut(&1).expect("there").take_counts().pipelines["p"].dropped;
        assert_eq!(fourth, 2 - u64::from(third));
    }
}

/// The first number is how many children each row has.
fn splits(task: &str, inputs: &[Tensor]) -> Vec<Tensor> {
    if task != "a" {
        return sums(task, inputs);
    }
    let (mut rows, mut parents) = (Vec::new(), Vec::new());
    for (parent, value) in values(&inputs[0]).into_iter().enumerate() {
        rows.extend(std::iter::repeat_n(value, value as usize));
        parents.extend(std::iter::repeat_n((parent as i64).to_le_bytes(), value as usize).flatten());
    }
    let shape = vec![rows.len()];
    let datatype = crate::tensor::Datatype::Int64;
    vec![numbers("y", &rows), Tensor { name: "parent".into(), datatype, shape, data: parents.into() }]
}

#[test]
fn one_dropped_part_cancels_the_rest_of_its_request() {
    for partial in [false, true] {
        // `b` takes 40 ms: of four children at two replicas, two are on time.
        let crews: &[Crew<'_>] = &[(1, 0, 1, 1, &[(1, 1)]), (2, 1, 1, 40, &[(2, 2), (3, 3)])];
        let mut target = served(target(1, "ab", &[(true, 0, 1)], crews), "forming", "last_task");
        target.pipelines[0].slo_ns = 50 * MS;
        target.pipelines[0].partial = partial;
        let mut world = World::new(3, splits);
        world.apply_target(&target);
        world.pass(5 * MS);
        let begun = world.now_ns;
        let four = world.ask(1, "p", &[4.0]);
        let mut waiting = 0;
        while let Err(TryRecvError::Empty) = four.try_recv().inspect(|answer| match answer {
            RequestAnswer::Done { pieces, dropped, .. } => {
                assert!(partial && (pieces.len(), *dropped) == (2, 2), "{answer:?}")
            }
            RequestAnswer::Dropped(reason) => assert!(!partial && reason == "task b: deadline"),
            _ => panic!("{answer:?}"),
        }) {
            waiting += 1;
            assert!(waiting < 1_000, "never answered");
            world.pass(MS / 10);
        }
        let took = world.now_ns - begun;
        assert_eq!(took < 10 * MS, !partial, "without partial answers the first drop answers: {took}");
        world.pass(100 * MS);
        assert_eq!(world.unfinished(), [0, 0, 0]);
        assert_eq!(
            world.batches.iter().filter(|b| b.replica > 1).count(),
            2,
            "what runs is finished, the rest is not begun"
        );
    }
}

#[test]
fn what_waits_elsewhere_is_cancelled_by_the_first_drop() {
    // One child is dropped at once (its queue is refused), the others wait behind a long batch at another agent.
    let crews: &[Crew<'_>] = &[(1, 0, 1, 1, &[(1, 1)]), (2, 1, 1, 30, &[(2, 2)]), (3, 2, 1, 90, &[(3, 3)])];
    let edges = [(true, 0, 1), (true, 0, 2)];
    let mut target = served(target(1, "abc", &edges, crews), "at_start", "last_task");
    target.pipelines[0].slo_ns = 80 * MS;
    let mut world = World::new(3, sums);
    world.apply_target(&target);
    world.pass(5 * MS);
    // At `c` no batch can be on time, so each request is dropped there; at `b` the first runs and the others wait.
    let mut answers: Vec<_> = (0..3).map(|n| world.ask(1, "p", &[n as f32])).collect();
    world.pass(10 * MS);
    for answer in &mut answers {
        assert!(outcome(answer).expect_err("dropped").to_string().contains("task c: deadline"));
    }
    let running = world.nodes[&2].replicas().map(LocalReplica::len).sum::<usize>();
    assert_eq!(running, 1, "only what runs is left");
    world.pass(100 * MS);
    assert_eq!((world.unfinished(), world.batches.iter().filter(|b| b.replica == 2).count()), (vec![0, 0, 0], 1));
}

#[test]
fn a_kept_replica_follows_the_new_targets_batch_and_policies() {
    let mut world = one("at_start", "naive", 1);
    let begun: Vec<_> = (0..5).map(|n| world.ask(1, "p", &[n as f32])).collect();
    world.pass(MS);
    let mut larger = served(target(2, "a", &[], &[(1, 0, 4, 10, &[(1, 1)])]), "at_start", "naive");
    larger.pipelines[0].slo_ns = 25 * MS;
    world.apply_target(&larger);
    world.pass(100 * MS);
    let sizes: Vec<usize> = world.batches.iter().map(|b| b.size).collect();
    assert_eq!((begun.len(), sizes, world.unfinished()), (5, vec![1, 4], vec![0]));
}
