//! Which devices may plans have, and how many do they want?
//!
//! Example: two devices of `t4` are alive and `count_max` is 8. Plans for what may be had are made on 8. If their wishes
//! expire, 2 are in reach for a while, so the next such plan may choose another type.

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
        };
        let types = [of("t4", 8, None), of("a100", 4, Some(101)), of("l4", 2, Some(100)), of("cpu", 1, None)];
        let reach = devices_in_reach(&counts(&[("t4", 2), ("cpu", 3)]), &types, Duration::from_secs(100));
        assert_eq!(reach, counts(&[("t4", 8), ("l4", 2), ("cpu", 3)]));
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
