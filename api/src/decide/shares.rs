//! How do several pipelines divide the fleet's devices, before each is planned on its part?
//!
//! Each pipeline has the devices of its part of a joint plan ([`with_spare`]), as far as the quota of its project goes. The
//! others are divided in proportion to the pipelines' least work, by the method of largest remainders ([`divide`]). Least
//! work is counted in busy devices, at the demand and with the fastest variants. One pipeline alone gets all devices.

use super::device_pool::DevicePool;
use super::projects::DeviceCounts;
use apportion_domain::{PipelinePlan, Plan};
use apportion_wire::{ObjectiveSpec, PipelineSpec};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use utoipa::ToSchema;

/// The devices of a pipeline's plan.
#[must_use]
pub fn devices_of(part: &PipelinePlan) -> DeviceCounts {
    let plan = Plan { pipelines: vec![part.clone()], cost_per_hour: 0.0 };
    let devices = plan.devices().into_iter();
    devices.map(|(name, count)| (name.to_owned(), u32::try_from(count).unwrap_or(u32::MAX))).collect()
}

/// Adds the devices of a pipeline's plan to a sum.
pub fn add_devices_of(sum: &mut DeviceCounts, part: &PipelinePlan) {
    for (name, count) in devices_of(part) {
        *sum.entry(name).or_default() += count;
    }
}

/// The devices of these pipelines' plans together.
#[must_use]
pub fn devices_together<'a>(parts: impl IntoIterator<Item = &'a PipelinePlan>) -> DeviceCounts {
    let mut sum = DeviceCounts::new();
    parts.into_iter().for_each(|part| add_devices_of(&mut sum, part));
    sum
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
    /// The hardware types that it has measurements on.
    pub usable: BTreeSet<String>,
    /// Its level: those of level 0 have devices first.
    pub level: usize,
    /// Whether its part serves its demand.
    pub supply: PlannedSupply,
    /// Its size.
    pub size: PipelineSize,
}

/// Whether a part of a joint plan serves the demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlannedSupply {
    /// All of it.
    Enough,
    /// Less of it, because there are too few devices.
    Short,
}

/// The plan that a pipeline would have with all devices of a round to itself, as far as the quota of its project goes. It
/// is the best of the formulation, without a check on samples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AlternativePlan {
    /// Its devices by hardware type.
    pub devices: BTreeMap<String, u32>,
    /// Its replicas.
    pub replicas: u64,
    /// The cost of its devices per hour.
    pub cost_per_hour: f64,
    /// Its accuracy.
    pub accuracy: f64,
}

impl AlternativePlan {
    /// The figures of a plan of one pipeline.
    #[must_use]
    pub fn of(plan: &Plan) -> Self {
        let devices = devices_together(&plan.pipelines);
        let accuracy = plan.pipelines.first().map_or(0.0, |part| part.accuracy);
        Self { devices, replicas: plan.replicas(), cost_per_hour: plan.cost_per_hour, accuracy }
    }
}

/// Divides the devices of the pool among pipelines with a joint plan, as far as the quotas go. Each has its part of that
/// plan. Of the rest, pipelines whose parts are short have all first, level by level. What is left goes to pipelines whose
/// plan in force has more: a plan in force does not lose a device that nobody needs. The rest is divided by size.
#[must_use]
pub fn with_spare(pool: &mut DevicePool, parts: &[JointPart]) -> Vec<DeviceCounts> {
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by_key(|&at| parts[at].level);
    let mut shares = vec![DeviceCounts::new(); parts.len()];
    for &at in &order {
        shares[at] = pool.take_all(at, &parts[at].planned);
    }
    let short: Vec<usize> = order.iter().copied().filter(|&at| parts[at].supply == PlannedSupply::Short).collect();
    for of_level in short.chunk_by(|&a, &b| parts[a].level == parts[b].level) {
        divide_rest(pool, parts, of_level, &mut shares);
    }
    for &at in &order {
        for (name, &count) in &parts[at].in_force {
            let has = shares[at].get(name).copied().unwrap_or(0);
            let taken = pool.take(at, name, count.saturating_sub(has));
            *shares[at].entry(name.clone()).or_default() += taken;
        }
    }
    let all: Vec<usize> = (0..parts.len()).collect();
    divide_rest(pool, parts, &all, &mut shares);
    shares
}

/// Divides the rest of the pool among some of the pipelines, by size. No pipeline gets a type that it cannot use.
fn divide_rest(pool: &mut DevicePool, parts: &[JointPart], members: &[usize], shares: &mut [DeviceCounts]) {
    let names: Vec<String> = pool.left().keys().cloned().collect();
    let largest = pool.left().iter().max_by_key(|(_, count)| **count).map(|(name, _)| name.clone());
    for name in names {
        // Each pass gives all that is left, or closes a pipeline whose quota is used up.
        loop {
            let left = pool.left().get(&name).copied().unwrap_or(0);
            let is_open = |at: &usize| parts[*at].usable.contains(&name) && pool.available(*at, &name) > 0;
            let open: Vec<usize> = members.iter().copied().filter(is_open).collect();
            if left == 0 || open.is_empty() {
                break;
            }
            let tasks = |at: usize| if Some(&name) == largest.as_ref() { parts[at].size.tasks } else { 0 };
            let sizes: Vec<PipelineSize> =
                open.iter().map(|&at| PipelineSize { tasks: tasks(at), ..parts[at].size }).collect();
            for (at, offered) in open.into_iter().zip(divide(&DeviceCounts::from([(name.clone(), left)]), &sizes)) {
                let taken = pool.take(at, &name, offered.get(&name).copied().unwrap_or(0));
                *shares[at].entry(name.clone()).or_default() += taken;
            }
        }
    }
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
    use crate::decide::device_pool::ProjectRoom;
    use crate::decide::projects::ProjectQuota;

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
        JointPart {
            planned: devices(planned),
            in_force: devices(in_force),
            usable: ["x", "y", "z"].map(str::to_owned).into(),
            level: 0,
            supply: PlannedSupply::Enough,
            size: PipelineSize { least_work, tasks: 1 },
        }
    }

    /// The shares without quotas.
    fn shares(counts: &[(&str, u32)], parts: &[JointPart]) -> Vec<DeviceCounts> {
        with_spare(&mut DevicePool::new(devices(counts), Vec::new(), BTreeMap::new()), parts)
    }

    #[test]
    fn each_pipeline_has_its_part_of_the_joint_plan() {
        let parts = [part(&[("x", 4)], &[], 1.0), part(&[("y", 4)], &[], 9.0)];
        assert_eq!(shares(&[("x", 4), ("y", 4)], &parts), [devices(&[("x", 4)]), devices(&[("y", 4)])]);
    }

    #[test]
    fn spare_devices_go_first_to_plans_in_force() {
        let parts = [part(&[("x", 1)], &[("x", 3)], 1.0), part(&[("x", 1)], &[("x", 1)], 9.0)];
        assert_eq!(shares(&[("x", 4)], &parts), [devices(&[("x", 3)]), devices(&[("x", 1)])]);
        let many = shares(&[("x", 24)], &parts);
        assert_eq!((many[0]["x"], many[1]["x"]), (3 + 3, 1 + 17), "the other 20 by work, at least one for each");
    }

    #[test]
    fn shares_are_all_devices_and_no_more() {
        for (planned, count) in [(3_u32, 2_u32), (0, 7), (2, 5), (5, 5)] {
            let parts = [part(&[("x", planned)], &[("x", 2), ("z", 1)], 1.0), part(&[], &[("x", 4)], 2.0)];
            let shares = shares(&[("x", count), ("y", 3)], &parts);
            let sum = |name: &str| shares.iter().filter_map(|share| share.get(name)).sum::<u32>();
            assert_eq!((sum("x"), sum("y"), sum("z")), (count, 3, 0), "{planned} planned: {shares:?}");
        }
    }

    #[test]
    fn spare_devices_go_to_short_pipelines_by_level() {
        let short = |level, least_work| JointPart { level, supply: PlannedSupply::Short, ..part(&[], &[], least_work) };
        let served = part(&[("x", 1)], &[("x", 4)], 5.0);
        // all that is left, before the plan in force keeps more than it needs
        assert_eq!(shares(&[("x", 7)], &[served.clone(), short(2, 1.0), short(1, 1.0)])[2], devices(&[("x", 6)]));
        let side_by_side = shares(&[("x", 7)], &[served.clone(), short(1, 2.0), short(1, 1.0)]);
        assert_eq!(side_by_side[1..], [devices(&[("x", 4)]), devices(&[("x", 2)])]);
        let unusable = JointPart { usable: BTreeSet::new(), ..short(1, 1.0) };
        assert_eq!(shares(&[("x", 7)], &[served, unusable])[0], devices(&[("x", 7)]));
    }

    #[test]
    fn spare_devices_stay_within_quotas() {
        let quota = ProjectQuota { hardware: devices(&[("x", 3)]), ..ProjectQuota::default() };
        let room = ProjectRoom { project: "a".into(), members: vec![0, 1], quota };
        let parts = [part(&[("x", 2)], &[("x", 9)], 9.0), part(&[("x", 2)], &[], 9.0), part(&[], &[], 1.0)];
        let mut pool = DevicePool::new(devices(&[("x", 10)]), vec![room], BTreeMap::new());
        let shares = with_spare(&mut pool, &parts);
        assert_eq!(shares, [devices(&[("x", 2)]), devices(&[("x", 1)]), devices(&[("x", 7)])]);
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
