//! What requests say beyond their inputs: how important they are, and what they need.

use super::world::*;
use super::*;
use crate::chooser::RequestNeeds;
use crate::policies::LEVEL_DEFAULT;
use apportion_protocol::v1;
use std::sync::mpsc::Receiver;

fn level(level: u32) -> RequestTerms {
    RequestTerms { level, ..RequestTerms::default() }
}

/// One task with one replica, batches of one in 10 ms, 100 ms for each request.
fn one() -> World {
    let mut world = World::new(1, sums);
    world.apply_target(&target(1, "a", &[], &[(1, 0, 1, 10, &[(1, 1)])]));
    world.pass(5 * MS);
    world
}

/// When each of these requests is answered, in whole milliseconds from now.
fn answered(world: &mut World, answers: Vec<Receiver<RequestAnswer>>) -> Vec<u64> {
    let (start_ns, mut times) = (world.now_ns, vec![0; answers.len()]);
    while times.contains(&0) {
        world.pass(MS);
        for (time, answer) in times.iter_mut().zip(&answers) {
            if *time == 0 && answer.try_recv().is_ok() {
                *time = (world.now_ns - start_ns) / MS;
            }
        }
    }
    times
}

#[test]
fn the_more_important_is_served_first_and_equals_in_turn() {
    let mut world = one();
    let levels = [LEVEL_DEFAULT, LEVEL_DEFAULT, LEVEL_DEFAULT + 1, LEVEL_DEFAULT, 1, 2, 1];
    let answers: Vec<_> = levels.iter().map(|l| world.ask_on(1, "p", &[1.0], level(*l))).collect();
    let times = answered(&mut world, answers);
    let mut order: Vec<usize> = (0..levels.len()).collect();
    order.sort_by_key(|at| times[*at]);
    assert_eq!(order, [4, 6, 5, 0, 1, 3, 2], "{times:?}");
}

#[test]
fn important_queries_overtake_others_until_these_would_be_late() {
    // The load is twice what can be served, all of it important: nothing else would have a turn.
    let mut world = one();
    let low = world.ask_on(1, "p", &[1.0], level(LEVEL_DEFAULT));
    let mut high = Vec::new();
    let mut done_ms = None;
    for _ in 0..100 {
        high.push(world.ask_on(1, "p", &[1.0], level(1)));
        world.pass(5 * MS);
        if done_ms.is_none() && low.try_recv().is_ok() {
            done_ms = Some(world.now_ns / MS);
        }
    }
    let done_ms = done_ms.expect("it has had its turn");
    assert!((10..=110).contains(&done_ms), "{done_ms} ms: it keeps its place when it would be late otherwise");
    // What is late already is passed, but not for longer than another SLO.
    let mut world = one();
    let backlog: Vec<_> = (0..30).map(|_| world.ask_on(1, "p", &[1.0], level(LEVEL_DEFAULT))).collect();
    world.pass(150 * MS);
    let important = world.ask_on(1, "p", &[1.0], level(1));
    let times = answered(&mut world, vec![important]);
    assert!(times[0] <= 30, "{times:?}: it passes those that are late");
    world.pass(70 * MS);
    let later = world.ask_on(1, "p", &[1.0], level(1));
    let times = answered(&mut world, vec![later]);
    assert!(times[0] > 40, "{times:?}: the turn of those that are late by an SLO has come");
    drop(backlog);
}

/// A chain `ab`; `b` has a slow and accurate group 2 at agent 2, and a fast one, 3, at agent 1.
fn choosing() -> v1::Target {
    let crews: [Crew<'_>; 3] = [(1, 0, 1, 5, &[(1, 1)]), (2, 1, 1, 20, &[(2, 2)]), (3, 1, 1, 5, &[(3, 1)])];
    let mut target = target(1, "ab", &[(true, 0, 1)], &crews);
    let of = &mut target.pipelines[0];
    for (group, name) in of.groups.iter_mut().zip(["only", "slow", "fast"]) {
        group.variant = name.into();
        group.price_per_hour = 1.0;
    }
    let choice = |b: u64, accuracy| v1::Choice { groups: vec![1, b], accuracy };
    of.choices = vec![choice(2, 0.9), choice(3, 0.5)];
    target
}

fn needing(accuracy: f64, latency_ms: u64) -> RequestTerms {
    let accuracy_ppm_min = (accuracy * 1e6) as u32;
    let needs = RequestNeeds { accuracy_ppm_min, latency_ns_max: latency_ms * MS, ..RequestNeeds::default() };
    RequestTerms { needs: Some(needs), ..RequestTerms::default() }
}

#[test]
fn what_is_needed_decides_which_variants_serve_on_all_agents() {
    let mut world = World::new(2, sums);
    world.apply_target(&choosing());
    world.pass(50 * MS);
    let mut ask = |agent: u64, terms: RequestTerms| {
        let answer = world.ask_on(agent, "p", &[1.0], terms);
        let before = world.batches.len();
        world.pass(200 * MS);
        let replicas: Vec<u64> = world.batches[before..].iter().map(|b| b.replica).collect();
        match answer.try_recv().expect("an answer") {
            RequestAnswer::Done { chosen, late, .. } => {
                Ok((chosen.map(|c| (c.variants, c.accuracy)).expect("it said what it needs"), late, replicas))
            }
            other => Err(other),
        }
    };
    for agent in [1, 2] {
        let fast = ask(agent, needing(0.0, 12)).expect("served");
        assert_eq!(fast, (("a:only,b:fast".into(), 0.5), false, vec![1, 3]), "agent {agent}");
        let accurate = ask(agent, needing(0.8, 90)).expect("served");
        assert_eq!(accurate, (("a:only,b:slow".into(), 0.9), false, vec![1, 2]), "agent {agent}");
        let Err(RequestAnswer::Unmet(why)) = ask(agent, needing(0.8, 12)) else { panic!("nothing does both") };
        assert!(why.contains("nearest are a:only,b:"), "{why}");
    }
}

#[test]
fn requests_with_equal_needs_spread_and_survive_a_lost_agent() {
    let mut world = World::new(2, sums);
    world.apply_target(&choosing());
    world.pass(50 * MS);
    // Both choices do; queues that nobody has reported yet count.
    let answers: Vec<_> = (0..20).map(|_| world.ask_on(1, "p", &[1.0], needing(0.0, 60))).collect();
    world.pass(400 * MS);
    let served = |a: Receiver<RequestAnswer>| match a.try_recv().expect("an answer") {
        RequestAnswer::Done { chosen: Some(chosen), .. } => chosen.variants,
        other => panic!("{other:?}"),
    };
    let seen: BTreeSet<String> = answers.into_iter().map(served).collect();
    assert_eq!(seen.len(), 2, "{seen:?}");
    // The accurate group goes away while it serves: nothing else is so accurate, so the request waits and then says so.
    let lost = world.ask_on(1, "p", &[1.0], needing(0.8, 90));
    let either = world.ask_on(1, "p", &[1.0], needing(0.4, 90));
    world.pass(6 * MS);
    world.lose(2);
    world.pass(3_000 * MS);
    assert!(matches!(lost.try_recv(), Ok(RequestAnswer::Failed(_) | RequestAnswer::NotReady(_) | RequestAnswer::GivenUp)));
    assert!(matches!(either.try_recv(), Ok(RequestAnswer::Done { .. })));
    assert_eq!(world.unfinished(), [0]);
}
