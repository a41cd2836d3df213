//! Central queues (InferLine section 3): one agent holds the queue of a group, and sends batches to all its replicas.

use super::world::*;
use super::*;
use crate::policies::QueryHandle;
use crate::replica_event::BatchFault;
use apportion_domain::{Moment, TimeSpan};
use apportion_protocol::v1;
use apportion_serving::replica::{StationInput, StationOutput};
use std::sync::mpsc::Receiver;

/// The target with a central queue for each group, an SLO of a second, and these agents.
fn shared(mut target: v1::Target, agents: u64) -> v1::Target {
    let pipeline = &mut target.pipelines[0];
    pipeline.serving.get_or_insert_default().queueing = "central".into();
    pipeline.slo_ns = 1_000 * MS;
    target.agents = (1..=agents).map(|agent| v1::Peer { agent, ..Default::default() }).collect();
    target
}

/// One task `a` whose batches take 10 ms, with these replicas at agents 1 and 2.
fn plan(generation: u64, batch: u32, replicas: &[(u64, u64)]) -> v1::Target {
    shared(target(generation, "a", &[], &[(1, 0, batch, 10, replicas)]), 2)
}

const BOTH: &[(u64, u64)] = &[(1, 1), (2, 2)];

fn world_of(agents: u64, runs: Runs, target: &v1::Target) -> World {
    let mut world = World::new(agents, runs);
    world.apply_target(target);
    world.pass(5 * MS);
    world
}

/// Requests that come to an agent at once.
fn ask(world: &mut World, agent: u64, count: usize) -> Vec<Receiver<RequestAnswer>> {
    (0..count).map(|n| world.ask(agent, "p", &[n as f32])).collect()
}

/// How many of these requests were answered in time with their own numbers.
fn answered(answers: &[Receiver<RequestAnswer>]) -> usize {
    answers.iter().enumerate().filter(|(n, answer)| outcome(answer) == Ok(vec![*n as f32])).count()
}

/// The batches: when they began after this moment, their replica and size.
fn begun(world: &World, start: u64) -> Vec<(u64, u64, usize)> {
    world.batches.iter().map(|batch| (batch.begun_ns - start, batch.replica, batch.size)).collect()
}

/// The batches that one station of three servers starts, driven by hand: when, and how many queries.
fn driven(target: &v1::Target, arrivals_ns: &[u64]) -> Vec<(u64, usize)> {
    let layout = lay_out(target).expect("a valid target");
    let of = &layout.pipelines["p"];
    let mut station = of.queue_station(&of.groups[&1], 3);
    if let Some(states) = of.outline().state_planner().expect("few paths") {
        station.handle(Moment::ZERO, StationInput::Steer { view: states.view(0) });
        assert_eq!(station.poll_output(), None);
    }
    let mut arrivals = (1..).zip(arrivals_ns.iter().copied()).peekable();
    let (mut ends, mut begun) = (BTreeSet::new(), Vec::new());
    loop {
        let due = station.poll_timeout().map(|(at, _)| at.as_nanos());
        let events = [arrivals.peek().map(|(_, at)| *at), ends.first().map(|(at, _): &(u64, u32)| *at), due];
        let Some(now_ns) = events.into_iter().flatten().min() else { return begun };
        let now = Moment::from_nanos(now_ns);
        while let Some((request, _)) = arrivals.next_if(|(_, at)| *at == now_ns) {
            let query = QueryHandle { key: request, origin: 1, request, level: 100, kind: 0 };
            let deadline = now + TimeSpan::from_nanos(of.slo_ns);
            station.handle(now, StationInput::Arrive { query, deadline });
            assert_eq!(station.poll_output(), None, "nothing is refused");
        }
        while let Some((_, server)) = ends.first().copied().filter(|(at, _)| *at == now_ns) {
            ends.pop_first();
            station.handle(now, StationInput::BatchFinished { server });
            assert_eq!(station.poll_output(), None);
        }
        if station.poll_timeout().is_some_and(|(at, _)| at <= now) {
            station.handle(now, StationInput::Tick);
            while let Some(output) = station.poll_output() {
                if let StationOutput::StartBatch { server, size } = output {
                    begun.push((now_ns, size as usize));
                    ends.insert((now_ns + 10 * MS, server));
                }
            }
        }
    }
}

#[test]
fn three_replicas_are_one_station_to_the_nanosecond() {
    for batching in ["at_start", "forming", "wait_until"] {
        for dropping in ["naive", "last_task", "nexus", "nexus-split", "clipper++"] {
            // 600 queries a second are served, and 667 come: the queue grows, and policies drop.
            let mut target = plan(1, 2, &[(1, 1), (2, 1), (3, 1)]);
            let serving = target.pipelines[0].serving.as_mut().expect("set");
            (serving.batching, serving.dropping) = (batching.into(), dropping.into());
            target.pipelines[0].slo_ns = 25 * MS;
            let mut world = world_of(2, sums, &target);
            let (mut state, mut arrivals, mut answers) = (7_u64, Vec::new(), Vec::new());
            for n in 0..300 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                world.pass((state >> 33) % (3 * MS));
                arrivals.push(world.now_ns);
                answers.push(world.ask(1, "p", &[n as f32]));
            }
            world.pass(1_000 * MS);
            let seen: Vec<(u64, usize)> = world.batches.iter().map(|batch| (batch.begun_ns, batch.size)).collect();
            assert_eq!(seen, driven(&target, &arrivals), "{batching} {dropping}");
            assert!(answers.iter().all(|answer| answer.try_recv().is_ok()), "{batching} {dropping}: each has an answer");
            assert_eq!(world.unfinished(), [0, 0]);
        }
    }
}

#[test]
fn free_replicas_of_all_agents_take_batches_from_one_queue() {
    let mut world = world_of(2, sums, &plan(1, 1, BOTH));
    let (start, hop) = (world.now_ns, (world.hop_ns)(1, 2));
    let answers = ask(&mut world, 2, 4);
    world.pass(50 * MS);
    // Agent 1 holds the queue. The replica at agent 2 is idle for two hops between its batches: there and back.
    let expected = [(hop, 1, 1), (2 * hop, 2, 1), (hop + 10 * MS, 1, 1), (4 * hop + 10 * MS, 2, 1)];
    assert_eq!(begun(&world, start), expected);
    assert_eq!((answered(&answers), world.unfinished()), (4, vec![0, 0]));
    let count = |world: &mut World, agent| {
        let counts = world.nodes.get_mut(&agent).expect("there").take_counts();
        let group = &counts.groups[&("p".to_string(), 1)];
        (group.queries, group.waited_ns)
    };
    assert_eq!(count(&mut world, 1), (2, 10 * MS), "the second one waited for the first");
    assert_eq!(count(&mut world, 2), (2, 10 * MS + 2 * hop), "the time in the queue at agent 1 counts");
}

#[test]
fn whole_batches_go_to_each_replica() {
    let mut world = world_of(2, sums, &plan(1, 4, BOTH));
    let (start, hop) = (world.now_ns, (world.hop_ns)(1, 2));
    let answers = ask(&mut world, 1, 9);
    world.pass(50 * MS);
    assert_eq!(begun(&world, start), [(0, 1, 4), (hop, 2, 4), (10 * MS, 1, 1)]);
    assert_eq!((answered(&answers), world.unfinished()), (9, vec![0, 0]));
}

#[test]
fn queries_are_dropped_when_a_replica_is_free() {
    let mut target = plan(1, 1, BOTH);
    target.pipelines[0].serving.as_mut().expect("set").dropping = "last_task".into();
    target.pipelines[0].slo_ns = 25 * MS;
    let mut world = world_of(2, sums, &target);
    let answers = ask(&mut world, 1, 6);
    world.pass(100 * MS);
    assert_eq!((answered(&answers), world.batches.len(), world.unfinished()), (4, 4, vec![0, 0]));
    let counts = world.nodes.get_mut(&1).expect("there").take_counts();
    assert_eq!(counts.groups[&("p".to_string(), 1)].drops, [("deadline", 2)].into());
    assert_eq!(counts.pipelines["p"].dropped, 2);
}

#[test]
fn the_time_in_the_queue_counts_for_the_budget() {
    // The budget at `a` is two batches. The fifth query waits for two batches before its own.
    let crews: &[Crew<'_>] = &[(1, 0, 1, 10, BOTH), (2, 1, 1, 1, &[(3, 2)])];
    let mut target = shared(target(1, "ab", &[(true, 0, 1)], crews), 2);
    target.pipelines[0].serving.as_mut().expect("set").dropping = "per_task".into();
    let mut world = world_of(2, sums, &target);
    let answers = ask(&mut world, 1, 5);
    world.pass(100 * MS);
    let (late, rest): (Vec<_>, Vec<_>) = answers.iter().enumerate().partition(|(n, _)| *n >= 3);
    assert!(rest.into_iter().all(|(n, answer)| outcome(answer) == Ok(vec![n as f32])));
    for (n, answer) in late {
        // The fourth overruns by the hops to agent 2 alone.
        let missed = outcome(answer).expect_err("behind").to_string();
        assert!(missed.contains("task a: budget"), "{n}: {missed}");
    }
}

#[test]
fn slots_of_all_agents_take_queries_from_one_queue() {
    let mut target = plan(1, 2, BOTH);
    target.pipelines[0].tasks[0].continuous = true;
    let mut world = world_of(2, sums, &target);
    let (start, hop) = (world.now_ns, (world.hop_ns)(1, 2));
    let answers = ask(&mut world, 1, 5);
    world.pass(50 * MS);
    assert_eq!(begun(&world, start), [(0, 1, 1), (0, 1, 1), (hop, 2, 1), (hop, 2, 1), (10 * MS, 1, 1)]);
    assert_eq!((answered(&answers), world.unfinished()), (5, vec![0, 0]));
}

#[test]
fn a_failed_batch_elsewhere_keeps_no_replica_busy() {
    let mut world = world_of(2, sums, &plan(1, 3, BOTH));
    world.fails = |inputs| values(&inputs[0]).iter().any(|x| *x < 0.0).then(|| BatchFault::of_batch("below zero"));
    let bad = [1.0, 2.0, -3.0, 4.0, 5.0, -6.0].map(|x| world.ask(1, "p", &[x]));
    world.pass(200 * MS);
    let seen: Vec<bool> = bad.iter().map(|answer| outcome(answer).is_ok()).collect();
    assert_eq!(seen, [true, true, false, true, true, false], "members run alone, at both agents");
    let before = world.batches.len();
    let answers = ask(&mut world, 1, 6);
    world.pass(50 * MS);
    let after: BTreeSet<u64> = world.batches[before..].iter().map(|batch| batch.replica).collect();
    assert_eq!((answered(&answers), after, world.unfinished()), (6, [1, 2].into(), vec![0, 0]));
}

/// `a` at agent 3, and `b` with a central queue and replicas at agents 1 and 2.
fn before_two() -> v1::Target {
    let crews: &[Crew<'_>] = &[(1, 0, 8, 1, &[(1, 3)]), (2, 1, 1, 10, &[(2, 1), (3, 2)])];
    shared(target(1, "ab", &[(true, 0, 1)], crews), 3)
}

#[test]
fn the_next_agent_holds_the_queue_of_a_lost_one() {
    let mut world = world_of(3, sums, &before_two());
    let answers = ask(&mut world, 3, 6);
    world.pass(5 * MS);
    assert_eq!(world.nodes[&1].traffic.queues.waiting(), 4, "two run");
    world.lose(1);
    let lost_ns = world.now_ns;
    world.pass(200 * MS);
    assert_eq!((answered(&answers), world.unfinished()), (6, vec![0, 0]));
    let later = world.batches.iter().filter(|batch| batch.begun_ns > lost_ns);
    assert_eq!(later.filter(|batch| batch.replica == 2).count(), 0);
}

#[test]
fn a_batch_at_a_lost_agent_comes_back_into_the_queue() {
    let mut world = world_of(2, sums, &plan(1, 1, BOTH));
    let start = world.now_ns;
    let answers = ask(&mut world, 1, 3);
    world.pass(5 * MS);
    world.lose(2);
    world.pass(100 * MS);
    let here: Vec<u64> = world.batches.iter().filter(|b| b.replica == 1).map(|b| (b.begun_ns - start) / MS).collect();
    assert_eq!(here, [0, 10, 20]);
    assert_eq!((answered(&answers), world.unfinished()), (3, vec![0]));
}

#[test]
fn cancelled_queries_leave_the_queue() {
    // At `c` no batch can be on time, so each request is dropped there; at `b` two run and two wait at agent 2.
    let crews: &[Crew<'_>] = &[(1, 0, 4, 1, &[(1, 1)]), (2, 1, 1, 30, &[(2, 2), (4, 4)]), (3, 2, 1, 90, &[(3, 3)])];
    let mut target = shared(target(1, "abc", &[(true, 0, 1), (true, 0, 2)], crews), 4);
    target.pipelines[0].serving.as_mut().expect("set").dropping = "last_task".into();
    target.pipelines[0].slo_ns = 80 * MS;
    let mut world = world_of(4, sums, &target);
    let answers = ask(&mut world, 1, 4);
    world.pass(10 * MS);
    for answer in &answers {
        assert!(outcome(answer).expect_err("dropped").to_string().contains("task c: deadline"));
    }
    assert_eq!(world.nodes[&2].traffic.queues.waiting(), 0);
    world.pass(100 * MS);
    let of_b = world.batches.iter().filter(|batch| [2, 4].contains(&batch.replica)).count();
    assert_eq!((of_b, world.unfinished()), (2, vec![0, 0, 0, 0]));
}

#[test]
fn the_sibling_of_a_query_that_a_queue_drops_leaves_at_once() {
    // No batch of `c` can be on time. Its queue is at the gateway of the request, and drops the query after the last event.
    let crews: &[Crew<'_>] = &[(1, 0, 1, 1, &[(1, 2)]), (2, 1, 1, 30, &[(2, 1)]), (3, 2, 1, 90, &[(3, 1)])];
    let mut target = shared(target(1, "abc", &[(true, 0, 1), (true, 0, 2)], crews), 2);
    target.pipelines[0].serving.as_mut().expect("set").dropping = "last_task".into();
    target.pipelines[0].slo_ns = 80 * MS;
    let mut world = world_of(2, sums, &target);
    let answers = ask(&mut world, 1, 2);
    world.pass(5 * MS);
    for answer in &answers {
        assert!(outcome(answer).expect_err("dropped").to_string().contains("task c: deadline"));
    }
    assert_eq!(world.nodes[&1].traffic.queues.waiting(), 0, "no query waits for the next event to leave");
    world.pass(100 * MS);
    let of_b = world.batches.iter().filter(|batch| batch.replica == 2).count();
    assert_eq!((of_b, world.unfinished()), (0, vec![0, 0]));
}

#[test]
fn queued_queries_follow_the_queue_to_another_agent() {
    // The plan takes the replica from agent 1, or gives it one.
    for (before, after, holders) in [(BOTH, &BOTH[1..], [1, 2]), (&BOTH[1..], BOTH, [2, 1])] {
        let mut world = world_of(2, sums, &plan(1, 1, before));
        let waits_at = |world: &World| -> Vec<u64> {
            let nodes = world.nodes.iter().filter(|(_, node)| node.traffic.queues.waiting() > 0);
            nodes.map(|(agent, _)| *agent).collect()
        };
        let answers = ask(&mut world, 1, 20);
        world.pass(MS);
        assert_eq!(waits_at(&world), [holders[0]]);
        world.apply_target(&plan(2, 1, after));
        world.pass(60 * MS);
        assert_eq!(waits_at(&world), [holders[1]], "{before:?} to {after:?}");
        world.pass(2_000 * MS);
        assert_eq!((answered(&answers), world.unfinished()), (20, vec![0, 0]));
        assert_eq!(world.batches.len(), 20, "none runs twice");
        assert_eq!(world.loaded[&2], [2].into());
    }
}

#[test]
fn a_plan_may_change_the_place_where_queries_wait() {
    let apart = |generation| {
        let mut target = plan(generation, 1, BOTH);
        target.pipelines[0].serving.as_mut().expect("set").queueing = "per_replica".into();
        target
    };
    let mut world = world_of(2, sums, &apart(1));
    let answers = ask(&mut world, 1, 10);
    world.pass(MS);
    world.apply_target(&plan(2, 1, BOTH));
    world.pass(15 * MS);
    let waiting = |world: &World| world.nodes.values().map(|node| node.traffic.queues.waiting()).collect::<Vec<_>>();
    assert_eq!(waiting(&world), [6, 0]);
    world.apply_target(&apart(3));
    world.pass(MS);
    assert_eq!(waiting(&world), [0, 0]);
    world.pass(500 * MS);
    assert_eq!((answered(&answers), world.batches.len(), world.unfinished()), (10, 10, vec![0, 0]));
}

#[test]
fn a_plan_with_other_batches_keeps_the_queue() {
    let mut world = world_of(2, sums, &plan(1, 1, BOTH));
    let answers = ask(&mut world, 1, 10);
    world.pass(MS);
    world.apply_target(&plan(2, 4, BOTH));
    world.pass(100 * MS);
    let sizes: Vec<usize> = world.batches.iter().map(|batch| batch.size).collect();
    assert_eq!(sizes, [1, 1, 4, 4]);
    assert_eq!((answered(&answers), world.unfinished()), (10, vec![0, 0]));
}

#[test]
fn the_holder_announces_what_waits() {
    let mut world = world_of(2, sums, &plan(1, 1, BOTH));
    let answers = ask(&mut world, 2, 400);
    world.pass(990 * MS);
    assert_eq!(world.nodes[&1].replicas().map(|replica| replica.load().queued).sum::<u32>(), 0, "not yet measured");
    world.pass(10 * MS);
    let told = world.nodes[&1].replicas().next().expect("one").load();
    let there = world.nodes[&1].traffic.queues.waiting();
    assert!(told.queued as usize > there && there > 0, "{} announced, {there} wait", told.queued);
    drop(answers);
}
