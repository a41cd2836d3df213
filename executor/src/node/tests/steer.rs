//! Steering between two plans, at several agents without a control plane.

use super::super::*;
use super::world::*;
use crate::steering::EXTRA_BIT;
use apportion_protocol::v1;

/// One task with a replica at agent 1, 100 requests a second planned of 125 that it serves; spare devices at all three agents.
fn spare(generation: u64) -> v1::Target {
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
    world.obey(target);
    world.pass(3_000 * MS);
    world
}

/// So many requests a second at agent 3 for so long; how many were not in time.
fn offer(world: &mut World, qps: u64, ms: u64) -> usize {
    let count = qps * ms / 1_000;
    let mut answers = Vec::new();
    for n in 0..count {
        answers.push(world.ask(3, "p", &[n as f32]));
        world.pass(1_000 * MS / qps);
    }
    world.pass(200 * MS);
    answers.iter_mut().filter_map(|a| outcome(a).err()).count()
}

fn extras(world: &World) -> Vec<(u64, u64)> {
    let loaded = world.loaded.iter().flat_map(|(agent, ids)| ids.iter().map(|id| (*agent, *id)));
    loaded.filter(|(_, id)| id & EXTRA_BIT > 0).collect()
}

#[test]
fn a_load_step_is_answered_with_replicas_on_spare_devices_and_a_new_target_ends_it() {
    let mut world = world(&spare(1));
    offer(&mut world, 90, 2_000);
    assert_eq!(extras(&world), [], "as planned, nothing is added");
    offer(&mut world, 300, 3_000);
    let added = extras(&world);
    assert!((2..=5).contains(&added.len()), "{added:?}");
    assert_eq!(offer(&mut world, 300, 2_000), 0, "all in time once they are there");
    // Numbers are unique, and all agents know the same ones.
    assert_eq!(added.iter().map(|(_, id)| id).collect::<BTreeSet<_>>().len(), added.len());
    world.obey(&spare(2));
    world.pass(1_500 * MS);
    assert_eq!(extras(&world), [], "the new target overrides");
    assert_eq!(world.unfinished(), [0; 3]);
}

#[test]
fn replicas_follow_the_ladder_of_the_plan_up_at_once_and_down_after_half_a_minute() {
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
fn when_the_host_dies_the_next_takes_over_what_it_steered() {
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
fn a_lost_replica_of_the_plan_is_replaced_on_a_spare_device() {
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
fn epochs_are_applied_in_order_and_those_of_another_target_not_at_all() {
    let mut node = Node::new(3, 0);
    let layout = Arc::new(crate::layout::lay_out(&spare(5)).expect("valid"));
    node.handle(0, Event::Obey(layout));
    node.flush();
    let mut hear = |message: Message| {
        node.handle(1, Event::Message(message));
        let actions = node.flush();
        let extras: Vec<u64> = node.replicas().filter(|r| !r.retired).map(|r| r.id - EXTRA_BIT).collect();
        let answered = actions.iter().any(|a| matches!(a, Action::Send(1, Message::Steering(_))));
        (extras, answered)
    };
    assert_eq!(hear(steering(5, 7, 1)), (vec![7], false));
    assert_eq!(hear(steering(5, 6, 1)), (vec![7], true), "an older one is refused, and its host hears of it");
    assert_eq!(hear(steering(5, 7, 2)), (vec![7], false), "of one epoch, the lower host's");
    assert_eq!(hear(steering(4, 9, 1)), (vec![7], false), "another target's");
    assert_eq!(hear(steering(5, 9, 1)), (vec![9], false));
}

#[test]
fn module_states_follow_what_all_agents_measure() {
    // `a` at agent 2, `b` at agent 3; `b` is overloaded, so `a` learns that its queries will wait there.
    let crews: &[Crew<'_>] = &[(1, 0, 1, 1, &[(1, 2)]), (2, 1, 1, 10, &[(2, 3)])];
    let mut target = served(target(1, "ab", &[(true, 0, 1)], crews), "forming", "pard");
    target.agents.push(v1::Peer { agent: 1, ..Default::default() });
    let mut world = World::new(3, sums);
    world.obey(&target);
    world.pass(3_000 * MS);
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
