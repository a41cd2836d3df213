//! How good is the heuristic planner, and how good is InferLine's? Drawn chains, trees and graphs, each solved exactly too.

use super::drawn::{Draw, ProblemShape, ShapeHardware, draft, edge, task as drawn_task};
use crate::exact::model::goal::SearchEffort;
use crate::exact::model::tightening::Tightening;
use crate::exact::priced::PricedSearch;
use crate::exact::search::heuristic::plan_by_heuristic;
use crate::exact::search::modes::{ModeSearch, SearchResult};
use apportion_domain::{
    AccuracyModel, Edge, Hardware, HardwareIndex, LatencyRule, Mode, Objective, Pipeline, PipelineDraft, Problem,
    ProblemDraft, Share, Task, TaskIndex, VariantIndex,
};
use apportion_mip::RunLimits;
use std::sync::Arc;
use std::time::Duration;

/// How the tasks of a drawn pipeline hang together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topology {
    /// Each task feeds the next.
    Chain,
    /// Each task has one parent.
    Tree,
    /// A tree with an edge that only delays: a join.
    Dag,
}

impl Topology {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Chain, Self::Tree, Self::Dag];

    /// The name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Chain => "chain",
            Self::Tree => "tree",
            Self::Dag => "DAG",
        }
    }
}

/// The kind of a drawn problem.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeuristicsCase {
    /// The seed, which decides everything else.
    pub seed: u64,
    /// Of all its pipelines.
    pub topology: Topology,
    /// Its mode.
    pub mode: Mode,
    /// Its latency rule.
    pub rule: LatencyRule,
}

/// The case of a seed: topologies, modes and rules take turns.
#[must_use]
pub fn case(seed: u64) -> HeuristicsCase {
    let modes = [Mode::HardwareThenAccuracy, Mode::MinCost, Mode::MaxAccuracy];
    let at = seed as usize;
    let rule = if (at / 9).is_multiple_of(3) { LatencyRule::Path } else { LatencyRule::TaskBudget };
    HeuristicsCase { seed, topology: Topology::ALL[at % 3], mode: modes[at / 3 % 3], rule }
}

/// Draws the problem of a case: one to three pipelines on one to three kinds of device. Some have floors, a budget, halves
/// of devices, replicas that may be lost, or several replicas of a task at least.
///
/// # Panics
/// Never: all values are within their ranges.
#[must_use]
pub fn problem(case: &HeuristicsCase) -> Problem {
    let mut draw = Draw::new(case.seed);
    let pipelines = [1, 1, 1, 1, 1, 1, 2, 3][draw.below(8)];
    let kinds = [1, 1, 2, 2, 3][draw.below(5)];
    let hardware: Vec<ShapeHardware> = (0..kinds).map(|_| kind_of_device(&mut draw)).collect();
    let shape = ProblemShape {
        pipelines,
        tasks_max: 5,
        variants_max: 3,
        batches: 4,
        hardware: hardware.clone(),
        halves: draw.below(10) == 0,
        demand_qps: 0.0,
        min_accuracy: None,
        objective: Objective::default(),
    };
    let devices: Vec<Hardware> = hardware
        .iter()
        .enumerate()
        .map(|(h, of)| Hardware {
            name: format!("hardware{h}"),
            price_per_hour: of.price_per_hour,
            count: None,
            memory_mib: None,
        })
        .collect();
    let drawn: Vec<DrawnPipeline> =
        (0..pipelines).map(|p| pipeline(&mut draw, p, case.topology, &shape, &devices)).collect();
    let wanted: f64 = drawn.iter().map(|p| p.wanted).sum();
    let pipelines: Vec<Pipeline> =
        drawn.into_iter().map(|p| with_floor(&mut draw, p.pipeline, case.mode, &devices)).collect();
    // min_cost needs no counts; the accuracy modes have too few devices for the most accurate variants
    let is_counted = case.mode != Mode::MinCost || draw.below(3) == 0;
    let mut devices = devices;
    let price: f64 = devices.iter().map(|h| h.price_per_hour).sum::<f64>() / devices.len() as f64;
    let budget_per_hour =
        (case.mode != Mode::MinCost && draw.below(5) == 0).then(|| wanted * price * draw.between(0.3, 0.9));
    for device in &mut devices {
        let least = if case.mode == Mode::MinCost { 0.6 } else { 0.2 };
        let part = draw.between(least, 1.3) * wanted / kinds as f64;
        device.count = is_counted.then(|| part.ceil().max(1.0) as u32);
    }
    let objective = Objective { mode: case.mode, latency_rule: case.rule, budget_per_hour };
    let draft = ProblemDraft { objective, hardware: devices, pipelines, ..ProblemDraft::default() };
    Problem::new(draft).expect("all values are within their ranges")
}

/// A kind of device: a faster one costs more, but not in proportion.
fn kind_of_device(draw: &mut Draw) -> ShapeHardware {
    let speed = draw.between(0.5, 3.0);
    ShapeHardware { price_per_hour: (speed * draw.between(0.6, 1.6) * 100.0).round() / 100.0, count: None, speed }
}

/// A pipeline with the devices that its most accurate variants want.
struct DrawnPipeline {
    pipeline: Pipeline,
    wanted: f64,
}

fn pipeline(
    draw: &mut Draw,
    index: usize,
    topology: Topology,
    shape: &ProblemShape,
    hardware: &[Hardware],
) -> DrawnPipeline {
    let count = match topology {
        Topology::Chain => 1 + draw.below(4),
        Topology::Tree => 3 + draw.below(2),
        Topology::Dag => 3 + draw.below(2),
    };
    let mut tasks: Vec<Task> = (0..count).map(|t| drawn_task(draw, t, shape)).collect();
    tasks.iter_mut().for_each(|t| t.min_replicas = if draw.below(12) == 0 { 2 } else { 0 });
    let from = |draw: &mut Draw, t: usize| match topology {
        Topology::Chain => t - 1,
        // the second task of a tree or graph is a sibling of the first
        Topology::Tree | Topology::Dag if t <= 2 => 0,
        Topology::Tree | Topology::Dag => draw.below(t),
    };
    let mut edges: Vec<Edge> = (1..count).map(|t| edge(from(draw, t), t)).collect();
    if topology == Topology::Dag {
        let to = count - 1;
        let other = if edges[to - 1].from == TaskIndex(1) { 2 } else { 1 };
        if other != to && !edges.iter().any(|e| e.from == TaskIndex(to) && e.to == TaskIndex(other)) {
            edges.push(Edge { primary: false, ..edge(other, to) });
        }
    }
    let slowest: f64 = tasks.iter().map(|t| t.variants[0].profile.rows()[0].latency_ms).sum();
    let draft = PipelineDraft {
        slo_ms: slowest * draw.between(2.2, 6.0),
        network_ms: if draw.below(3) == 0 { 1.0 } else { 0.0 },
        weight: 1.0 + draw.below(3) as f64,
        accuracy_model: [AccuracyModel::Product, AccuracyModel::Product, AccuracyModel::Mean][draw.below(3)],
        survive: u32::from(draw.below(10) == 0),
        ..draft(index, edges, tasks)
    };
    let pipeline = Pipeline::new(draft, hardware, "").expect("a pipeline within the ranges");
    // the demand follows from the number of devices: from 2 to 30 of them
    let wanted = draw.between(2.0, 30.0);
    let demand_qps = 100.0 * wanted / devices_at_100_qps(&pipeline, hardware.len());
    DrawnPipeline { pipeline: pipeline.with_demand(demand_qps), wanted }
}

/// Devices that the most accurate variants need for 100 queries per second, with a middle batch on a mean device.
fn devices_at_100_qps(pipeline: &Pipeline, kinds: usize) -> f64 {
    let mut load = vec![100.0; pipeline.tasks.len()];
    let mut sum = 0.0;
    for &t in pipeline.order() {
        if let Some(edge) = pipeline.primary_parent(t) {
            load[t.get()] = load[edge.from.get()] * pipeline.fanout(edge, VariantIndex(0));
        }
        let profile = &pipeline.task(t).variants[0].profile;
        let of_kind = |h: usize| profile.on(HardwareIndex(h), Share::WHOLE)[1].throughput_qps();
        sum += load[t.get()] / ((0..kinds).map(of_kind).sum::<f64>() / kinds as f64);
    }
    sum
}

/// The pipeline with a floor, always for `min_cost`, and sometimes otherwise.
fn with_floor(draw: &mut Draw, pipeline: Pipeline, mode: Mode, hardware: &[Hardware]) -> Pipeline {
    let floor = draw.between(0.6, 0.97);
    let has_floor = mode == Mode::MinCost || draw.below(6) == 0;
    let changed = pipeline.changed(hardware, |d| d.min_accuracy = has_floor.then_some(floor));
    changed.expect("a floor below 1")
}

/// The conditions of a problem beside its case: tasks and variants, devices, losses, floors and least replicas.
///
/// Example: `4 tasks, 11 variants, 2 kinds of devices, counted, survive 1, floor 0.87`.
#[must_use]
pub fn conditions(problem: &Problem) -> String {
    let tasks = || problem.pipelines.iter().flat_map(|p| &p.tasks);
    let variants = || tasks().flat_map(|task| &task.variants);
    let mut all = vec![
        format!("{} tasks", tasks().count()),
        format!("{} variants", variants().count()),
        format!("{} kinds of devices", problem.hardware.len()),
    ];
    let is_shared = variants().any(|v| v.profile.places().any(|(_, share)| share != Share::WHOLE));
    let has_least = tasks().any(|task| task.min_replicas > 0);
    let flags = [
        (problem.hardware.iter().any(|h| h.count.is_some()), "counted"),
        (is_shared, "halves"),
        (problem.objective.budget_per_hour.is_some(), "budget"),
        (has_least, "least replicas"),
    ];
    all.extend(flags.iter().filter(|(is_so, _)| *is_so).map(|(_, name)| (*name).to_owned()));
    for pipeline in &problem.pipelines {
        all.extend((pipeline.survive > 0).then(|| format!("survive {}", pipeline.survive)));
        all.extend(pipeline.min_accuracy.map(|floor| format!("floor {floor:.2}")));
    }
    all.join(", ")
}

/// One problem, solved in both ways.
#[derive(Clone, Debug, PartialEq)]
pub struct HeuristicsRow {
    /// The case.
    pub case: HeuristicsCase,
    /// Its pipelines.
    pub pipelines: usize,
    /// What else makes it hard, in words: see [`conditions`].
    pub conditions: String,
    /// The optimum, if it is proven that there is a plan.
    pub optimum: Option<f64>,
    /// How the exact search ended: `optimal`, `feasible`, `infeasible` or `unknown`.
    pub exact: &'static str,
    /// The heuristic's value.
    pub value: Option<f64>,
    /// The heuristic's bound.
    pub bound: Option<f64>,
    /// How far the heuristic's value is from the optimum, relative; infinite without a plan.
    pub gap: f64,
    /// Time of the exact search.
    pub exact_time: Duration,
    /// Time of the heuristic.
    pub time: Duration,
}

/// Gap asked of the exact search, and the largest one that counts as equal.
pub const GAP: f64 = 1e-4;
/// Limit of an exact search.
pub const EXACT_LIMIT: Duration = Duration::from_secs(3);

/// Solves one problem exactly and by the heuristic, by the clock `now`.
#[must_use]
pub fn row(case: &HeuristicsCase, problem: &Problem, now: &Arc<dyn Fn() -> Duration + Send + Sync>) -> HeuristicsRow {
    let none = Tightening::none(problem);
    let start = now();
    let found = plan_by_heuristic(problem, &none, &RunLimits::new(now.clone()));
    let time = now().saturating_sub(start);
    let start = now();
    let limits = RunLimits::new(now.clone()).ending_at(start + EXACT_LIMIT);
    let effort = SearchEffort::until_proven(GAP);
    // without the heuristic's plan as its reserve: the heuristic is not compared with itself
    let exact = ModeSearch { problem, tightening: &none, effort, memory: None, limits: &limits }.search_exactly();
    let exact_time = now().saturating_sub(start);
    let (outcome, optimum, step) = match &exact {
        SearchResult::Found(found) => {
            let is_proven = (found.value - found.bound).abs() <= GAP * found.value.abs().max(1e-9);
            (if is_proven { "optimal" } else { "feasible" }, Some(found.value), found.step)
        }
        SearchResult::Infeasible => ("infeasible", None, None),
        SearchResult::Unknown(_) => ("unknown", None, None),
    };
    let (value, bound, gap) = match (&found, optimum) {
        (PricedSearch::Found(found), Some(optimum)) if found.step == step => {
            let worse = if crate::exact::model::bounds::is_maximised(problem, step) {
                optimum - found.value
            } else {
                found.value - optimum
            };
            (Some(found.value), Some(found.bound), worse / optimum.abs().max(1e-9))
        }
        (PricedSearch::Found(found), _) => (Some(found.value), Some(found.bound), f64::INFINITY),
        (_, None) => (None, None, 0.0),
        (_, Some(_)) => (None, None, f64::INFINITY),
    };
    HeuristicsRow {
        case: *case,
        pipelines: problem.pipelines.len(),
        conditions: conditions(problem),
        optimum,
        exact: outcome,
        value,
        bound,
        gap,
        exact_time,
        time,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_name_everything_that_a_problem_has() {
        let plain = problem(&case(50_000)).changed(|d| {
            d.hardware.iter_mut().for_each(|h| h.count = None);
            d.objective.budget_per_hour = None;
        });
        let plain = plain.expect("fewer limits are valid");
        let limited = plain.changed(|d| {
            d.hardware[0].count = Some(1_000);
            d.objective.budget_per_hour = Some(1e6);
        });
        let (before, after) = (conditions(&plain), conditions(&limited.expect("loose limits are valid")));
        assert!(!before.contains("counted") && !before.contains("budget"), "{before}");
        assert!(after.contains("counted") && after.contains("budget"), "{after}");
        let tasks: usize = plain.pipelines.iter().map(|p| p.tasks.len()).sum();
        assert!(before.starts_with(&format!("{tasks} tasks, ")), "{before}");
        assert_eq!(before.contains("survive"), plain.pipelines.iter().any(|p| p.survive > 0), "{before}");
        assert_eq!(before.matches("floor").count(), plain.pipelines.iter().filter(|p| p.min_accuracy.is_some()).count());
    }
}
