//! The last replica of a task is lost with its agent: its queries wait for the next plan, but not for ever.

use super::super::*;
use super::world::*;
use apportion_protocol::v1;

/// `a` at agent 1 and `b`, which it makes queries for, at one agent.
fn plan(generation: u64, b: (u64, u64)) -> v1::Target {
    let mut target = target(generation, "ab", &[(true, 0, 1)], &[(1, 0, 1, 1, &[(1, 1)]), (2, 1, 1, 1, &[b])]);
    target.pipelines[0].slo_ns = 1_000 * MS;
    target
}

/// One request every 10 ms for so long.
fn ask(world: &mut World, ms: u64, answers: &mut Vec<oneshot::Receiver<Answer>>) {
    for _ in 0..ms / 10 {
        answers.push(world.ask(1, "p", &[1.0]));
        world.pass(10 * MS);
    }
}

fn bereft() -> World {
    let mut world = World::new(3, sums);
    world.obey(&plan(1, (2, 2)));
    world.pass(100 * MS);
    world.lose(2);
    world
}

#[test]
fn what_comes_between_the_loss_and_the_next_plan_is_served_by_that() {
    let mut world = bereft();
    let mut answers = Vec::new();
    ask(&mut world, 200, &mut answers);
    assert!(answers.iter_mut().all(|a| a.try_recv().is_err()), "nobody can serve them yet");
    world.obey(&plan(2, (3, 3)));
    ask(&mut world, 200, &mut answers);
    world.pass(500 * MS);
    let failures: Vec<String> = answers.iter_mut().filter_map(|a| outcome(a).err()).collect();
    assert_eq!(failures, Vec::<String>::new());
}

#[test]
fn without_another_plan_they_fail_after_a_while_and_later_ones_at_once() {
    let mut world = bereft();
    let mut waiting = world.ask(1, "p", &[1.0]);
    world.pass(REPAIR_NS - 200 * MS);
    assert!(waiting.try_recv().is_err(), "it waits");
    world.pass(300 * MS);
    let told = Ok(Answer::NotReady("no replica of task b is ready".into()));
    assert_eq!(waiting.try_recv(), told);
    let mut later = world.ask(1, "p", &[1.0]);
    world.pass(5 * MS);
    assert_eq!(later.try_recv(), told, "as soon as `a` has run");
    assert_eq!(world.unfinished(), [0; 2]);
}
