//! The last replica of a task is lost with its agent: its queries wait for the next plan, but not for ever.

use super::world::*;
use super::*;
use apportion_protocol::v1;
use std::sync::mpsc::Receiver;

/// `a` at agent 1 and `b`, which it makes queries for, at one agent.
fn plan(generation: u64, b: (u64, u64)) -> v1::Target {
    let mut target = target(generation, "ab", &[(true, 0, 1)], &[(1, 0, 1, 1, &[(1, 1)]), (2, 1, 1, 1, &[b])]);
    target.pipelines[0].slo_ns = 1_000 * MS;
    target
}

/// One request every 10 ms for so long.
fn ask(world: &mut World, ms: u64, answers: &mut Vec<Receiver<RequestAnswer>>) {
    for _ in 0..ms / 10 {
        answers.push(world.ask(1, "p", &[1.0]));
        world.pass(10 * MS);
    }
}

fn bereft() -> World {
    let mut world = World::new(3, sums);
    world.apply_target(&plan(1, (2, 2)));
    world.pass(100 * MS);
    world.lose(2);
    world
}

#[test]
fn the_next_plan_serves_queries_parked_since_the_loss() {
    let mut world = bereft();
    let mut answers = Vec::new();
    ask(&mut world, 200, &mut answers);
    assert!(answers.iter().all(|a| a.try_recv().is_err()), "nobody can serve them yet");
    world.apply_target(&plan(2, (3, 3)));
    ask(&mut world, 200, &mut answers);
    world.pass(500 * MS);
    let failures: Vec<Missed> = answers.iter().filter_map(|a| outcome(a).err()).collect();
    assert_eq!(failures, []);
}

#[test]
fn without_a_next_plan_parked_queries_fail_after_a_while() {
    let mut world = bereft();
    let waiting = world.ask(1, "p", &[1.0]);
    world.pass(REPAIR_NS - 200 * MS);
    assert!(waiting.try_recv().is_err(), "it waits");
    world.pass(300 * MS);
    let told = Ok(RequestAnswer::NotReady("no replica of task b is ready".into()));
    assert_eq!(waiting.try_recv(), told);
    let later = world.ask(1, "p", &[1.0]);
    world.pass(5 * MS);
    assert_eq!(later.try_recv(), told, "as soon as `a` has run");
    assert_eq!(world.unfinished(), [0; 2]);
}
