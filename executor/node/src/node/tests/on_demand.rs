//! Requests that need variants which are not loaded.

use super::world::*;
use super::*;
use crate::chooser::RequestNeeds;
use crate::node::WAITING_MAX;
use apportion_protocol::v1;
use std::sync::mpsc::Receiver;

/// Time of a load.
const LOAD_NS: u64 = 300 * MS;

/// A task with group 1 (0.5) at agent 1; group 2 (0.9) is offered, and has these replicas. Each agent has two devices.
fn offering(generation: u64, replicas: &[(u64, u64)]) -> v1::Target {
    let mut target = target(generation, "a", &[], &[(1, 0, 1, 5, &[(1, 1)]), (2, 0, 1, 5, replicas)]);
    target.agents = [1, 2].map(|agent| v1::Peer { agent, hardware: "h".into(), devices: 2, ..Default::default() }).into();
    let of = &mut target.pipelines[0];
    of.loads_on_demand = true;
    for (group, (name, accuracy)) in of.groups.iter_mut().zip([("small", 0.5), ("large", 0.9)]) {
        (group.variant, group.accuracy, group.hardware) = (name.into(), accuracy, "h".into());
        (group.offered, group.load_ns) = (name == "large", LOAD_NS);
    }
    of.tables.iter_mut().for_each(|table| table.entries.retain(|entry| entry.group == 1));
    let choice = |group, accuracy| v1::Choice { groups: vec![group], accuracy };
    of.choices = vec![choice(1, 0.5), choice(2, 0.9)];
    target
}

/// Two agents under that target, without a replica of group 2.
fn world() -> World {
    let mut world = World::new(2, sums);
    world.load_ns = LOAD_NS;
    world.apply_target(&offering(1, &[]));
    world.pass(2 * LOAD_NS);
    world
}

fn needing(accuracy: f64) -> RequestTerms {
    let accuracy_ppm_min = (accuracy * 1e6) as u32;
    RequestTerms { needs: Some(RequestNeeds { accuracy_ppm_min, ..RequestNeeds::default() }), ..RequestTerms::default() }
}

fn ask(world: &mut World, agent: u64, terms: RequestTerms) -> Receiver<RequestAnswer> {
    world.ask_on(agent, "p", &[1.0], terms)
}

/// The variants that served a request, and whether that was late.
fn served(answer: &Receiver<RequestAnswer>) -> (String, bool) {
    match answer.try_recv().expect("an answer") {
        RequestAnswer::Done { chosen, late, .. } => (chosen.expect("it said its needs").variants, late),
        other => panic!("{other:?}"),
    }
}

fn why_not(answer: &Receiver<RequestAnswer>) -> String {
    match answer.try_recv().expect("an answer") {
        RequestAnswer::NotReady(why) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn requests_wait_for_what_the_next_target_loads() {
    let mut world = world();
    let early: Vec<_> = [1, 1, 2].map(|agent| ask(&mut world, agent, needing(0.8))).into();
    world.pass(100 * MS);
    assert!(early.iter().all(|answer| answer.try_recv().is_err()), "they wait");
    let said: Vec<_> =
        world.wants.iter().map(|(agent, want)| (*agent, want.pipeline.as_str(), want.groups.clone())).collect();
    assert_eq!(said, [(1, "p", vec![2]), (2, "p", vec![2])], "one want for all requests of a gateway");
    world.apply_target(&offering(2, &[(20, 2)]));
    world.pass(100 * MS);
    let during_the_load = ask(&mut world, 2, needing(0.8));
    world.pass(LOAD_NS);
    for answer in early.iter().take(2) {
        assert_eq!(served(answer), ("a:large".into(), false), "the load does not count as lateness");
    }
    assert_eq!([served(&early[2]).0, served(&during_the_load).0], ["a:large", "a:large"]);
    assert_eq!(world.wants.len(), 2, "none wants what is being loaded");
    let (before, plain) = (world.batches.len(), ask(&mut world, 2, RequestTerms::default()));
    world.pass(50 * MS);
    assert!(outcome(&plain).is_ok());
    assert!(world.batches[before..].iter().all(|batch| batch.replica == 1), "the plan's requests stay with the plan");
    assert_eq!(world.unfinished(), [0, 0]);
}

#[test]
fn a_want_is_said_again_until_nobody_waits() {
    let mut world = world();
    let waiting = ask(&mut world, 1, needing(0.8));
    world.pass(2_500 * MS);
    assert!(waiting.try_recv().is_err());
    assert_eq!(world.wants.len(), 3, "once a second: {:?}", world.wants);
    world.pass(1_000 * MS);
    assert!(why_not(&waiting).contains("the service has not loaded it"));
    let said = world.wants.len();
    world.pass(5_000 * MS);
    assert_eq!((world.wants.len(), world.unfinished()), (said, vec![0, 0]));
}

#[test]
fn needs_that_no_offer_meets_get_the_nearest_one() {
    let mut world = world();
    let answer = ask(&mut world, 1, needing(0.95));
    world.pass(50 * MS);
    let Ok(RequestAnswer::Unmet(why)) = answer.try_recv() else { panic!("nothing is so accurate") };
    assert!(why.contains("the nearest are a:large with 0.9000"), "{why}");
    assert!(world.wants.is_empty());
}

#[test]
fn a_timeout_bounds_the_wait() {
    let mut world = world();
    let within = |ms: u64| RequestTerms { timeout_ns: Some(ms * MS), ..needing(0.8) };
    let (short, long) = (ask(&mut world, 1, within(100)), ask(&mut world, 1, within(900)));
    world.pass(50 * MS);
    assert!(why_not(&short).contains("takes 300 ms: longer than the request waits"));
    assert_eq!(world.wants.len(), 1, "the next request may find it");
    world.pass(700 * MS);
    assert!(long.try_recv().is_err());
    world.pass(300 * MS);
    assert_eq!(long.try_recv().expect("an answer"), RequestAnswer::TimedOut);
}

#[test]
fn without_leave_to_load_wants_are_said_and_nobody_waits() {
    let mut world = World::new(2, sums);
    let mut target = offering(1, &[]);
    target.pipelines[0].loads_on_demand = false;
    world.apply_target(&target);
    world.pass(50 * MS);
    let answer = ask(&mut world, 1, needing(0.8));
    world.pass(50 * MS);
    assert!(why_not(&answer).contains("deploy nothing for them"));
    assert_eq!(world.wants.len(), 1);
}

#[test]
fn waiting_requests_are_bounded_and_end_with_the_agent() {
    let mut world = world();
    let all: Vec<_> = (0..=WAITING_MAX).map(|_| ask(&mut world, 1, needing(0.8))).collect();
    world.pass(10 * MS);
    assert!(why_not(&all[WAITING_MAX]).contains("1024 requests wait for variants"));
    assert!(all[0].try_recv().is_err());
    world.send_event(1, NodeEvent::Leave);
    world.pass(300 * MS);
    assert!(why_not(&all[0]).contains("stopping"));
    assert_eq!(world.nodes[&1].unfinished(), 0);
}

#[test]
fn a_steward_leaves_replicas_for_requests_alone() {
    let mut target = offering(1, &[(20, 2)]);
    let of = &mut target.pipelines[0];
    (of.demand_qps, of.ladder) = (10.0, vec![v1::LadderStep { rate_qps: 10.0, replicas: vec![1, 0] }]);
    let layout = crate::layout::lay_out(&target).expect("valid");
    let staffed: Vec<u64> = layout.pipelines["p"].staffed().iter().map(|group| group.id).collect();
    assert_eq!(staffed, [1]);
    let mut world = World::new(2, sums);
    world.apply_target(&target);
    world.pass(3_000 * MS);
    assert_eq!(world.loaded[&2], [20].into(), "the load of 0 releases nothing of it");
    // The next target does not have the replica: it goes, although the group is still offered.
    let mut next = offering(2, &[]);
    (next.pipelines[0].demand_qps, next.pipelines[0].ladder) =
        (10.0, vec![v1::LadderStep { rate_qps: 10.0, replicas: vec![1, 0] }]);
    world.apply_target(&next);
    world.pass(3_000 * MS);
    assert_eq!(world.loaded[&2], BTreeSet::new());
}
