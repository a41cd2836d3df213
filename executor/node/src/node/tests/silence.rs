//! An agent hangs: its connections stay, and nothing comes of it.

use super::world::*;
use super::*;
use crate::node::fleet::peers::SILENCE_NS_MAX;
use apportion_protocol::v1;
use std::sync::mpsc::Receiver;

/// `a` at agent 1 and `b` at agents 2 and 3.
fn plan() -> v1::Target {
    let mut target = target(1, "ab", &[(true, 0, 1)], &[(1, 0, 1, 1, &[(1, 1)]), (2, 1, 1, 1, &[(2, 2), (3, 3)])]);
    target.pipelines[0].slo_ns = 200 * MS;
    target
}

fn served() -> World {
    let mut world = World::new(3, sums);
    world.apply_target(&plan());
    world.pass(1_000 * MS);
    world
}

/// One request every 10 ms for so long.
fn ask(world: &mut World, ms: u64) -> Vec<Receiver<RequestAnswer>> {
    let ask = |_| {
        let answer = world.ask(1, "p", &[1.0]);
        world.pass(10 * MS);
        answer
    };
    (0..ms / 10).map(ask).collect()
}

fn failures(answers: Vec<Receiver<RequestAnswer>>) -> Vec<RequestAnswer> {
    let answers = answers.into_iter().map(|a| a.try_recv().unwrap_or(RequestAnswer::GivenUp));
    answers.filter(|a| !matches!(a, RequestAnswer::Done { .. })).collect()
}

#[test]
fn no_request_fails_while_an_agent_hangs() {
    let mut world = served();
    world.hang(2);
    let first = ask(&mut world, 3_000);
    world.pass(2_000 * MS);
    assert_eq!(failures(first), Vec::new());
    let begun = world.batches.len();
    let lost = ask(&mut world, 500);
    world.pass(200 * MS);
    let late = |a: &RequestAnswer| matches!(a, RequestAnswer::Done { late: true, .. });
    assert_eq!(lost.into_iter().map(|a| a.try_recv().expect("answered")).filter(late).count(), 0, "nothing goes there");
    assert!(world.batches[begun..].iter().all(|b| b.replica != 2));
    world.resume(2);
    world.pass(SILENCE_NS_MAX);
    let begun = world.batches.len();
    assert_eq!(failures(ask(&mut world, 500)).len(), 0);
    assert!(world.batches[begun..].iter().any(|b| b.replica == 2), "it serves again");
}

#[test]
fn an_agents_own_pause_loses_nobody() {
    let mut world = served();
    world.hang(1);
    world.pass(20_000 * MS);
    world.resume(1);
    world.pass(100 * MS);
    assert!(
        world.nodes[&1].traffic.fleet.peers().connected().count() == 2
            && world.nodes[&1].traffic.fleet.peers().newly_silent(world.now_ns).is_empty()
    );
    world.pass(SILENCE_NS_MAX);
    assert!(
        [2, 3].iter().all(|other| world.nodes[other].traffic.fleet.peers().connected().count() == 2),
        "and it is heard again"
    );
}

#[test]
fn agents_that_lost_each_other_reconnect() {
    let mut world = served();
    world.is_cut = true;
    world.pass(2 * SILENCE_NS_MAX);
    assert!(
        world.nodes.values().all(|node| node.traffic.fleet.peers().connected().count() == 0
            && node.traffic.fleet.peers().listeners().count() == 2)
    );
    world.is_cut = false;
    world.pass(SILENCE_NS_MAX);
    assert!(world.nodes.values().all(|node| node.traffic.fleet.peers().connected().count() == 2));
    assert_eq!(failures(ask(&mut world, 300)).len(), 0);
}
