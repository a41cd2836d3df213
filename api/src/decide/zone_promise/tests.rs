//! Drawn fleets, against the loss of each zone in turn.

use super::*;
use crate::decide::draws::Draws;
use apportion_domain::Share;
use std::collections::BTreeSet;

/// So many devices in each zone, on agents of one device.
fn fleet(zones: &[(&str, u32)]) -> Vec<Device> {
    let all = zones.iter().flat_map(|(zone, count)| std::iter::repeat_n(*zone, *count as usize));
    let device = |(at, zone): (usize, &str)| Device { zone: zone.to_owned(), ..Device::new(at as u64 + 1, 0, "h") };
    all.enumerate().map(device).collect()
}

fn group(variant: &str, replicas: u32) -> Assignment {
    let group = GroupName { task: "t".into(), variant: variant.into(), hardware: "h".into(), share: Share::WHOLE };
    Assignment { group, batch: 1, replicas, traffic_share: 1.0, latency_budget_ms: 1.0, utilisation: 1.0 }
}

/// A plan with these numbers of replicas for its load, and `survive` more of each group.
fn plan(carrying: &[u32], survive: u32) -> Vec<Assignment> {
    let names = ["a", "b", "c", "d"];
    carrying.iter().zip(names).map(|(count, name)| group(name, count + survive)).collect()
}

/// The slow version: takes every set of `lost` zones away, and counts the replicas that are left of each group.
fn survives(groups: &[Assignment], carrying: &[u32], devices: &[Device], lost: usize) -> bool {
    let want = |a: &Assignment| WantedGroup {
        key: GroupKey { pipeline: "p".into(), group: a.group.clone(), digest: String::new() },
        replicas: a.replicas,
        spread: Spread::Even,
    };
    let wanted: Vec<WantedGroup> = groups.iter().map(want).collect();
    let placement = place_replicas(&Placement::default(), &wanted, devices).placement;
    let zones: Vec<&str> = devices.iter().map(|d| d.zone.as_str()).collect::<BTreeSet<_>>().into_iter().collect();
    let mut sets = (0_u32..1 << zones.len()).filter(|set| set.count_ones() as usize == lost);
    sets.all(|set| {
        let is_lost = |zone: &str| zones.iter().position(|known| *known == zone).is_some_and(|at| (set >> at) & 1 == 1);
        let stands = |agent: u64| devices.iter().any(|d| d.agent == agent && !is_lost(&d.zone));
        placement.groups.iter().zip(carrying).all(|(group, needed)| {
            let left = placement.replicas.iter().filter(|r| r.group == group.id && stands(r.agent)).count();
            left >= *needed as usize
        })
    })
}

#[test]
fn a_group_in_three_zones_has_two_spare_replicas_for_four() {
    let devices = fleet(&[("x", 4), ("y", 4), ("z", 4)]);
    let promise = ZonePromise::new(1, &devices);
    assert_eq!(promise.raised(&plan(&[4], 1), 1), Some(2));
    assert_eq!(promise.raised(&plan(&[4], 2), 2), None);
    assert_eq!(promise.describe(&plan(&[4], 2), 2), "; it survives the loss of any one zone");
    let not = promise.describe(&plan(&[4], 1), 1);
    assert!(not.starts_with("; it does not survive the loss of any one zone: that may take 2 of 5 replicas of "), "{not}");
}

#[test]
fn zones_matter_where_they_are_known_and_promised() {
    let (known, lopsided) = (fleet(&[("x", 6), ("y", 6)]), plan(&[5], 1));
    let mut unknown = known.clone();
    unknown[3].zone = String::new();
    let one = fleet(&[("x", 12)]);
    for (promise, what) in [
        (ZonePromise::new(0, &known), "nothing is promised"),
        (ZonePromise::new(1, &unknown), "a zone is not known"),
        (ZonePromise::new(1, &one), "there is one zone"),
        (ZonePromise::new(2, &known), "both may be lost"),
        (ZonePromise::new(1, &[]), "there is no device"),
    ] {
        assert_eq!((promise.raised(&lopsided, 1), promise.describe(&lopsided, 1)), (None, String::new()), "{what}");
    }
    assert_eq!(ZonePromise::new(1, &known).raised(&lopsided, 1), Some(5));
}

#[test]
fn a_plan_that_is_raised_survives_the_loss_of_each_zone() {
    let (mut kept, mut raised) = (0, 0);
    for seed in 0..300 {
        let mut draws = Draws(seed);
        let mut below = |most: u64| draws.below(most) as u32;
        let names = ["w", "x", "y", "z"];
        let zones = 2 + below(3) as usize;
        let lost = 1 + below(2).min(zones as u32 - 2);
        let carrying: Vec<u32> = (0..1 + below(3)).map(|_| 1 + below(6)).collect();
        let devices = fleet(&names[..zones].iter().map(|name| (*name, 20_u32)).collect::<Vec<_>>());
        let promise = ZonePromise::new(lost, &devices);
        let mut survive = lost;
        let mut plans = 0;
        loop {
            let groups = plan(&carrying, survive);
            let is_kept = survives(&groups, &carrying, &devices, lost as usize);
            let more = promise.raised(&groups, survive);
            assert_eq!(more.is_none(), is_kept, "seed {seed}: {carrying:?} with {survive} in {zones} zones");
            let Some(more) = more else { break };
            assert!(more > survive, "seed {seed}");
            (survive, plans) = (more, plans + 1);
        }
        assert!(plans <= 1, "seed {seed}: {plans} more plans of the same groups");
        if plans == 0 { kept += 1 } else { raised += 1 }
    }
    assert!(kept > 10 && raised > 100, "{kept}, {raised}");
}

#[test]
fn zones_of_different_sizes_are_judged_by_their_loss() {
    let (mut cases, mut survived) = (0, 0);
    for seed in 0..300 {
        let mut draws = Draws(seed);
        let mut below = |most: u64| draws.below(most) as u32;
        let names = ["x", "y", "z"];
        let sizes: Vec<(&str, u32)> = names[..2 + below(2) as usize].iter().map(|n| (*n, 1 + below(5))).collect();
        let devices = fleet(&sizes);
        let carrying: Vec<u32> = (0..1 + below(2)).map(|_| 1 + below(3)).collect();
        let survive = 1 + below(3);
        let groups = plan(&carrying, survive);
        if groups.iter().map(|a| a.replicas).sum::<u32>() > devices.len() as u32 {
            continue;
        }
        let is_kept = survives(&groups, &carrying, &devices, 1);
        assert_eq!(ZonePromise::new(1, &devices).raised(&groups, survive).is_none(), is_kept, "seed {seed}: {sizes:?}");
        cases += 1;
        survived += u32::from(is_kept);
    }
    assert!(survived > 20 && survived + 20 < cases, "{survived} of {cases}");
}
