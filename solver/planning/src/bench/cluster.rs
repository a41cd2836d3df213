//! Many pipelines compete for the devices of one cluster. How long does the division take, and how good is the proof?

use super::drawn::{Draw, ProblemShape, ShapeHardware, problem as drawn_problem};
use crate::exact::model::space::Space;
use crate::exact::model::tightening::Tightening;
use crate::exact::search::best::search;
use crate::exact::search::modes::SearchResult;
use crate::exact::stage::enumerate;
use apportion_domain::{Hardware, Mode, Objective, ObjectiveValue, Pipeline, Problem, ProblemDraft};
use apportion_mip::RunLimits;
use std::sync::Arc;
use std::time::Duration;

/// Pipelines of the design's speed table.
pub const PIPELINES: usize = 20;
/// Devices of the design's speed table.
pub const DEVICES: u32 = 400;
/// Part of the devices that the most accurate plans of all pipelines would need: the cluster is tight.
const WANTED: f64 = 1.3;
/// Most of its part of the devices that the leanest plan of a pipeline may take: a plan exists.
const LEANEST_MAX: f64 = 0.85;
/// Demand at which a pipeline's appetite for devices is measured: high enough for roundings not to matter.
const PROBE_QPS: f64 = 1_000.0;

/// One search.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterRow {
    /// How it ended: `optimal`, `feasible`, `infeasible` or `unknown`.
    pub outcome: &'static str,
    /// Weighted accuracy and its bound.
    pub objective: ObjectiveValue,
    /// Time of the search, by the clock passed in.
    pub elapsed: Duration,
}

/// A cluster of `devices` equal devices for `pipelines` pipelines, in mode `max_accuracy`.
///
/// The pipelines are those of `templates` in turn. Templates with several pipelines or several kinds of device are left
/// out. Without templates the pipelines are drawn. Weights and parts of the cluster are drawn from the seed. The demands
/// follow from them, so that the devices are scarce but enough.
#[must_use]
pub fn cluster(templates: &[Problem], pipelines: usize, devices: u32, seed: u64) -> Problem {
    let usable = |p: &&Problem| p.hardware.len() == 1 && p.pipelines.len() == 1;
    let mut templates: Vec<Pipeline> = templates.iter().filter(usable).map(|p| p.pipelines[0].clone()).collect();
    let hardware = Hardware { name: "device".into(), price_per_hour: 1.0, count: Some(devices), memory_mib: None };
    if templates.is_empty() {
        let shape = ProblemShape {
            pipelines,
            tasks_max: 3,
            variants_max: 5,
            batches: 6,
            hardware: vec![ShapeHardware { price_per_hour: 1.0, count: Some(devices), speed: 1.0 }],
            halves: false,
            demand_qps: PROBE_QPS,
            min_accuracy: None,
            objective: Objective::default(),
        };
        templates = drawn_problem(seed, &shape).pipelines.clone();
    }
    let mut draw = Draw::new(seed);
    let parts: Vec<f64> = (0..pipelines).map(|_| draw.between(0.5, 1.5)).collect();
    let total: f64 = parts.iter().sum();
    let pipeline = |(p, part): (usize, &f64)| {
        let template = &templates[p % templates.len()];
        let demand_qps = tight_demand(template, &hardware, part / total * f64::from(devices));
        let weight = 1.0 + draw.below(3) as f64;
        let changed = template.changed(std::slice::from_ref(&hardware), |d| {
            d.name = format!("{}-{p}", template.name);
            d.demand_qps = demand_qps;
            d.weight = weight;
        });
        changed.expect("another name, demand and weight change no validity")
    };
    let pipelines = parts.iter().enumerate().map(pipeline).collect();
    let objective = Objective { mode: Mode::MaxAccuracy, ..Objective::default() };
    let draft = ProblemDraft { objective, hardware: vec![hardware], pipelines, ..ProblemDraft::default() };
    Problem::new(draft).expect("pipelines of valid problems on one kind of device")
}

/// The demand in queries per second at which a pipeline wants [`WANTED`] times these devices for its highest
/// accuracy.
fn tight_demand(pipeline: &Pipeline, hardware: &Hardware, devices: f64) -> f64 {
    let draft = ProblemDraft {
        hardware: vec![hardware.clone()],
        pipelines: vec![pipeline.with_demand(PROBE_QPS)],
        ..ProblemDraft::default()
    };
    let problem = Problem::new(draft).expect("one pipeline on one kind of device");
    let limits = RunLimits::new(Arc::new(Duration::default));
    let Ok(space) = Space::new(&problem, &Tightening::none(&problem), &limits) else { return pipeline.demand_qps };
    let candidates = enumerate::budget_candidates(&problem, &space.parts[0], f64::INFINITY, &limits).unwrap_or_default();
    let most = candidates.iter().map(|c| c.accuracy_max).fold(0.0, f64::max);
    let least = candidates.iter().map(|c| c.envelope.workers_min()).fold(f64::INFINITY, f64::min);
    let full = candidates.iter().filter_map(|c| c.envelope.workers_for(most)).fold(f64::INFINITY, f64::min);
    if !full.is_finite() {
        return pipeline.demand_qps;
    }
    PROBE_QPS * devices * (WANTED / full).min(LEANEST_MAX / least)
}

/// Searches for the best division of a cluster, for at most `limit`, by the clock `now`. The plan is not replayed.
#[must_use]
pub fn divide(problem: &Problem, gap: f64, limit: Duration, now: &Arc<dyn Fn() -> Duration + Send + Sync>) -> ClusterRow {
    let start = now();
    let limits = RunLimits::new(now.clone()).ending_at(start + limit);
    let result = search(problem, &Tightening::none(problem), gap, &limits);
    let elapsed = now().saturating_sub(start);
    let none = ObjectiveValue { step: None, value: None, bound: None };
    let (outcome, objective) = match result {
        SearchResult::Found(found) => {
            let objective = ObjectiveValue { step: None, value: Some(found.value), bound: Some(found.bound) };
            let proven = objective.gap().is_some_and(|g| g <= gap);
            (if proven { "optimal" } else { "feasible" }, objective)
        }
        SearchResult::Infeasible => ("infeasible", none),
        SearchResult::Unknown(_) => ("unknown", none),
    };
    ClusterRow { outcome, objective, elapsed }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_tight_and_is_divided() {
        let problem = cluster(&[], 4, 40, 1);
        assert_eq!((problem.pipelines.len(), problem.hardware[0].count), (4, Some(40)));
        let clock: Arc<dyn Fn() -> Duration + Send + Sync> = Arc::new(|| Duration::ZERO);
        let row = divide(&problem, 1e-3, Duration::from_secs(1), &clock);
        let (value, gap) = (row.objective.value.expect("a plan"), row.objective.gap().expect("a bound"));
        assert!(value < 0.9999 && gap <= 1e-3, "{row:?}");
        assert_eq!(row.outcome, "optimal");
    }
}
