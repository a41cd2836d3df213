//! How fast is a whole fleet planned? Hundreds of pipelines on thousands of devices of four types, drawn from a seed.
//!
//! A pipeline is a chain, a tree or a DAG of one to five tasks. Some run on halves of the large devices. The demands follow
//! from the parts of the fleet that are drawn for them, so that the devices are scarce in the way that the mode needs.

use super::drawn::{Draw, draft, edge, row};
#[cfg(test)]
use crate::exact::model::space::Space;
use crate::exact::model::tightening::Tightening;
use crate::exact::search::attempt::check_solution;
use crate::exact::search::best::{search, search_with_memory};
use crate::exact::search::modes::SearchResult;
#[cfg(test)]
use crate::exact::solution::choice::PlanIntegers;
use crate::fleet_memory::FleetMemory;
use crate::options::PlanningOptions;
use apportion_domain::{
    Edge, Hardware, HardwareIndex, Mode, Objective, ObjectiveStep, ObjectiveValue, Pipeline, PipelineDraft, Problem,
    ProblemDraft, Profile, ProfileRow, Route, Share, Task, TaskKind, Variant,
};
use apportion_mip::RunLimits;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Pipelines of the fleet.
pub const PIPELINES: usize = 200;
/// Its devices.
pub const DEVICES: u32 = 10_000;

/// A hardware type of the fleet.
struct FleetHardware {
    name: &'static str,
    price_per_hour: f64,
    /// Part of the devices.
    part: f64,
    /// Speed of a device against the second type.
    speed: f64,
    /// Whether some pipelines run on halves of a device.
    halves: bool,
}

/// Prices are those of cloud machines of these kinds; speeds are what the samples show.
const HARDWARE: [FleetHardware; 4] = [
    FleetHardware { name: "cpu", price_per_hour: 0.17, part: 0.4, speed: 0.25, halves: false },
    FleetHardware { name: "t4", price_per_hour: 0.526, part: 0.3, speed: 1.0, halves: false },
    FleetHardware { name: "v100", price_per_hour: 3.06, part: 0.2, speed: 3.5, halves: true },
    FleetHardware { name: "a100", price_per_hour: 4.1, part: 0.1, speed: 5.5, halves: true },
];
/// Most tasks of a pipeline.
const TASKS_MAX: usize = 5;
/// Most variants of a task.
const VARIANTS_MAX: usize = 4;
/// Batch sizes 1, 2, 4, 8, 16.
const BATCHES: u32 = 5;
/// Part of the pipelines with another demand in the next round.
const MOVED_PART: f64 = 0.05;
/// One pipeline in this many also runs on halves of devices.
const HALVES_EVERY: usize = 4;

/// The question that a fleet is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FleetKind {
    /// `max_accuracy`: the most accurate plans would need 1.3 times the devices. Half of the pipelines have a floor.
    Accurate,
    /// The same within a budget of 70 % of the price of all devices.
    Budgeted,
    /// `min_cost` with a floor for each pipeline. The cheapest devices are used up.
    Cheap,
    /// The same beside a deployed plan for slightly other demands, with costs of switching.
    Switching,
    /// `hardware_then_accuracy` with enough devices: step 1.
    Enough,
    /// `hardware_then_accuracy` with too few devices: step 2.
    TooFew,
}

impl FleetKind {
    /// All kinds.
    pub const ALL: [Self; 6] = [Self::Accurate, Self::Budgeted, Self::Cheap, Self::Switching, Self::Enough, Self::TooFew];

    /// The name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Accurate => "max_accuracy",
            Self::Budgeted => "max_accuracy, budget",
            Self::Cheap => "min_cost, floors",
            Self::Switching => "min_cost, floors, switching",
            Self::Enough => "hardware_then_accuracy, enough",
            Self::TooFew => "hardware_then_accuracy, too few",
        }
    }

    fn mode(self) -> Mode {
        match self {
            Self::Accurate | Self::Budgeted => Mode::MaxAccuracy,
            Self::Cheap | Self::Switching => Mode::MinCost,
            Self::Enough | Self::TooFew => Mode::HardwareThenAccuracy,
        }
    }

    /// Devices that the most accurate plans need, as a part of the fleet.
    fn wanted(self) -> f64 {
        match self {
            Self::Accurate | Self::Budgeted | Self::TooFew => 1.3,
            // cheaper variants keep the floors with less than half of the power
            Self::Cheap | Self::Switching => 1.2,
            Self::Enough => 0.6,
        }
    }
}

/// The size of a drawn fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FleetSize {
    /// How many pipelines.
    pub pipelines: usize,
    /// Devices of all types together.
    pub devices: u32,
}

impl FleetSize {
    /// The fleet of the design's speed table.
    pub const WHOLE: Self = Self { pipelines: PIPELINES, devices: DEVICES };
}

/// Draws a fleet.
#[must_use]
pub fn fleet(kind: FleetKind, size: FleetSize, seed: u64) -> Problem {
    let mut draw = Draw::new(seed);
    let count = |part: f64| (part * f64::from(size.devices)).round() as u32;
    let hardware: Vec<Hardware> = HARDWARE
        .iter()
        .map(|h| Hardware {
            name: h.name.into(),
            price_per_hour: h.price_per_hour,
            count: Some(count(h.part)),
            memory_mib: None,
        })
        .collect();
    let power: f64 = hardware.iter().zip(&HARDWARE).map(|(h, of)| f64::from(h.count.unwrap_or(0)) * of.speed).sum();
    let parts: Vec<f64> = (0..size.pipelines).map(|_| draw.between(0.3, 1.7)).collect();
    let total: f64 = parts.iter().sum();
    let pipelines: Vec<Pipeline> = parts
        .iter()
        .enumerate()
        .map(|(p, part)| pipeline(&mut draw, p, kind, kind.wanted() * power * part / total, &hardware))
        .collect();
    let price: f64 = hardware.iter().map(|h| f64::from(h.count.unwrap_or(0)) * h.price_per_hour).sum();
    let budget_per_hour = (kind == FleetKind::Budgeted).then_some(0.7 * price);
    let objective = Objective { mode: kind.mode(), budget_per_hour, ..Objective::default() };
    let draft = ProblemDraft { objective, hardware, pipelines, ..ProblemDraft::default() };
    let problem = Problem::new(draft).expect("pipelines within the ranges of problems");
    if kind == FleetKind::Switching { with_deployed(&problem, &mut draw) } else { problem }
}

/// One pipeline that takes about this power: devices of the second type, for its most accurate variants.
fn pipeline(draw: &mut Draw, index: usize, kind: FleetKind, power: f64, hardware: &[Hardware]) -> Pipeline {
    let tasks_count = 1 + draw.below(TASKS_MAX);
    let half = Share::new(0.5).expect("a half is a share");
    let parts = if draw.below(HALVES_EVERY) == 0 { vec![half] } else { Vec::new() };
    let tasks: Vec<Task> = (0..tasks_count).map(|t| task(draw, t, &parts)).collect();
    let edges = edges(draw, tasks_count);
    let base = |t: usize| base_latency_ms(&tasks[t]);
    let slo_ms = longest_way(tasks_count, &edges, base) * draw.between(2.4, 6.0);
    let power_per_query = power_per_query(&tasks, &edges, slo_ms);
    let floor = match kind.mode() {
        Mode::MinCost => Some(draw.between(0.75, 0.95)),
        Mode::MaxAccuracy if draw.below(2) == 0 => Some(draw.between(0.5, 0.7)),
        _ => None,
    };
    let draft = PipelineDraft {
        demand_qps: power / power_per_query,
        slo_ms,
        weight: 1.0 + draw.below(3) as f64,
        min_accuracy: floor,
        ..draft(index, edges, tasks)
    };
    Pipeline::new(draft, hardware, "").expect("a pipeline within the ranges")
}

/// A chain, a tree, or one of both with an edge that only delays.
fn edges(draw: &mut Draw, tasks: usize) -> Vec<Edge> {
    let kind = draw.below(3);
    let is_chain = kind == 0 || (kind == 2 && draw.below(2) == 0);
    let mut edges: Vec<Edge> = (1..tasks).map(|t| edge(if is_chain { t - 1 } else { draw.below(t) }, t)).collect();
    if kind == 2 && tasks > 2 {
        let to = 2 + draw.below(tasks - 2);
        let from = draw.below(to);
        if !edges.iter().any(|e| e.from.get() == from && e.to.get() == to) {
            edges.push(Edge { primary: false, ..edge(from, to) });
        }
    }
    edges
}

/// Variants by falling accuracy. The most accurate one is the slowest. Some run on parts of large devices too.
fn task(draw: &mut Draw, index: usize, parts: &[Share]) -> Task {
    let count = 2 + draw.below(VARIANTS_MAX - 1);
    let mut accuracy = 1.0;
    let mut latency = draw.between(8.0, 40.0);
    let mut variants = Vec::with_capacity(count);
    for v in 0..count {
        variants.push(Variant {
            name: format!("v{v}"),
            accuracy,
            fanout: draw.between(0.6, 1.8),
            fanout_to: BTreeMap::new(),
            fanout_counts: BTreeMap::new(),
            load_ms: draw.between(500.0, 4_000.0),
            memory_mib: None,
            profile: Profile::new(rows(draw, latency, parts)),
        });
        accuracy *= draw.between(0.88, 0.98);
        latency *= draw.between(0.4, 0.8);
    }
    Task { name: format!("t{index}"), kind: TaskKind::Batch, route: Route::All, min_replicas: 0, variants }
}

/// A batch of b takes `latency * (a + (1 - a) b) / speed`. Each variant has its own a and its own speed on each type.
fn rows(draw: &mut Draw, latency: f64, parts: &[Share]) -> Vec<ProfileRow> {
    let mut rows = Vec::new();
    for (h, hardware) in HARDWARE.iter().enumerate() {
        let fixed = draw.between(0.2, 0.6);
        let speed = hardware.speed * draw.between(0.75, 1.3);
        for b in 0..BATCHES {
            let batch = 1_u32 << b;
            let latency_ms = latency / speed * (fixed + (1.0 - fixed) * f64::from(batch));
            let at = |share: Share, latency_ms: f64| row(HardwareIndex(h), share, batch, latency_ms);
            rows.push(at(Share::WHOLE, latency_ms));
            rows.extend(parts.iter().filter(|_| hardware.halves).map(|&part| at(part, 1.8 * latency_ms)));
        }
    }
    rows
}

/// Milliseconds of a single query at the most accurate variant on the second type.
fn base_latency_ms(task: &Task) -> f64 {
    let on_base = task.variants[0].profile.rows().iter().find(|r| r.hardware == HardwareIndex(1));
    on_base.expect("every variant runs on every type").latency_ms
}

/// The longest sum of `of_task` along the edges.
fn longest_way(tasks: usize, edges: &[Edge], of_task: impl Fn(usize) -> f64) -> f64 {
    let mut end: Vec<f64> = Vec::with_capacity(tasks);
    for t in 0..tasks {
        let before = edges.iter().filter(|e| e.to.get() == t).map(|e| end[e.from.get()]).fold(0.0, f64::max);
        end.push(before + of_task(t));
    }
    end.into_iter().fold(0.0, f64::max)
}

/// Devices of the second type, or others of the same speed, for one query per second at the most accurate variants. Each
/// task has the part of the SLO that its latency has in the longest way.
fn power_per_query(tasks: &[Task], edges: &[Edge], slo_ms: f64) -> f64 {
    let longest = longest_way(tasks.len(), edges, |t| base_latency_ms(&tasks[t]));
    let mut load = vec![1.0; tasks.len()];
    let mut power = 0.0;
    for (t, task) in tasks.iter().enumerate() {
        if let Some(edge) = edges.iter().find(|e| e.primary && e.to.get() == t) {
            load[t] = load[edge.from.get()] * tasks[edge.from.get()].variants[0].fanout;
        }
        let budget_ms = slo_ms * base_latency_ms(task) / longest;
        let rows = task.variants[0].profile.rows().iter().filter(|r| 2.0 * r.latency_ms <= budget_ms);
        let best =
            rows.map(|r| r.throughput_qps() / (HARDWARE[r.hardware.get()].speed * r.share.value())).fold(0.0, f64::max);
        power += load[t] / best;
    }
    power
}

/// The same problem, with what a plan for demands within 10 % of these deploys, and with costs of switching.
fn with_deployed(problem: &Problem, draw: &mut Draw) -> Problem {
    let other = move_demands(problem, draw, 1.0, 0.1);
    let limits = RunLimits::new(Arc::new(Duration::default));
    let SearchResult::Found(found) = search(&other, &Tightening::none(&other), 1e-2, &limits) else {
        return problem.clone();
    };
    let deployed = found.choice.as_deployed(&found.space);
    let change = |d: &mut ProblemDraft| (d.deployed, d.switching_weight) = (deployed, 60.0);
    problem.changed(change).expect("the plan of a problem can be deployed")
}

/// The same problem where a solution runs.
#[cfg(test)]
pub(crate) fn redeployed(problem: &Problem, space: &Space, choice: &PlanIntegers) -> Problem {
    let deployed = choice.as_deployed(space);
    problem.changed(|d| d.deployed = deployed).expect("the plan of a problem can be deployed")
}

/// Moves the demand of some pipelines.
fn move_demands(problem: &Problem, draw: &mut Draw, part: f64, most: f64) -> Problem {
    let mut moved = |p: &Pipeline| {
        let factor = draw.between(1.0 - most, 1.0 + most);
        if draw.between(0.0, 1.0) < part { p.with_demand(p.demand_qps * factor) } else { p.clone() }
    };
    let pipelines = problem.pipelines.iter().map(&mut moved).collect();
    problem.changed(|d| d.pipelines = pipelines).expect("a demand changes no validity")
}

/// The same fleet a round later: the demand of one pipeline in twenty has moved by up to 10 %.
#[must_use]
pub fn next_round(problem: &Problem, seed: u64) -> Problem {
    move_demands(problem, &mut Draw::new(seed), MOVED_PART, 0.1)
}

/// One search over a fleet.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetRow {
    /// How it ended: `optimal`, `feasible`, `infeasible` or `unknown`.
    pub outcome: &'static str,
    /// The step of `hardware_then_accuracy`.
    pub step: Option<ObjectiveStep>,
    /// Value and bound.
    pub objective: ObjectiveValue,
    /// Time of the search, by the clock passed in.
    pub elapsed: Duration,
    /// Whether the checker accepts the plan; `false` without a plan.
    pub is_checked: bool,
}

/// Plans a fleet for at most `limit`, by the clock `now`, and from the rounds that `memory` remembers. The plan is checked,
/// and not replayed.
#[must_use]
pub fn plan_fleet(
    problem: &Problem,
    gap: f64,
    limit: Duration,
    memory: &FleetMemory,
    now: &Arc<dyn Fn() -> Duration + Send + Sync>,
) -> FleetRow {
    let start = now();
    let clock = now.clone();
    let elapsed = Arc::new(move || clock().saturating_sub(start));
    let limits = PlanningOptions { time_limit: Some(limit), ..PlanningOptions::new(elapsed) }.limits().for_search();
    let result = search_with_memory(problem, &Tightening::none(problem), gap, Some(memory), &limits);
    let elapsed = now().saturating_sub(start);
    let none = ObjectiveValue { step: None, value: None, bound: None };
    let is_checked = match &result {
        SearchResult::Found(found) => check_solution(problem, &Tightening::none(problem), found, elapsed).is_ok(),
        SearchResult::Infeasible | SearchResult::Unknown(_) => false,
    };
    let (outcome, objective) = match result {
        SearchResult::Found(found) => {
            let objective = ObjectiveValue { step: found.step, value: Some(found.value), bound: Some(found.bound) };
            (if objective.gap().is_some_and(|g| g <= gap) { "optimal" } else { "feasible" }, objective)
        }
        SearchResult::Infeasible => ("infeasible", none),
        SearchResult::Unknown(_) => ("unknown", none),
    };
    FleetRow { outcome, step: objective.step, objective, elapsed, is_checked }
}
