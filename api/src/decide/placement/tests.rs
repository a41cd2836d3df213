//! Scripts of single placements, and drawn fleets with zones against every possible division.

use super::*;
use crate::decide::draws::Draws;
use apportion_domain::GroupName;

fn key(variant: &str, share: Share) -> GroupKey {
    let group = GroupName { task: "t".into(), variant: variant.into(), hardware: "h".into(), share };
    GroupKey { pipeline: "p".into(), group, digest: String::new() }
}

fn want(variant: &str, replicas: u32) -> WantedGroup {
    WantedGroup { key: key(variant, Share::WHOLE), replicas, spread: Spread::New }
}

fn devices(list: &[(u64, u32)]) -> Vec<Device> {
    list.iter().flat_map(|&(agent, n)| (0..n).map(move |device| Device::new(agent, device, "h"))).collect()
}

/// `variant@agent.device` of each replica.
fn places(placement: &Placement) -> Vec<String> {
    let name = |r: &PlacedReplica| placement.group(r.group).expect("its group").variant.clone();
    let mut all: Vec<_> = placement.replicas.iter().map(|r| format!("{}@{}.{}", name(r), r.agent, r.device)).collect();
    all.sort();
    all
}

#[test]
fn new_replicas_spread_over_agents() {
    let PlacementOutcome { placement: placed, shortages: missing } =
        place_replicas(&Placement::default(), &[want("a", 3)], &devices(&[(1, 2), (2, 2), (3, 2)]));
    assert_eq!(places(&placed), ["a@1.0", "a@2.0", "a@3.0"]);
    assert!(missing.is_empty());
}

#[test]
fn placing_again_changes_nothing() {
    let fleet = devices(&[(1, 2), (2, 2)]);
    let wanted = [want("a", 2), want("b", 2)];
    let PlacementOutcome { placement: first, .. } = place_replicas(&Placement::default(), &wanted, &fleet);
    let again = place_replicas(&first, &wanted, &fleet);
    assert_eq!(again, PlacementOutcome { placement: first, shortages: vec![] });
}

#[test]
fn growth_keeps_loaded_replicas_and_their_numbers() {
    let fleet = devices(&[(1, 2), (2, 2)]);
    let PlacementOutcome { placement: first, .. } = place_replicas(&Placement::default(), &[want("a", 2)], &fleet);
    let PlacementOutcome { placement: second, .. } = place_replicas(&first, &[want("a", 3), want("b", 1)], &fleet);
    assert!(first.replicas.iter().all(|r| second.replicas.contains(r)));
    assert!(second.replicas.iter().filter(|r| !first.replicas.contains(r)).all(|r| r.id >= first.next_id));
    assert_eq!(second.replicas.len(), 4);
}

#[test]
fn replicas_of_a_dead_agent_move_to_empty_devices() {
    let PlacementOutcome { placement: first, .. } =
        place_replicas(&Placement::default(), &[want("a", 1), want("b", 1)], &devices(&[(1, 1), (2, 2)]));
    assert_eq!(places(&first), ["a@1.0", "b@2.0"]);
    let PlacementOutcome { placement: second, shortages: missing } =
        place_replicas(&first, &[want("a", 1), want("b", 1)], &devices(&[(2, 2)]));
    assert_eq!(places(&second), ["a@2.1", "b@2.0"]);
    assert!(missing.is_empty());
    let moved = second.replicas.iter().find(|r| r.device == 1).expect("the moved one");
    assert!(moved.id >= first.next_id, "another place is another replica");
}

#[test]
fn missing_devices_are_reported_and_the_rest_is_placed() {
    let PlacementOutcome { placement: placed, shortages: missing } =
        place_replicas(&Placement::default(), &[want("a", 2), want("b", 2)], &devices(&[(1, 3)]));
    assert_eq!(placed.replicas.len(), 3);
    assert_eq!(missing, [Shortage { key: key("b", Share::WHOLE), wanted: 2, placed: 1, refused: 0 }]);
}

#[test]
fn a_failed_replica_moves_until_no_device_is_left() {
    let fleet = devices(&[(1, 1), (2, 1), (3, 1)]);
    let wanted = [want("a", 1), want("b", 1)];
    let PlacementOutcome { placement: mut placed, .. } = place_replicas(&Placement::default(), &wanted, &fleet);
    assert_eq!(places(&placed), ["a@1.0", "b@2.0"]);
    let fail_a = |placed: &mut Placement| {
        let of_a = placed.replicas.iter().find(|r| placed.group(r.group).is_some_and(|g| g.variant == "a"));
        placed.refuse_failed(&of_a.map(|r| r.id).into_iter().collect());
    };
    fail_a(&mut placed);
    let PlacementOutcome { placement: mut second, shortages: missing } = place_replicas(&placed, &wanted, &fleet);
    assert_eq!((places(&second), missing), (vec!["a@3.0".to_string(), "b@2.0".into()], vec![]));
    let number = |p: &Placement| p.replicas.iter().map(|r| r.id).max();
    assert!(number(&second) > number(&placed), "another place is another replica");
    fail_a(&mut second);
    let PlacementOutcome { placement: third, shortages: missing } = place_replicas(&second, &wanted, &fleet);
    assert_eq!(places(&third), ["b@2.0"], "the only other device is taken");
    assert_eq!(missing, [Shortage { key: key("a", Share::WHOLE), wanted: 1, placed: 0, refused: 2 }]);
    let again = PlacementOutcome { placement: third.clone(), shortages: missing };
    assert_eq!(place_replicas(&third, &wanted, &fleet), again, "and again nothing changes");
    let PlacementOutcome { placement: fourth, .. } =
        place_replicas(&third, &wanted, &devices(&[(1, 1), (2, 1), (3, 1), (4, 1)]));
    assert_eq!(places(&fourth), ["a@4.0", "b@2.0"]);
    let PlacementOutcome { placement: gone, .. } = place_replicas(&fourth, &wanted[1..], &fleet);
    assert_eq!(gone.refused, [], "a group that is gone leaves nothing behind");
}

#[test]
fn replicas_need_their_hardware_type() {
    let mut fleet = devices(&[(1, 1)]);
    fleet[0].hardware = "other".into();
    let PlacementOutcome { placement: placed, shortages: missing } =
        place_replicas(&Placement::default(), &[want("a", 1)], &fleet);
    assert!(placed.replicas.is_empty());
    assert_eq!(missing.len(), 1);
}

#[test]
fn another_model_file_makes_another_replica() {
    let fleet = devices(&[(1, 1)]);
    let PlacementOutcome { placement: first, .. } = place_replicas(&Placement::default(), &[want("a", 1)], &fleet);
    let mut other = want("a", 1);
    other.key.digest = "f00d".into();
    let PlacementOutcome { placement: second, shortages: missing } = place_replicas(&first, &[other], &fleet);
    assert!(missing.is_empty());
    assert!(second.replicas[0].id >= first.next_id && second.groups[0].id >= first.next_id);
}

#[test]
fn scattered_fractions_are_packed_for_a_whole_device() {
    let fleet = devices(&[(1, 1), (2, 1)]);
    let half = WantedGroup { key: key("half", Share::new(0.5).expect("a share")), replicas: 2, spread: Spread::New };
    let scattered = Placement {
        next_id: 4,
        groups: vec![placed_group(1, &half.key)],
        replicas: vec![
            PlacedReplica { id: 2, group: 1, agent: 1, device: 0 },
            PlacedReplica { id: 3, group: 1, agent: 2, device: 0 },
        ],
        ..Placement::default()
    };
    let PlacementOutcome { placement: placed, shortages: missing } =
        place_replicas(&scattered, &[half, want("a", 1)], &fleet);
    assert!(missing.is_empty(), "{missing:?}");
    assert_eq!(placed.replicas.len(), 3);
}

/// One device of each agent, in these zones.
fn zones(names: &str) -> Vec<Device> {
    let device = |(at, zone): (usize, char)| Device { zone: zone.to_string(), ..Device::new(at as u64 + 1, 0, "h") };
    names.chars().enumerate().map(device).collect()
}

fn even(variant: &str, replicas: u32) -> WantedGroup {
    WantedGroup { spread: Spread::Even, ..want(variant, replicas) }
}

#[test]
fn new_replicas_go_to_other_zones() {
    let PlacementOutcome { placement, .. } = place_replicas(&Placement::default(), &[want("a", 2)], &zones("xxyy"));
    assert_eq!(places(&placement), ["a@1.0", "a@3.0"]);
    let more = place_replicas(&placement, &[want("a", 3), want("b", 1)], &zones("xxyy")).placement;
    assert_eq!(places(&more), ["a@1.0", "a@2.0", "a@3.0", "b@4.0"], "b goes where no other replica is");
}

#[test]
fn replicas_move_between_zones_only_for_an_even_spread() {
    let PlacementOutcome { placement: lopsided, .. } =
        place_replicas(&Placement::default(), &[want("a", 3)], &zones("xxx"));
    let fleet = zones("xxxyy");
    assert_eq!(place_replicas(&lopsided, &[want("a", 3)], &fleet).placement, lopsided);
    let spread = place_replicas(&lopsided, &[even("a", 3)], &fleet);
    assert_eq!(places(&spread.placement), ["a@1.0", "a@2.0", "a@4.0"]);
    assert_eq!(place_replicas(&spread.placement, &[even("a", 3)], &fleet), spread, "and again nothing changes");
    let stay = place_replicas(&lopsided, &[even("a", 3)], &zones("xxx"));
    assert_eq!(stay.placement, lopsided, "there is one zone");
    let mut unknown = fleet;
    unknown[4].zone = String::new();
    assert_eq!(place_replicas(&lopsided, &[even("a", 3)], &unknown).placement, lopsided, "a zone is not known");
}

/// The least unevenness of any placement of `wanted`: the slow version, which tries every division of every group.
fn least_unevenness(wanted: &[WantedGroup], room: &mut [u32]) -> Option<u32> {
    let Some((first, rest)) = wanted.split_first() else { return Some(0) };
    let share = first.replicas.div_ceil(room.len() as u32);
    let mut best = None;
    for counts in divisions(first.replicas, room) {
        room.iter_mut().zip(&counts).for_each(|(left, count)| *left -= count);
        let fullest = counts.iter().max().copied().unwrap_or(0);
        let own = if first.spread == Spread::Even { fullest.saturating_sub(share) } else { 0 };
        if let Some(others) = least_unevenness(rest, room) {
            best = Some(best.map_or(own + others, |best: u32| best.min(own + others)));
        }
        room.iter_mut().zip(&counts).for_each(|(left, count)| *left += count);
    }
    best
}

/// Every division of `replicas` among zones with so many free devices.
fn divisions(replicas: u32, room: &[u32]) -> Vec<Vec<u32>> {
    let Some((first, rest)) = room.split_first() else {
        return if replicas == 0 { vec![Vec::new()] } else { Vec::new() };
    };
    let with = |count: u32| divisions(replicas - count, rest).into_iter().map(move |more| [vec![count], more].concat());
    (0..=replicas.min(*first)).flat_map(with).collect()
}

#[test]
fn no_other_placement_spreads_drawn_groups_better() {
    let mut cases = 0;
    for seed in 0..600 {
        let mut draws = Draws(seed);
        let names: String = (0..2 + draws.below(6)).map(|_| ["x", "y", "z"][draws.below(3) as usize]).collect();
        let devices = zones(&names);
        let group = |draws: &mut Draws, variant| WantedGroup {
            spread: if draws.below(3) == 0 { Spread::New } else { Spread::Even },
            ..want(variant, 1 + draws.below(3) as u32)
        };
        let before: Vec<WantedGroup> = ["a", "b", "c"].map(|variant| group(&mut draws, variant)).into();
        let wanted: Vec<WantedGroup> = ["a", "b", "c"].map(|variant| group(&mut draws, variant)).into();
        let Some(known) = zones_of(&devices, "h") else { continue };
        let mut room: Vec<u32> =
            known.iter().map(|zone| devices.iter().filter(|d| d.zone == **zone).count() as u32).collect();
        let Some(least) = least_unevenness(&wanted, &mut room) else { continue };
        cases += 1;
        // The fleet grew: at first it had half of the devices.
        let half = &devices[..devices.len() / 2];
        let start = place_replicas(&Placement::default(), &before, half).placement;
        let outcome = place_replicas(&start, &wanted, &devices);
        assert_eq!(outcome.shortages, [], "seed {seed}");
        assert_eq!(unevenness(&outcome.placement, &wanted, &devices), least, "seed {seed}: {names}, {wanted:?}");
        assert_eq!(place_replicas(&outcome.placement, &wanted, &devices), outcome, "seed {seed}: again nothing changes");
    }
    assert!(cases > 100, "{cases}");
}
