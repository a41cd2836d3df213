//! Slots of continuous tasks (PARD section 7): queries join and leave a replica one by one.

use super::world::*;
use crate::node::request::RequestAnswer;
use crate::replica_event::BatchFault;
use apportion_protocol::v1;

/// One task `a` with one replica at agent 1; each query stays 10 ms in one of its slots.
fn slots(generation: u64, count: u32) -> v1::Target {
    slots_of(generation, count, 10)
}

/// The same with queries that stay for so many milliseconds.
fn slots_of(generation: u64, count: u32, ms: u64) -> v1::Target {
    let mut target = target(generation, "a", &[], &[(1, 0, count, ms, &[(1, 1)])]);
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

#[test]
fn the_query_of_a_gone_client_leaves_its_slot() {
    let mut world = world_of(&slots_of(1, 1, 60));
    let start = world.now_ns;
    let answers = [1.0, 2.0].map(|x| world.ask(1, "p", &[x]));
    world.pass(5 * MS);
    world.disconnect_client(1);
    world.pass(90 * MS);
    assert_eq!(begun(&world, start), [(0, 1), (6, 1)], "the next query has the slot after the step in hand");
    assert_eq!(outcome(&answers[0]), Err(Missed::Answered(RequestAnswer::ClientGone)));
    assert_eq!(outcome(&answers[1]), Ok(vec![2.0]));
    assert_eq!(world.unfinished(), vec![0]);
    let counts = world.nodes.get_mut(&1).expect("there").take_counts();
    let group = &counts.groups[&("p".to_string(), 1)];
    assert_eq!((group.queries, group.ended_well.queries, group.failed, group.drops["cancelled"]), (2, 1, 0, 1));
    assert_eq!((group.busy_ns / MS, group.sizes[&1].batches), (66, 1), "its time was used, and is no latency");
    let requests = &counts.pipelines["p"];
    assert_eq!([requests.ok, requests.late, requests.dropped, requests.failed], [1, 0, 0, 0]);
}

#[test]
fn a_dropped_query_frees_the_slots_of_its_siblings() {
    // `c` cannot be on time, so its query is dropped as it would start, when that of `b` has its slot.
    let crews: [Crew<'_>; 3] = [(1, 0, 1, 10, &[(1, 1)]), (2, 1, 1, 60, &[(2, 1)]), (3, 2, 1, 200, &[(3, 1)])];
    let mut target = served(target(1, "abc", &[(true, 0, 1), (true, 0, 2)], &crews), "at_start", "last_task");
    target.pipelines[0].tasks[1].continuous = true;
    let mut world = world_of(&target);
    let start = world.now_ns;
    let answers = [1.0, 2.0].map(|x| world.ask(1, "p", &[x]));
    world.pass(200 * MS);
    let in_slot: Vec<_> = world.batches.iter().filter(|b| b.replica == 2).map(|b| (b.begun_ns - start) / MS).collect();
    assert_eq!(in_slot, [10, 20], "the second does not wait for 60 ms");
    for answer in &answers {
        assert_eq!(outcome(answer), Err(Missed::Answered(RequestAnswer::Dropped("task c: deadline".into()))));
    }
    assert_eq!(world.unfinished(), vec![0]);
    let counts = world.nodes.get_mut(&1).expect("there").take_counts();
    assert_eq!(counts.groups[&("p".to_string(), 2)].drops["cancelled"], 2);
}
