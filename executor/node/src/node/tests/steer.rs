//! Steering between two plans, at several agents without a control plane.

use super::world::*;
use super::*;
use crate::steering::EXTRA_BIT;
use apportion_protocol::v1;
use proptest::prelude::*;

/// One task with a replica at agent 1, 100 requests a second planned of 125 that it serves; spare devices at all three
/// agents.
pub(super) fn spare(generation: u64) -> v1::Target {
    let mut target = target(generation, "a", &[], &[(1, 0, 1, 8, &[(1, 1)])]);
    target.agents =
        (1..=3).map(|agent| v1::Peer { agent, hardware: "gpu".into(), devices: 2, ..Default::default() }).collect();
    target.pipelines[0].demand_qps = 100.0;
    target.pipelines[0].groups[0].hardware = "gpu".into();
    target
}

fn world(target: &v1::Target) -> World {
    let mut world = World::new(3, sums);
    world.load_ns = 300 * MS;
    world.apply_target(target);
    world.pass(3_000 * MS);
    world
}

/// So many requests a second at agent 3 for so long; how many were not in time.
pub(super) fn offer(world: &mut World, qps: u64, ms: u64) -> usize {
    let count = qps * ms / 1_000;
    let mut answers = Vec::new();
    for n in 0..count {
        answers.push(world.ask(3, "p", &[n as f32]));
        world.pass(1_000 * MS / qps);
    }
    world.pass(200 * MS);
    answers.iter().filter_map(|a| outcome(a).err()).count()
}

/// The added replicas that are loaded, as (agent, number).
pub(super) fn extras(world: &World) -> Vec<(u64, u64)> {
    let loaded = world.loaded.iter().flat_map(|(agent, ids)| ids.iter().map(|id| (*agent, *id)));
    loaded.filter(|(_, id)| id & EXTRA_BIT > 0).collect()
}

#[test]
fn extra_replicas_stay_under_a_new_target_while_needed() {
    let mut world = world(&spare(1));
    offer(&mut world, 90, 2_000);
    assert_eq!(extras(&world), [], "as planned, nothing is added");
    offer(&mut world, 300, 3_000);
    let added = extras(&world);
    assert!((2..=5).contains(&added.len()), "{added:?}");
    assert_eq!(offer(&mut world, 300, 2_000), 0, "all in time once they are there");
    // Numbers are unique, and all agents know the same ones.
    assert_eq!(added.iter().map(|(_, id)| id).collect::<BTreeSet<_>>().len(), added.len());
    world.apply_target(&spare(2));
    assert_eq!(offer(&mut world, 300, 3_000), 0, "there is no gap");
    assert_eq!(extras(&world), added, "the same ones");
    world.pass(60_000 * MS);
    assert_eq!(extras(&world), [], "nothing calls for them any more");
    assert_eq!(world.unfinished(), [0; 3]);
}

#[test]
fn a_steering_whose_numbers_jump_changes_nothing() {
    let mut world = world(&spare(1));
    let fence = Some(v1::Fence { incarnation: 1, generation: 1 });
    let forged = |host, epoch| {
        let extras = vec![v1::ReplicaTarget { replica: EXTRA_BIT | 7, group: 1, agent: 2, device: 0 }];
        let steering = v1::Steering { host, pipeline: "p".into(), fence, epoch, extras, ..Default::default() };
        NodeEvent::Message(Message::Steering(steering))
    };
    for agent in 1..=3 {
        for (host, epoch) in [(1, u64::MAX), (1, 1 << 62), (1, u64::from(u32::MAX)), (77, 1 << 33)] {
            world.send_event(agent, forged(host, epoch));
        }
    }
    world.pass(100 * MS);
    assert_eq!(extras(&world), [], "nothing of it is obeyed");
    assert!(world.refused.iter().filter(|(_, message)| *message == RefusedMessage::Steering).count() >= 12);
    offer(&mut world, 300, 3_000);
    assert_eq!(offer(&mut world, 300, 2_000), 0, "the host is heard as before");
}

#[test]
fn what_was_added_makes_way_for_a_new_targets_replicas() {
    let mut world = world(&spare(1));
    offer(&mut world, 300, 3_000);
    let (agent, id) = extras(&world)[0];
    let device = world.nodes[&agent].replicas().find(|r| r.id == id).expect("it is there").device;
    let mut next = spare(2);
    next.pipelines[0].replicas.push(v1::ReplicaTarget { replica: 2, group: 1, agent, device });
    world.apply_target(&next);
    assert_eq!(offer(&mut world, 300, 3_000), 0, "what goes serves until its successor is ready");
    assert!(world.loaded[&agent].contains(&2) && !world.loaded[&agent].contains(&id));
    assert_eq!(world.unfinished(), [0; 3]);
}

/// Four replicas planned for 400 requests a second, and what lower rates need.
fn descending(generation: u64) -> v1::Target {
    let mut plan = spare(generation);
    let step = |rate_qps, replicas| v1::LadderStep { rate_qps, replicas: vec![replicas] };
    plan.pipelines[0].ladder = vec![step(60.0, 1), step(130.0, 2), step(400.0, 4), step(600.0, 5)];
    plan.pipelines[0].demand_qps = 400.0;
    let more = [(2, 2), (3, 3), (4, 2)].map(|(replica, agent)| v1::ReplicaTarget {
        replica,
        group: 1,
        agent,
        device: (replica == 4).into(),
    });
    plan.pipelines[0].replicas.extend(more);
    plan
}

fn loaded(world: &World) -> BTreeSet<u64> {
    world.loaded.values().flatten().copied().collect()
}

#[test]
fn replicas_are_released_slowly_and_return_at_once() {
    let mut world = world(&descending(1));
    assert_eq!(loaded(&world), [1, 2, 3, 4].into());
    assert_eq!(offer(&mut world, 100, 20_000), 0);
    assert_eq!(loaded(&world), [1, 2, 3, 4].into(), "what a steward begins with is kept half a minute");
    // That the load came after some idle seconds was a rise, of which the first half minute speaks too.
    assert_eq!(offer(&mut world, 100, 35_000), 0);
    assert_eq!(loaded(&world), [1, 2].into(), "the youngest go, and nothing is lost by it");
    world.pass(45_000 * MS);
    assert_eq!(loaded(&world), [1].into(), "without any load the lowest step is left");
    offer(&mut world, 330, 2_000);
    assert_eq!(loaded(&world), [1, 2, 3, 4].into(), "the plan's own, and nothing beside them");
    offer(&mut world, 330, 6_000);
    assert_eq!(offer(&mut world, 330, 3_000), 0, "all in time once what had queued up is served");
    // A target for less keeps what is called for, and one for more does not load what is not.
    let mut less = descending(2);
    less.pipelines[0].replicas.truncate(1);
    less.pipelines[0].demand_qps = 60.0;
    world.apply_target(&less);
    assert_eq!(offer(&mut world, 330, 3_000), 0, "no gap");
    assert!(loaded(&world).is_superset(&[1, 2, 3, 4].into()), "the same ones, beside what a rise was given");
    world.pass(65_000 * MS);
    assert_eq!(loaded(&world), [1].into());
    // Under a new target they have not to be seen idle again: only what is called for is loaded.
    world.apply_target(&descending(3));
    world.pass(1_000 * MS);
    assert_eq!(loaded(&world), [1].into(), "the load that was seen counts for it");
    assert_eq!(world.unfinished(), [0; 3]);
}

#[test]
fn only_a_ladder_with_lower_steps_releases_replicas() {
    let mut full = descending(1);
    full.agents.iter_mut().for_each(|a| a.devices = if a.agent == 2 { 2 } else { 1 });
    let mut at_full = world(&full);
    at_full.pass(45_000 * MS);
    assert_eq!(loaded(&at_full), [1].into());
    let mut tuned = descending(1);
    tuned.pipelines[0].ladder.clear();
    let mut world = world(&tuned);
    world.pass(90_000 * MS);
    assert_eq!(loaded(&world), [1, 2, 3, 4].into(), "a tuner adds to the plan; nobody has shown what fewer hold");
}

#[test]
fn another_pipeline_uses_a_device_while_its_replica_is_released() {
    let mut target = descending(1);
    let mut other = spare(1).pipelines.remove(0);
    other.name = "q".into();
    other.groups[0].group = 2;
    other.tables[0].entries[0].group = 2;
    other.replicas = vec![v1::ReplicaTarget { replica: 9, group: 2, agent: 1, device: 1 }];
    target.pipelines.push(other);
    // No device is spare but what is released: at agents 2 and 3.
    target.agents[2].devices = 1;
    let mut world = world(&target);
    world.pass(45_000 * MS);
    assert_eq!(loaded(&world), [1, 9].into());
    let mut answers = Vec::new();
    let mut offer_q = |world: &mut World, ms: u64| {
        for n in 0..ms * 300 / 1_000 {
            answers.push(world.ask(3, "q", &[n as f32]));
            world.pass(1_000 * MS / 300);
        }
    };
    offer_q(&mut world, 3_000);
    let lent = extras(&world);
    assert!(lent.len() >= 2 && lent.iter().all(|(agent, _)| *agent != 1), "{lent:?}");
    assert!(offer(&mut world, 330, 4_000) > 0, "while they come back");
    assert!(loaded(&world).is_superset(&[1, 2, 3, 4, 9].into()), "{:?}", loaded(&world));
    assert_eq!(offer(&mut world, 330, 2_000), 0);
    world.pass(1_000 * MS);
    assert_eq!(extras(&world), [], "what was lent is given back");
    assert!(answers.iter().all(|a| a.try_recv().is_ok()), "every request of the other has its answer");
    assert_eq!(world.unfinished(), [0; 3]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever the load does and whenever targets come, each request is answered, and in the end exactly what is called
    /// for is loaded.
    #[test]
    fn nothing_is_lost_whatever_comes_and_goes(
        phases in prop::collection::vec((0_u64..400, 200_u64..20_000, any::<bool>()), 1..5),
    ) {
        let mut world = world(&descending(1));
        let mut answers = Vec::new();
        let mut generation = 1;
        for (qps, ms, is_new) in phases {
            for n in 0..qps * ms / 1_000 {
                answers.push(world.ask(1 + n % 3, "p", &[n as f32]));
                world.pass(1_000 * MS / qps);
            }
            world.pass(if qps == 0 { ms * MS } else { 0 });
            if is_new {
                generation += 1;
                world.apply_target(&descending(generation));
            }
        }
        world.pass(80_000 * MS);
        prop_assert!(answers.iter().all(|a| a.try_recv().is_ok()));
        prop_assert_eq!(world.unfinished(), [0; 3]);
        prop_assert_eq!(loaded(&world), BTreeSet::from([1]));
    }
}

#[test]
fn replicas_follow_the_ladder_up_at_once_and_down_slowly() {
    let mut plan = spare(1);
    let step = |rate_qps, replicas| v1::LadderStep { rate_qps, replicas: vec![replicas] };
    plan.pipelines[0].ladder = vec![step(100.0, 1), step(200.0, 3), step(500.0, 4)];
    let mut world = world(&plan);
    offer(&mut world, 90, 2_000);
    assert_eq!(extras(&world), [], "the first step is the plan");
    offer(&mut world, 180, 3_000);
    assert_eq!(extras(&world).len(), 2, "the tuner would add one: the second step has three replicas");
    offer(&mut world, 300, 3_000);
    assert_eq!(extras(&world).len(), 3);
    assert_eq!(offer(&mut world, 300, 1_000), 0, "all in time once they are there");
    world.pass(25_000 * MS);
    assert_eq!(extras(&world).len(), 3, "kept for half a minute");
    world.pass(25_000 * MS);
    assert_eq!(extras(&world), [], "and then given back");
    assert_eq!(world.unfinished(), [0; 3]);
}

#[test]
fn the_next_agent_takes_over_a_lost_hosts_pipelines() {
    let mut plan = spare(1);
    // The replica is not at the host.
    plan.pipelines[0].replicas[0].agent = 2;
    let mut world = world(&plan);
    offer(&mut world, 300, 3_000);
    let added = extras(&world);
    let at_host = added.iter().filter(|(agent, _)| *agent == 1).count();
    assert!(at_host > 0 && at_host < added.len(), "{added:?}");
    world.loaded.remove(&1);
    world.lose(1);
    offer(&mut world, 300, 6_000);
    let after = extras(&world);
    let kept = added.iter().filter(|(agent, _)| *agent != 1);
    assert!(kept.clone().all(|extra| after.contains(extra)), "what stood elsewhere stays: {added:?} {after:?}");
    assert!(after.len() > kept.count(), "what was lost is replaced: {after:?}");
    assert_eq!(offer(&mut world, 300, 2_000), 0);
}

#[test]
fn a_lost_replica_is_replaced_on_a_spare_device() {
    let mut plan = spare(1);
    plan.pipelines[0].replicas[0].agent = 2;
    let mut world = world(&plan);
    offer(&mut world, 90, 1_000);
    world.lose(2);
    world.pass(6_000 * MS);
    assert_eq!(extras(&world).iter().filter(|(agent, _)| *agent != 2).count(), 1);
    assert_eq!(offer(&mut world, 90, 1_000), 0);
}

fn steering(generation: u64, epoch: u64, host: u64) -> Message {
    let fence = Some(v1::Fence { incarnation: 1, generation });
    let extras = vec![v1::ReplicaTarget { replica: EXTRA_BIT + epoch, group: 1, agent: 3, device: 1 }];
    Message::Steering(v1::Steering { host, pipeline: "p".into(), fence, epoch, extras, ..Default::default() })
}

#[test]
fn steering_of_old_epochs_or_other_targets_is_ignored() {
    let mut node = Node::new(3, 0);
    let layout = Arc::new(crate::layout::lay_out(&spare(5)).expect("valid"));
    node.handle(0, NodeEvent::Target(layout));
    node.flush();
    let mut hear = |message: Message| {
        node.handle(1, NodeEvent::Message(message));
        let actions = node.flush();
        let extras: Vec<u64> = node.replicas().filter(|r| !r.retired).map(|r| r.id - EXTRA_BIT).collect();
        let answered = actions.iter().any(|a| matches!(a, Action::Send { agent: 1, message: Message::Steering(_) }));
        (extras, answered)
    };
    assert_eq!(hear(steering(5, 7, 1)), (vec![7], false));
    assert_eq!(hear(steering(5, 6, 1)), (vec![7], true), "an older one is refused, and its host hears of it");
    assert_eq!(hear(steering(5, 7, 2)), (vec![7], false), "of one epoch, the lower host's");
    assert_eq!(hear(steering(4, 9, 1)), (vec![7], false), "another target's");
    assert_eq!(hear(steering(5, 9, 1)), (vec![9], false));
}

#[test]
fn an_extra_replica_of_another_kind_is_not_kept() {
    let mut node = Node::new(3, 0);
    let apply = |node: &mut Node, target: &v1::Target| {
        node.handle(0, NodeEvent::Target(Arc::new(crate::layout::lay_out(target).expect("valid"))));
        node.flush();
    };
    let kept = |node: &Node| node.replicas().filter(|replica| !replica.retired).count();
    apply(&mut node, &spare(5));
    node.handle(1, NodeEvent::Message(steering(5, 7, 1)));
    apply(&mut node, &spare(6));
    assert_eq!(kept(&node), 1);
    let mut slots = spare(7);
    slots.pipelines[0].tasks[0].continuous = true;
    apply(&mut node, &slots);
    assert_eq!(kept(&node), 0, "its thread runs batches");
}

/// `a` at agent 2, `b` at agent 3, and a policy that looks at module states; agent 1 steers.
fn steered_by_states() -> World {
    let crews: &[Crew<'_>] = &[(1, 0, 1, 1, &[(1, 2)]), (2, 1, 1, 10, &[(2, 3)])];
    let mut target = served(target(1, "ab", &[(true, 0, 1)], crews), "forming", "pard");
    target.agents.push(v1::Peer { agent: 1, ..Default::default() });
    let mut world = World::new(3, sums);
    world.apply_target(&target);
    world.pass(3_000 * MS);
    world
}

#[test]
fn a_measurement_of_endless_waits_is_refused() {
    let mut world = steered_by_states();
    let fence = Some(v1::Fence { incarnation: 1, generation: 1 });
    let station = |task| v1::StationMeasured { task, arrived: 1, entered: 1, queueing_ns: u64::MAX, ..Default::default() };
    let stations = vec![station(0), station(1)];
    let told = v1::Measured { agent: 2, pipeline: "p".into(), fence, stations, ..Default::default() };
    world.send_event(1, NodeEvent::Message(Message::Measured(told)));
    world.pass(3_000 * MS);
    assert_eq!(world.refused, [(1, RefusedMessage::Measurement)]);
}

#[test]
fn a_steering_with_a_replica_of_no_group_is_refused() {
    let mut world = world(&spare(1));
    let fence = Some(v1::Fence { incarnation: 1, generation: 1 });
    let extras = vec![v1::ReplicaTarget { replica: EXTRA_BIT | 7, group: 77, agent: 2, device: 0 }];
    let forged = v1::Steering { host: 1, pipeline: "p".into(), fence, epoch: 2 << 32, extras, ..Default::default() };
    (1..=3).for_each(|agent| world.send_event(agent, NodeEvent::Message(Message::Steering(forged.clone()))));
    world.pass(2_000 * MS);
    assert_eq!(world.refused, [1, 2, 3].map(|agent| (agent, RefusedMessage::Steering)));
    assert_eq!(offer(&mut world, 90, 1_000), 0, "the host steers as before");
}

#[test]
fn module_states_follow_what_all_agents_measure() {
    // `b` is overloaded, so `a` learns that its queries will wait there.
    let mut world = steered_by_states();
    let forward = |world: &World| {
        let replica = world.nodes[&2].replicas().next().expect("its replica");
        replica.view.expect("pard looks at states").forward.as_nanos()
    };
    let before = forward(&world);
    assert_eq!(before, 10 * MS, "a batch of the next task");
    for n in 0..800 {
        drop(world.ask(1, "p", &[n as f32]));
        world.pass(5 * MS);
    }
    assert!(forward(&world) > before + 10 * MS, "{}", forward(&world));
}
