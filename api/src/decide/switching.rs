//! Is another division of the devices worth the loads that it brings?
//!
//! Example: two pipelines have four devices each, and serve their loads. Another division would gain 0.5 % of accuracy, and
//! two of eight replicas would load for 10 s. Within a minute that is 20 of 480 device-seconds, 4 % of the service. So the
//! devices stay where they are.

use super::projects::{DeviceCounts, DevicePrices, price_of};
use apportion_domain::{GroupName, PipelinePlan, Plan};
use std::collections::BTreeMap;

/// Time over which a gain is compared with the loads that it costs, in seconds: as long as the rule of changes compares the
/// costs of two plans ([`apportion_planning::change`]).
pub const HORIZON_S: f64 = 60.0;

/// How long replicas and devices take to come.
pub struct ChangeTimes<'a> {
    /// Seconds that a replica of a pipeline's group loads for.
    pub load_s: &'a dyn Fn(&str, &GroupName) -> f64,
    /// Seconds until a device of a type comes that is not there yet.
    pub provision_s: &'a BTreeMap<String, f64>,
    /// The devices that are there.
    pub live: &'a DeviceCounts,
}

/// Device-seconds by hardware type that a plan spends on loading before it serves, after these plans in force.
#[must_use]
pub fn loading_device_seconds(plan: &Plan, in_force: &[&PipelinePlan], times: &ChangeTimes<'_>) -> BTreeMap<String, f64> {
    let mut seconds: BTreeMap<String, f64> = BTreeMap::new();
    for part in &plan.pipelines {
        let before = in_force.iter().find(|before| before.name == part.name);
        for new in &part.assignments {
            let same = before.and_then(|before| before.assignments.iter().find(|a| a.group == new.group));
            let loads = new.replicas.saturating_sub(same.map_or(0, |a| a.replicas));
            let each = (times.load_s)(&part.name, &new.group) * new.group.share.value();
            *seconds.entry(new.group.hardware.clone()).or_default() += f64::from(loads) * each;
        }
    }
    for (name, count) in plan.devices() {
        let live = u64::from(times.live.get(name).copied().unwrap_or(0));
        let wait = times.provision_s.get(name).copied().unwrap_or(0.0);
        *seconds.entry(name.to_owned()).or_default() += count.saturating_sub(live) as f64 * wait;
    }
    seconds
}

/// The cost of a plan per hour, with its loads spread over [`HORIZON_S`].
#[must_use]
pub fn cost_with_loads(plan: &Plan, loading: &BTreeMap<String, f64>, prices: &DevicePrices) -> f64 {
    let of_type = |(name, count): (&str, u64)| price_of(prices, name) * count as f64;
    let devices: f64 = plan.devices().into_iter().map(of_type).sum();
    devices + loading.iter().map(|(name, seconds)| price_of(prices, name) * seconds / HORIZON_S).sum::<f64>()
}

/// The mean accuracy of a plan by these weights of its pipelines, less the part of its device-seconds that it loads for. A
/// query that no device serves has accuracy 0.
#[must_use]
pub fn accuracy_with_loads(plan: &Plan, loading: &BTreeMap<String, f64>, weights: &[f64]) -> f64 {
    let total: f64 = weights.iter().sum();
    let each = plan.pipelines.iter().zip(weights);
    let accuracy = each.map(|(part, weight)| part.accuracy * weight).sum::<f64>() / total.max(f64::MIN_POSITIVE);
    let devices: u64 = plan.devices().values().sum();
    accuracy - loading.values().sum::<f64>() / (HORIZON_S * (devices as f64).max(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use apportion_domain::{Assignment, Routing, ServingPolicy, Share};

    fn part(name: &str, accuracy: f64, groups: &[(&str, u32)]) -> PipelinePlan {
        let assignment = |&(hardware, replicas): &(&str, u32)| Assignment {
            group: GroupName { task: "t".into(), variant: "v".into(), hardware: hardware.into(), share: Share::WHOLE },
            batch: 1,
            replicas,
            traffic_share: 1.0,
            latency_budget_ms: 0.0,
            utilisation: 0.0,
        };
        PipelinePlan {
            name: name.into(),
            demand_qps: 1.0,
            accuracy,
            serving: ServingPolicy::default(),
            assignments: groups.iter().map(assignment).collect(),
            flows: Vec::new(),
            routing: Routing::default(),
            ladder: Vec::new(),
        }
    }

    fn plan(parts: &[PipelinePlan]) -> Plan {
        Plan { pipelines: parts.to_vec(), cost_per_hour: 0.0 }
    }

    fn loading(new: &Plan, in_force: &[PipelinePlan]) -> BTreeMap<String, f64> {
        let (live, provision_s) = (DeviceCounts::from([("x".into(), 6)]), BTreeMap::from([("x".to_owned(), 40.0)]));
        let times = ChangeTimes { load_s: &|_, _| 10.0, provision_s: &provision_s, live: &live };
        loading_device_seconds(new, &in_force.iter().collect::<Vec<_>>(), &times)
    }

    #[test]
    fn only_new_replicas_and_new_devices_cost_time() {
        let in_force = [part("a", 0.9, &[("x", 3)]), part("b", 0.9, &[("x", 3)])];
        assert_eq!(loading(&plan(&in_force), &in_force)["x"], 0.0);
        let moved = plan(&[part("a", 0.9, &[("x", 5)]), part("b", 0.9, &[("x", 1)])]);
        assert_eq!(loading(&moved, &in_force)["x"], 2.0 * 10.0);
        // two replicas load, on two devices that come after 40 s
        let grown = plan(&[part("a", 0.9, &[("x", 5)]), part("b", 0.9, &[("x", 3)])]);
        assert_eq!(loading(&grown, &in_force)["x"], 2.0 * 10.0 + 2.0 * 40.0);
    }

    #[test]
    fn a_small_gain_is_less_than_its_loads() {
        let in_force = [part("a", 0.9, &[("x", 3)]), part("b", 0.9, &[("x", 3)])];
        let stays = plan(&in_force);
        let none = loading(&stays, &in_force);
        // 20 of 360 device-seconds are 5.6 % of the service
        for (gain, is_worth_it) in [(0.05, false), (0.12, true)] {
            let moved = plan(&[part("a", 0.9 + gain, &[("x", 5)]), part("b", 0.9, &[("x", 1)])]);
            let loads = loading(&moved, &in_force);
            let better = accuracy_with_loads(&moved, &loads, &[1.0, 1.0]) > accuracy_with_loads(&stays, &none, &[1.0, 1.0]);
            assert_eq!(better, is_worth_it, "{gain}");
        }
        let prices = DevicePrices::from([("x".to_owned(), 3.0)]);
        // 5 devices and 2 loads of 10 s within a minute: 15 + 3 * 20 / 60
        let fewer = plan(&[part("a", 0.9, &[("x", 4)]), part("b", 0.9, &[("x", 1)])]);
        assert_eq!(cost_with_loads(&fewer, &BTreeMap::from([("x".to_owned(), 20.0)]), &prices), 16.0);
    }
}
