//! Which devices may plans have, and how many do they want?
//!
//! Example: two devices of `t4` are alive and `count_max` is 8. Plans for what may be had are made on 8. If their wishes
//! expire, 2 are in reach for a while, so the next such plan may choose another type.

use crate::decide::placement::Device;
use std::collections::BTreeMap;
use std::time::Duration;

/// A hardware type of which machines can be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReachableType {
    /// Its name.
    pub hardware: String,
    /// Most devices of all agents together.
    pub count_max: u32,
    /// No machine is asked for before this moment.
    pub retry_at: Option<Duration>,
    /// The zones in which machines are asked for, in turns; empty: they are not known.
    pub zones: Vec<String>,
}

/// Devices of one type that a pipeline has or wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PipelineDevices {
    /// The pipeline.
    pub pipeline: String,
    /// The hardware type.
    pub hardware: String,
    /// Devices.
    pub devices: u32,
}

/// The devices in reach: those of live agents, and those that machines can be asked for.
#[must_use]
pub fn devices_in_reach(live: &BTreeMap<String, u32>, types: &[ReachableType], now: Duration) -> BTreeMap<String, u32> {
    let mut reach = live.clone();
    for of in types.iter().filter(|of| of.retry_at.is_none_or(|at| at <= now)) {
        let count = reach.entry(of.hardware.clone()).or_default();
        *count = of.count_max.max(*count);
    }
    reach.retain(|_, count| *count > 0);
    reach
}

/// The devices in reach with their zones. Those of machines that are not there yet stand in the zones of their type in
/// turns, each on an agent of its own.
#[must_use]
pub fn placed_in_reach(live: Vec<Device>, reach: &BTreeMap<String, u32>, types: &[ReachableType]) -> Vec<Device> {
    let mut all = live;
    let mut agent = u64::MAX;
    for (hardware, count) in reach {
        let zones = types.iter().find(|of| of.hardware == *hardware).map_or(&[][..], |of| of.zones.as_slice());
        let here = all.iter().filter(|device| device.hardware == *hardware).count();
        for at in here..*count as usize {
            let zone = if zones.is_empty() { String::new() } else { zones[at % zones.len()].clone() };
            all.push(Device { zone, ..Device::new(agent, 0, hardware) });
            agent -= 1;
        }
    }
    all
}

/// The zone of the next machine: that with the fewest machines, of several the first. `None` if there is no zone.
#[must_use]
pub fn zone_of_next<'a>(zones: &'a [String], machines: &BTreeMap<String, i64>) -> Option<&'a str> {
    zones.iter().min_by_key(|zone| machines.get(*zone).copied().unwrap_or(0)).map(String::as_str)
}

/// Most devices that make up for lost ones, as a multiple of those that are needed.
const SPARE_FACTOR_MAX: f64 = 1.0;

/// How many devices are asked for, so that those needed are there on average although machines are lost.
///
/// Example: 8 devices, 0.5 losses an hour and 15 minutes give 9.
///
/// A machine is lost `hazard_per_hour` times an hour, and its successor comes after `provision`. So it is there for the
/// share `1 / (1 + hazard * provision)` of the time (an alternating renewal process). Therefore
/// `needed * (1 + hazard * provision)` devices are asked for.
#[must_use]
pub fn with_losses(needed: u32, hazard_per_hour: f64, provision: Duration) -> u32 {
    let lost = (hazard_per_hour * provision.as_secs_f64() / 3_600.0).clamp(0.0, SPARE_FACTOR_MAX);
    // A hair is taken off, so that a sum without losses is not rounded up.
    let spare = (f64::from(needed) * lost - 1e-9).ceil().max(0.0);
    needed.saturating_add(spare as u32)
}

/// The devices of each type that are needed. A pipeline without wants of its own wants those of its plan in force, and no
/// type gets fewer than the plans in force have.
#[must_use]
pub fn devices_needed(wants: &[PipelineDevices], in_force: &[PipelineDevices]) -> BTreeMap<String, u32> {
    let has_wants = |pipeline: &str| wants.iter().any(|want| want.pipeline == pipeline);
    let others = in_force.iter().filter(|held| !has_wants(&held.pipeline));
    let mut needed = sum(wants.iter().chain(others));
    for (hardware, devices) in sum(in_force.iter()) {
        let count = needed.entry(hardware).or_default();
        *count = devices.max(*count);
    }
    needed
}

fn sum<'a>(all: impl Iterator<Item = &'a PipelineDevices>) -> BTreeMap<String, u32> {
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    for one in all {
        let count = counts.entry(one.hardware.clone()).or_default();
        *count = count.saturating_add(one.devices);
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(rows: &[(&str, u32)]) -> BTreeMap<String, u32> {
        rows.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    }

    fn devices(rows: &[(&str, &str, u32)]) -> Vec<PipelineDevices> {
        let one = |(pipeline, hardware, devices): &(&str, &str, u32)| PipelineDevices {
            pipeline: (*pipeline).to_owned(),
            hardware: (*hardware).to_owned(),
            devices: *devices,
        };
        rows.iter().map(one).collect()
    }

    #[test]
    fn a_type_whose_wishes_expire_is_out_of_reach() {
        let of = |hardware: &str, count_max, retry_s: Option<u64>| ReachableType {
            hardware: hardware.into(),
            count_max,
            retry_at: retry_s.map(Duration::from_secs),
            zones: Vec::new(),
        };
        let types = [of("t4", 8, None), of("a100", 4, Some(101)), of("l4", 2, Some(100)), of("cpu", 1, None)];
        let reach = devices_in_reach(&counts(&[("t4", 2), ("cpu", 3)]), &types, Duration::from_secs(100));
        assert_eq!(reach, counts(&[("t4", 8), ("l4", 2), ("cpu", 3)]));
    }

    #[test]
    fn machines_in_reach_stand_in_their_zones_in_turns() {
        let types =
            [ReachableType { hardware: "t4".into(), count_max: 5, retry_at: None, zones: vec!["a".into(), "b".into()] }];
        let live = vec![Device { zone: "a".into(), ..Device::new(1, 0, "t4") }, Device::new(2, 0, "cpu")];
        let all = placed_in_reach(live.clone(), &counts(&[("cpu", 2), ("t4", 5)]), &types);
        let zones = |hardware: &str| {
            let of_type = all.iter().filter(|device| device.hardware == hardware);
            of_type.map(|device| device.zone.as_str()).collect::<Vec<_>>()
        };
        assert_eq!((zones("t4"), zones("cpu")), (vec!["a", "b", "a", "b", "a"], vec!["", ""]));
        assert_eq!(all[..2], live);
        let agents: std::collections::BTreeSet<u64> = all.iter().map(|device| device.agent).collect();
        assert_eq!(agents.len(), all.len(), "each on an agent of its own");
    }

    #[test]
    fn the_next_machine_comes_to_the_zone_with_the_fewest() {
        let zones = ["a", "b", "c"].map(str::to_owned);
        for (machines, expected) in [(&[][..], "a"), (&[("a", 2), ("c", 1)], "b"), (&[("a", 1), ("b", 1), ("c", 0)], "c")] {
            let machines = machines.iter().map(|(zone, count)| ((*zone).to_owned(), *count)).collect();
            assert_eq!(zone_of_next(&zones, &machines), Some(expected));
        }
        assert_eq!(zone_of_next(&[], &BTreeMap::new()), None);
    }

    #[test]
    fn lost_devices_are_made_up_for() {
        let quarter = Duration::from_secs(900);
        for (needed, hazard, expected) in [(8, 0.5, 9), (8, 0.0, 8), (8, 0.01, 9), (0, 5.0, 0), (8, 60.0, 16)] {
            assert_eq!(with_losses(needed, hazard, quarter), expected, "{needed} with {hazard}");
        }
    }

    /// A stand of machines that are each lost at random and replaced after a time: the formula against a small world.
    #[test]
    fn as_many_as_needed_are_there_on_average() {
        let (needed, hazard, provision_s) = (20, 2.0, 600);
        let asked = with_losses(needed, hazard, Duration::from_secs(provision_s));
        let (mut seed, mut there) = (7_u64, 0.0);
        // The seconds until each machine is there again.
        let mut absent = vec![0_u64; asked as usize];
        let seconds = 200_000;
        for _ in 0..seconds {
            for left in &mut absent {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let drawn = (seed >> 11) as f64 / (1_u64 << 53) as f64;
                *left = match *left {
                    0 if drawn < hazard / 3_600.0 => provision_s,
                    left => left.saturating_sub(1),
                };
                there += f64::from(u8::from(*left == 0)) / f64::from(seconds);
            }
        }
        assert!((there - f64::from(needed)).abs() < 1.0, "{there} of {asked} are there on average, {needed} are needed");
    }

    #[test]
    fn wants_count_and_plans_in_force_are_the_least() {
        let in_force = devices(&[("a", "t4", 2), ("b", "t4", 3), ("b", "cpu", 1), ("c", "l4", 1)]);
        let wants = devices(&[("a", "t4", 4), ("b", "a100", 1)]);
        // b moves from t4 to a100, and keeps its devices until then.
        assert_eq!(devices_needed(&wants, &in_force), counts(&[("a100", 1), ("cpu", 1), ("l4", 1), ("t4", 5)]));
        assert_eq!(devices_needed(&[], &[]), counts(&[]));
    }
}
