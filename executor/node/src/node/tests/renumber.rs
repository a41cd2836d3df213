//! A restored database numbers agents and replicas anew.

use super::world::*;
use super::*;
use apportion_protocol::v1;

/// `a` and `b` at agent 1, with these numbers of their replicas and groups, and files.
fn plan(incarnation: u64, [a, b]: [(u64, &str); 2]) -> v1::Target {
    let crews = [(a.0, 0, 1, 1, &[(a.0, 1)][..]), (b.0, 1, 1, 1, &[(b.0, 1)][..])];
    let mut target = target(1, "ab", &[(true, 0, 1)], &crews);
    target.fence = Some(v1::Fence { incarnation, generation: 1 });
    for (group, (_, digest)) in target.pipelines[0].groups.iter_mut().zip([a, b]) {
        group.file_digest = digest.into();
    }
    target
}

fn serves(world: &mut World) -> bool {
    let answer = world.ask(1, "p", &[4.0]);
    world.pass(50 * MS);
    outcome(&answer) == Ok(vec![4.0])
}

#[test]
fn what_is_loaded_is_not_loaded_again_under_another_number() {
    let mut world = World::new(1, sums);
    world.apply_target(&plan(1, [(1, "x"), (2, "y")]));
    world.pass(100 * MS);
    world.broken = |_| true;
    world.apply_target(&plan(2, [(2, "x"), (7, "y")]));
    world.pass(100 * MS);
    assert_eq!(world.failures, Vec::<u64>::new(), "nothing is loaded");
    assert_eq!(world.loaded[&1], [2, 7].into());
    assert!(serves(&mut world));
}

#[test]
fn a_number_with_another_file_loads_beside_the_old_replica() {
    let mut world = World::new(1, sums);
    world.apply_target(&plan(1, [(1, "x"), (2, "y")]));
    world.pass(100 * MS);
    world.load_ns = 300 * MS;
    world.apply_target(&plan(2, [(1, "x"), (2, "z")]));
    world.pass(100 * MS);
    assert_eq!(world.loaded[&1].len(), 3, "the old one of task b serves on");
    assert!(serves(&mut world));
    world.pass(3_000 * MS);
    assert_eq!(world.loaded[&1], [1, 2].into());
    assert!(serves(&mut world));
}

#[test]
fn a_variant_that_asks_for_other_threads_is_loaded_again() {
    let mut world = World::new(1, sums);
    let mut target = plan(1, [(1, "x"), (2, "y")]);
    world.apply_target(&target);
    world.pass(100 * MS);
    world.load_ns = 300 * MS;
    target.fence = Some(v1::Fence { incarnation: 1, generation: 2 });
    target.pipelines[0].groups[0].threads = 2;
    world.apply_target(&target);
    world.pass(100 * MS);
    assert_eq!(world.loaded[&1].len(), 3, "the one with the former threads serves on");
    assert!(serves(&mut world));
    world.pass(3_000 * MS);
    assert_eq!(world.loaded[&1], [1, 2].into());
    assert!(serves(&mut world));
}

#[test]
fn a_batch_that_runs_while_numbers_change_is_answered() {
    let mut world = World::new(1, sums);
    let slow = |incarnation, numbers| {
        let mut target = plan(incarnation, numbers);
        target.pipelines[0].groups.iter_mut().for_each(|g| g.service[0].latency_ns = 20 * MS);
        target
    };
    world.apply_target(&slow(1, [(1, "x"), (2, "y")]));
    world.pass(100 * MS);
    let answer = world.ask(1, "p", &[4.0]);
    world.pass(10 * MS);
    world.apply_target(&slow(2, [(2, "x"), (1, "y")]));
    world.pass(60 * MS);
    assert_eq!(outcome(&answer), Ok(vec![4.0]));
}

#[test]
fn central_queues_know_their_replicas_by_their_new_numbers() {
    let mut world = World::new(1, sums);
    let central = |incarnation, numbers| {
        let mut target = plan(incarnation, numbers);
        let pipeline = &mut target.pipelines[0];
        pipeline.serving.get_or_insert_default().queueing = "central".into();
        pipeline.groups.iter_mut().for_each(|group| group.service[0].latency_ns = 20 * MS);
        pipeline.slo_ns = 1_000 * MS;
        target
    };
    world.apply_target(&central(1, [(1, "x"), (2, "y")]));
    world.pass(100 * MS);
    let answers = [1.0, 2.0, 3.0, 4.0].map(|x| world.ask(1, "p", &[x]));
    world.pass(30 * MS);
    let waiting = |world: &World| world.nodes[&1].traffic.queues.waiting();
    assert_eq!((world.batches.len(), waiting(&world)), (3, 2), "`a` and `b` run one query each, and one has passed `a`");
    // Replicas and groups of both tasks change their numbers with each other.
    world.apply_target(&central(2, [(2, "x"), (1, "y")]));
    world.pass(5 * MS);
    assert_eq!((world.batches.len(), waiting(&world)), (3, 2), "the replica of `a` is still busy");
    world.pass(200 * MS);
    let seen = answers.map(|answer| outcome(&answer));
    assert_eq!(seen, [1.0, 2.0, 3.0, 4.0].map(|x| Ok(vec![x])));
    assert_eq!((world.batches.len(), world.unfinished()), (8, vec![0]));
}

#[test]
fn a_renumbered_agent_answers_the_requests_that_it_began() {
    let mut world = World::new(1, sums);
    let target = plan(1, [(1, "x"), (2, "y")]);
    world.apply_target(&target);
    world.pass(100 * MS);
    let answer = world.ask(1, "p", &[4.0]);
    world.pass(0);
    let mut next = plan(2, [(1, "x"), (2, "y")]);
    next.pipelines[0].replicas.iter_mut().for_each(|r| r.agent = 5);
    next.agents[0].agent = 5;
    world.send_event(1, NodeEvent::AgentNumber(5));
    world.apply_target(&next);
    world.pass(50 * MS);
    assert_eq!(outcome(&answer), Ok(vec![4.0]));
    assert_eq!(world.loaded[&1], [1, 2].into());
}
