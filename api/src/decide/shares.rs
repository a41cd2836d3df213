//! How do several pipelines divide the fleet's devices, before each is planned on its part?
//!
//! The devices of each type are divided in proportion to the pipelines' least work, by the method of largest remainders.
//! Least work is counted in busy devices, at the demand and with the fastest variants. One pipeline alone gets all devices.

use apportion_wire::PipelineSpec;
use std::collections::BTreeMap;

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
pub fn divide(counts: &BTreeMap<String, u32>, pipelines: &[PipelineSize]) -> Vec<BTreeMap<String, u32>> {
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

    fn counts(parts: &[BTreeMap<String, u32>]) -> Vec<u32> {
        parts.iter().map(|p| p["h"]).collect()
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
