//! Slots of continuous tasks (PARD section 7): queries join and leave a replica one by one.

use super::world::*;
use crate::replica_event::BatchFault;
use apportion_protocol::v1;

/// One task `a` with one replica at agent 1; each query stays 10 ms in one of its slots.
fn slots(generation: u64, count: u32) -> v1::Target {
    let mut target = target(generation, "a", &[], &[(1, 0, count, 10, &[(1, 1)])]);
    target.pipelines[0].tasks[0].continuous = true;
    target
}

fn world_of(target: &v1::Target) -> World {
    let mut world = World::new(1, sums);
    world.apply_target(target);
    world.pass(5 * MS);
    world
}

/// When the batches began, in ms after this moment, and their sizes.
fn begun(world: &World, start: u64) -> Vec<(u64, usize)> {
    world.batches.iter().map(|batch| ((batch.begun_ns - start) / MS, batch.size)).collect()
}

#[test]
fn queries_join_and_leave_slots_one_by_one() {
    let mut world = world_of(&slots(1, 3));
    let start = world.now_ns;
    let mut answers = vec![world.ask(1, "p", &[1.0])];
    world.pass(4 * MS);
    answers.extend([2.0, 3.0].map(|x| world.ask(1, "p", &[x])));
    world.pass(MS);
    answers.push(world.ask(1, "p", &[4.0]));
    world.pass(50 * MS);
    assert_eq!(begun(&world, start), [(0, 1), (4, 1), (4, 1), (10, 1)], "the fourth takes the first slot that is free");
    let seen: Vec<_> = answers.iter().map(outcome).collect();
    assert_eq!(seen, [1.0, 2.0, 3.0, 4.0].map(|x| Ok(vec![x])));
    let counts = world.nodes.get_mut(&1).expect("there").take_counts();
    let group = &counts.groups[&("p".to_string(), 1)];
    assert_eq!((group.batches, group.queries, group.ended_well.queries), (4, 4, 4));
    assert_eq!(group.ended_well.batches, 0, "times of their own say nothing of the profile");
    assert_eq!(group.busy_ns / MS, 13, "three slots side by side");
}

#[test]
fn a_failed_query_leaves_the_other_slots_alone() {
    let mut world = world_of(&slots(1, 2));
    world.fails = |inputs| (values(&inputs[0])[0] < 0.0).then(|| BatchFault::of_batch("below zero"));
    let answers = [-1.0, 1.0].map(|x| world.ask(1, "p", &[x]));
    world.pass(50 * MS);
    assert!(outcome(&answers[0]).is_err());
    assert_eq!(outcome(&answers[1]), Ok(vec![1.0]));
    assert_eq!((world.batches.len(), world.unfinished()), (2, vec![0]), "no query runs again");
}

#[test]
fn another_number_of_slots_holds_when_all_have_ended() {
    let mut world = world_of(&slots(1, 2));
    let start = world.now_ns;
    let mut answers = vec![world.ask(1, "p", &[1.0])];
    world.pass(4 * MS);
    answers.push(world.ask(1, "p", &[2.0]));
    world.pass(MS);
    world.apply_target(&slots(2, 1));
    world.pass(MS);
    answers.extend([3.0, 4.0].map(|x| world.ask(1, "p", &[x])));
    world.pass(60 * MS);
    assert_eq!(begun(&world, start), [(0, 1), (4, 1), (14, 1), (24, 1)], "a free slot of the old target stays free");
    assert!(answers.iter().all(|answer| outcome(answer).is_ok()));
}

/// The same task in batches.
fn batches() -> v1::Target {
    target(1, "a", &[], &[(1, 0, 2, 10, &[(1, 1)])])
}

#[test]
fn a_task_of_another_kind_is_loaded_again() {
    let mut world = world_of(&batches());
    world.apply_target(&slots(2, 2));
    world.pass(50 * MS);
    let start = world.now_ns;
    let answers = [1.0, 2.0].map(|x| world.ask(1, "p", &[x]));
    world.pass(50 * MS);
    assert_eq!(begun(&world, start), [(0, 1), (0, 1)]);
    assert!(answers.iter().all(|answer| outcome(answer).is_ok()));
    world.pass(1_000 * MS);
    assert_eq!(world.loaded[&1], [1].into());
}

#[test]
fn the_replica_of_the_former_kind_serves_until_the_next_is_ready() {
    let mut world = world_of(&batches());
    world.load_ns = 500 * MS;
    world.apply_target(&slots(2, 2));
    world.pass(50 * MS);
    let answer = world.ask(1, "p", &[3.0]);
    world.pass(100 * MS);
    assert_eq!(outcome(&answer), Ok(vec![3.0]));
}

#[test]
fn a_load_of_the_former_kind_makes_nothing_ready() {
    let mut world = World::new(1, sums);
    world.load_ns = 100 * MS;
    world.apply_target(&batches());
    world.pass(60 * MS);
    world.apply_target(&slots(2, 2));
    let is_ready = |world: &World| world.nodes[&1].replicas().any(|replica| replica.takes_queries());
    world.pass(60 * MS);
    assert!(!is_ready(&world), "only the thread of the former kind has loaded by now");
    world.pass(100 * MS);
    assert!(is_ready(&world));
}
