//! How do several pipelines divide the fleet's devices, before each is planned on its part?
//!
//! Each pipeline has the devices of its part of a joint plan ([`with_spare`]). The others are divided in proportion to the
//! pipelines' least work, by the method of largest remainders ([`divide`]). Least work is counted in busy devices, at the
//! demand and with the fastest variants. One pipeline alone gets all devices.

use apportion_domain::{PipelinePlan, Plan};
use apportion_wire::{ObjectiveSpec, PipelineSpec};
use std::collections::BTreeMap;

/// Devices by hardware type.
pub type DeviceCounts = BTreeMap<String, u32>;

/// The devices of a pipeline's plan.
#[must_use]
pub fn devices_of(part: &PipelinePlan) -> DeviceCounts {
    let plan = Plan { pipelines: vec![part.clone()], cost_per_hour: 0.0 };
    let devices = plan.devices().into_iter();
    devices.map(|(name, count)| (name.to_owned(), u32::try_from(count).unwrap_or(u32::MAX))).collect()
}

/// The pipelines that one plan can be made for, by position: those of the same mode and latency rule.
#[must_use]
pub fn pipelines_by_goal(objectives: &[ObjectiveSpec]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (at, objective) in objectives.iter().enumerate() {
        let is_same = |group: &Vec<usize>| {
            let of = &objectives[group[0]];
            (&of.mode, &of.latency_rule) == (&objective.mode, &objective.latency_rule)
        };
        match groups.iter().position(is_same) {
            Some(group) => groups[group].push(at),
            None => groups.push(vec![at]),
        }
    }
    groups
}

/// The objective of one plan for all of these pipelines. It has a budget, the sum, if each has one.
#[must_use]
pub fn joint_objective(objectives: &[&ObjectiveSpec]) -> ObjectiveSpec {
    let budget_per_hour = objectives.iter().map(|of| of.budget_per_hour).sum();
    ObjectiveSpec { budget_per_hour, ..objectives.first().copied().cloned().unwrap_or_default() }
}

/// A pipeline before the spare devices are divided.
#[derive(Clone, Debug, PartialEq)]
pub struct JointPart {
    /// The devices of its part of the joint plan.
    pub planned: DeviceCounts,
    /// The devices of its plan in force.
    pub in_force: DeviceCounts,
    /// Its size.
    pub size: PipelineSize,
}

/// Divides all devices (`counts`) among pipelines with a joint plan. Each has its part of that plan. What is left goes
/// first to pipelines whose plan in force has more: a plan in force does not lose a device that nobody needs. The rest is
/// divided by size.
#[must_use]
pub fn with_spare(counts: &DeviceCounts, parts: &[JointPart]) -> Vec<DeviceCounts> {
    let mut spare = counts.clone();
    let mut shares: Vec<DeviceCounts> = Vec::with_capacity(parts.len());
    let mut take = |hardware: &str, wanted: u32| {
        let left = spare.get_mut(hardware).filter(|_| wanted > 0);
        left.map_or(0, |left| {
            let taken = wanted.min(*left);
            *left -= taken;
            taken
        })
    };
    for part in parts {
        shares.push(part.planned.iter().map(|(name, &count)| (name.clone(), take(name, count))).collect());
    }
    for (part, share) in parts.iter().zip(&mut shares) {
        for (name, &count) in &part.in_force {
            let has = share.get(name).copied().unwrap_or(0);
            *share.entry(name.clone()).or_default() += take(name, count.saturating_sub(has));
        }
    }
    let sizes: Vec<PipelineSize> = parts.iter().map(|part| part.size).collect();
    for (share, more) in shares.iter_mut().zip(divide(&spare, &sizes)) {
        more.into_iter().for_each(|(name, count)| *share.entry(name).or_default() += count);
    }
    shares
}

/// The devices that a pipeline keeps busy at least: the sum over its tasks of queries per second times least time per
/// query.
#[must_use]
pub fn least_work(spec: &PipelineSpec, demand_qps: f64) -> f64 {
    let mut rates: BTreeMap<&str, f64> = BTreeMap::new();
    // Parents stand before children in most files. A few passes resolve any other order without a sort.
    for _ in 0..spec.tasks.len().min(16) {
        for task in &spec.tasks {
            let from_parents: f64 = spec
                .edges
                .iter()
                .filter(|e| e.to == task.name && e.primary != Some(false))
                .map(|e| rates.get(e.from.as_str()).copied().unwrap_or(0.0) * fan_out(spec, e))
                .sum();
            let is_root = !spec.edges.iter().any(|e| e.to == task.name);
            rates.insert(&task.name, if is_root { demand_qps } else { from_parents });
        }
    }
    let per_query = |task: &apportion_wire::TaskSpec| {
        let rows = task.variants.iter().flat_map(|v| v.profile.iter().flatten());
        rows.map(|r| r.latency_ms / 1_000.0 / f64::from(r.batch.max(1))).fold(f64::INFINITY, f64::min)
    };
    let work = |task: &apportion_wire::TaskSpec| rates[task.name.as_str()] * per_query(task);
    spec.tasks.iter().map(work).filter(|w| w.is_finite()).sum()
}

fn fan_out(spec: &PipelineSpec, edge: &apportion_wire::spec::EdgeSpec) -> f64 {
    let parent = spec.tasks.iter().find(|t| t.name == edge.from);
    let means = parent.into_iter().flat_map(|t| &t.variants).map(|v| {
        let counts = v.fanout_counts.get(&edge.to).map(|c| c.iter().map(|(&n, p)| f64::from(n) * p).sum());
        let mean = counts.or_else(|| v.fanout_to.get(&edge.to).copied());
        mean.unwrap_or_else(|| v.fanout.unwrap_or(1.0) * edge.ratio.unwrap_or(1.0))
    });
    means.fold(0.0, f64::max)
}

/// The size of a pipeline, for its share of the devices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PipelineSize {
    /// Devices that it keeps busy at least ([`least_work`]).
    pub least_work: f64,
    /// Its number of tasks.
    pub tasks: u32,
}

/// Divides the devices of each type (`counts`) among pipelines of these sizes.
///
/// Each pipeline gets at least as many devices of the most numerous type as it has tasks, if there are enough.
#[must_use]
pub fn divide(counts: &DeviceCounts, pipelines: &[PipelineSize]) -> Vec<DeviceCounts> {
    let mut parts = vec![BTreeMap::new(); pipelines.len()];
    if pipelines.len() == 1 {
        parts[0] = counts.clone();
        return parts;
    }
    let largest = counts.iter().max_by_key(|(_, count)| **count).map(|(name, _)| name.clone());
    for (name, &count) in counts {
        let tasks: u32 = pipelines.iter().map(|p| p.tasks).sum();
        let floor = Some(name) == largest.as_ref() && tasks <= count;
        let base: Vec<u32> = pipelines.iter().map(|p| if floor { p.tasks } else { 0 }).collect();
        let spare = count - base.iter().sum::<u32>();
        let weights: f64 = pipelines.iter().map(|p| p.least_work.max(1e-9)).sum();
        let exact: Vec<f64> = pipelines.iter().map(|p| f64::from(spare) * p.least_work.max(1e-9) / weights).collect();
        let mut given: Vec<u32> = exact.iter().map(|e| e.floor() as u32).collect();
        let mut order: Vec<usize> = (0..pipelines.len()).collect();
        order.sort_by(|&a, &b| exact[b].fract().total_cmp(&exact[a].fract()).then(a.cmp(&b)));
        let left = spare - given.iter().sum::<u32>();
        order.iter().take(left as usize).for_each(|&i| given[i] += 1);
        for (i, part) in parts.iter_mut().enumerate() {
            part.insert(name.clone(), base[i] + given[i]);
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(list: &[(f64, u32)]) -> Vec<PipelineSize> {
        list.iter().map(|&(least_work, tasks)| PipelineSize { least_work, tasks }).collect()
    }

    fn counts(parts: &[DeviceCounts]) -> Vec<u32> {
        parts.iter().map(|p| p["h"]).collect()
    }

    fn devices(list: &[(&str, u32)]) -> DeviceCounts {
        list.iter().map(|&(name, count)| (name.to_owned(), count)).collect()
    }

    fn part(planned: &[(&str, u32)], in_force: &[(&str, u32)], least_work: f64) -> JointPart {
        let size = PipelineSize { least_work, tasks: 1 };
        JointPart { planned: devices(planned), in_force: devices(in_force), size }
    }

    #[test]
    fn each_pipeline_has_its_part_of_the_joint_plan() {
        let parts = [part(&[("x", 4)], &[], 1.0), part(&[("y", 4)], &[], 9.0)];
        let shares = with_spare(&devices(&[("x", 4), ("y", 4)]), &parts);
        assert_eq!((shares[0]["x"], shares[0]["y"]), (4, 0));
        assert_eq!((shares[1]["x"], shares[1]["y"]), (0, 4));
    }

    #[test]
    fn spare_devices_go_first_to_plans_in_force() {
        let parts = [part(&[("x", 1)], &[("x", 3)], 1.0), part(&[("x", 1)], &[("x", 1)], 9.0)];
        assert_eq!(with_spare(&devices(&[("x", 4)]), &parts), [devices(&[("x", 3)]), devices(&[("x", 1)])]);
        let many = with_spare(&devices(&[("x", 24)]), &parts);
        assert_eq!((many[0]["x"], many[1]["x"]), (3 + 3, 1 + 17), "the other 20 by work, at least one for each");
    }

    #[test]
    fn shares_are_all_devices_and_no_more() {
        for (planned, count) in [(3_u32, 2_u32), (0, 7), (2, 5), (5, 5)] {
            let parts = [part(&[("x", planned)], &[("x", 2), ("z", 1)], 1.0), part(&[], &[("x", 4)], 2.0)];
            let shares = with_spare(&devices(&[("x", count), ("y", 3)]), &parts);
            let sum = |name: &str| shares.iter().filter_map(|share| share.get(name)).sum::<u32>();
            assert_eq!((sum("x"), sum("y"), sum("z")), (count, 3, 0), "{planned} planned: {shares:?}");
        }
    }

    #[test]
    fn only_pipelines_of_one_goal_share_a_plan() {
        let of = |mode: &str, budget_per_hour| ObjectiveSpec { mode: mode.into(), latency_rule: None, budget_per_hour };
        let all = [of("min_cost", Some(1.0)), of("max_accuracy", None), of("min_cost", Some(2.0))];
        assert_eq!(pipelines_by_goal(&all), [vec![0, 2], vec![1]]);
        assert_eq!(joint_objective(&[&all[0], &all[2]]), of("min_cost", Some(3.0)));
        assert_eq!(joint_objective(&[&all[0], &of("min_cost", None)]), of("min_cost", None));
    }

    #[test]
    fn devices_are_divided_in_proportion_to_the_work() {
        let fleet = [("h".to_string(), 10)].into();
        assert_eq!(counts(&divide(&fleet, &sizes(&[(3.0, 2), (1.0, 2)]))), [7, 3]);
        assert_eq!(counts(&divide(&fleet, &sizes(&[(3.0, 2)]))), [10]);
        assert_eq!(counts(&divide(&fleet, &sizes(&[(0.0, 2), (0.0, 2)]))), [5, 5]);
    }

    #[test]
    fn an_idle_pipeline_keeps_a_device_for_each_task() {
        let fleet = [("h".to_string(), 6)].into();
        assert_eq!(counts(&divide(&fleet, &sizes(&[(100.0, 2), (0.0, 2)]))), [4, 2]);
        let scarce = [("h".to_string(), 3)].into();
        assert_eq!(counts(&divide(&scarce, &sizes(&[(100.0, 2), (1.0, 2)]))), [3, 0]);
    }

    #[test]
    fn work_follows_the_fan_out() {
        let spec: PipelineSpec = serde_json::from_value(serde_json::json!({
            "name": "p", "slo_ms": 100.0,
            "tasks": [
                {"name": "find", "variants": [{"name": "f", "fanout_counts": {"read": {"2": 0.5, "4": 0.5}},
                    "profile": [{"hardware": "h", "batch": 1, "latency_ms": 10.0}]}]},
                {"name": "read", "variants": [{"name": "r",
                    "profile": [{"hardware": "h", "batch": 2, "latency_ms": 4.0}]}]}],
            "edges": [{"from": "find", "to": "read"}]
        }))
        .expect("a spec");
        assert!((least_work(&spec, 10.0) - (10.0 * 0.010 + 30.0 * 0.002)).abs() < 1e-12);
    }
}
