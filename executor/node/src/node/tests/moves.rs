//! Replicas that others disturb, and extra ones that cannot be loaded.

use super::world::*;
use super::*;
use crate::steering::EXTRA_BIT;
use apportion_protocol::v1;

/// Two tasks with a replica each on halves of agent 1's only device; agents 2 and 3 have a device to spare, of the same
/// hardware if `has_spare`. 20 requests a second, of 62 that `a` and 125 that `b` serves.
fn shared(has_spare: bool) -> v1::Target {
    let mut target = target(1, "ab", &[(true, 0, 1)], &[(1, 0, 1, 16, &[(1, 1)]), (2, 1, 1, 8, &[(2, 1)])]);
    let hardware = |agent: u64| if has_spare || agent == 1 { "gpu" } else { "cpu" }.to_string();
    let peer = |agent| v1::Peer { agent, hardware: hardware(agent), devices: 1, ..Default::default() };
    target.agents = (1..=3).map(peer).collect();
    let of = &mut target.pipelines[0];
    of.demand_qps = 20.0;
    of.slo_ns = 500 * MS;
    of.groups.iter_mut().for_each(|g| (g.hardware, g.share) = ("gpu".into(), 0.5));
    target
}

fn world(target: &v1::Target) -> World {
    let mut world = World::new(3, sums);
    world.apply_target(target);
    world.pass(3_000 * MS);
    world
}

/// 20 requests a second at agent 2; how many were not in time.
fn offer(world: &mut World, ms: u64) -> usize {
    let mut answers = Vec::new();
    for _ in 0..ms / 50 {
        answers.push(world.ask(2, "p", &[1.0]));
        world.pass(50 * MS);
    }
    world.pass(500 * MS);
    answers.iter().filter_map(|a| outcome(a).err()).count()
}

fn stands(world: &World) -> BTreeSet<(u64, bool)> {
    let loaded = world.loaded.iter().flat_map(|(agent, ids)| ids.iter().map(|id| (*agent, id & EXTRA_BIT > 0)));
    loaded.collect()
}

fn disturbed(world: &World) -> Vec<u64> {
    world.nodes.values().flat_map(Node::replicas).filter(|r| r.load().is_disturbed).map(|r| r.id).collect()
}

#[test]
fn a_disturbed_replica_moves_without_losing_requests() {
    let mut world = world(&shared(true));
    assert_eq!(offer(&mut world, 6_000), 0);
    assert_eq!((stands(&world), disturbed(&world)), ([(1, false)].into(), vec![]), "as planned, nothing moves");
    // Together on the device, both take half as long again.
    world.slowness = |replicas| if replicas > 1 { 1.5 } else { 1.0 };
    assert_eq!(offer(&mut world, 3_500), 0);
    assert!(disturbed(&world).contains(&2), "it is seen after some announcements");
    assert_eq!(offer(&mut world, 12_000), 0);
    let seen = stands(&world);
    assert_eq!(seen.len(), 2, "{seen:?}: one has moved");
    assert!(seen.contains(&(1, false)) && seen.iter().any(|(agent, extra)| *agent != 1 && *extra), "{seen:?}");
    assert!(disturbed(&world).is_empty(), "and both are as fast as profiled");
    assert_eq!(offer(&mut world, 12_000), 0);
    assert_eq!(stands(&world), seen, "nothing else moves");
}

#[test]
fn where_no_other_device_has_room_it_stays() {
    let mut world = world(&shared(false));
    world.slowness = |replicas| if replicas > 1 { 1.5 } else { 1.0 };
    assert_eq!(offer(&mut world, 15_000), 0);
    assert_eq!((stands(&world), disturbed(&world)), ([(1, false)].into(), vec![1, 2]));
}

#[test]
fn what_is_slow_because_it_is_overloaded_is_not_disturbed() {
    let mut world = world(&shared(true));
    world.slowness = |_| 1.5;
    let mut answers = Vec::new();
    for _ in 0..600 {
        answers.push(world.ask(2, "p", &[1.0]));
        world.pass(10 * MS);
    }
    // 42 a second are served of the 62 that would be: below the peak, so slowness is what is wrong.
    assert!(disturbed(&world).contains(&1));
    let of = world.nodes[&1].replicas().find(|r| r.id == 1).expect("there").of.clone();
    let peak_qps = of.groups[&1].capacity_qps();
    assert!(apportion_serving::selector::is_disturbed(42.0 / peak_qps, 1.5));
    assert!(!apportion_serving::selector::is_disturbed(1.0, 1.5));
}

#[test]
fn an_unloadable_extra_replica_is_tried_on_each_device_once() {
    // One replica of 125 requests a second at agent 1; there is a spare device at agents 2 and 3 each.
    let mut target = target(1, "a", &[], &[(1, 0, 1, 8, &[(1, 1)])]);
    let peer = |agent| v1::Peer { agent, hardware: "gpu".into(), devices: 1, ..Default::default() };
    target.agents = (1..=3).map(peer).collect();
    target.pipelines[0].demand_qps = 100.0;
    target.pipelines[0].groups[0].hardware = "gpu".into();
    let load = |world: &mut World| {
        for _ in 0..1_200 {
            drop(world.ask(1, "p", &[1.0]));
            world.pass(5 * MS);
        }
    };
    let mut first = world(&target);
    first.broken = |agent| agent == 2;
    load(&mut first);
    assert!(first.failures.iter().all(|agent| *agent == 2) && first.failures.len() == 1, "{:?}", first.failures);
    assert!(stands(&first).contains(&(3, true)), "{:?}", stands(&first));
    let mut both = world(&target);
    both.broken = |agent| agent > 1;
    load(&mut both);
    let failures: BTreeSet<u64> = both.failures.iter().copied().collect();
    assert_eq!((failures, both.failures.len()), ([2, 3].into(), 2), "each device once");
}
