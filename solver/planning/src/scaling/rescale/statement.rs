//! Which scaling problem do the pipelines of a problem state, with the groups that run?
//!
//! A task is an application, and a group of it a variant: a variant file on a hardware type and share. Devices of a type
//! are a resource, and so is the budget. A group runs the batch size of the highest throughput within its task's part of
//! the SLO. All batch sizes of a group have one price, so no other one is ever cheaper.

use super::budgets::{LeftOutVariant, best_row, task_budgets_ms};
use crate::baselines::assemble::BaselineGroup;
use apportion_domain::{
    Application, HardwareIndex, PipelineIndex, Problem, ScalingProblem, ScalingVariant, Share, TaskIndex, VariantIndex,
};
use std::collections::{BTreeMap, BTreeSet};

/// A device without a price costs this much per hour, so that a spare replica is never free.
const PRICE_PER_HOUR_MIN: f64 = 1e-6;
/// Least load of a task in queries per second, so that each task has a replica.
const LOAD_QPS_MIN: f64 = 1e-3;
/// The resource that the budget of the objective limits.
const BUDGET: &str = "price per hour";

/// What a statement is made of, beside the problem.
pub(super) struct StatementTerms<'a> {
    /// Queries that reach each task for one of the root, by pipeline.
    pub visits: &'a [Vec<f64>],
    /// Variants that must not run: the pipeline would be below its accuracy floor.
    pub left_out: &'a BTreeSet<LeftOutVariant>,
    /// Capacity to provide, as a multiple of the load; at least 1.
    pub slack_factor: f64,
    /// Weight of load latency, 1/s.
    pub lambda: f64,
}

/// A scaling problem, and the groups that its variants are.
pub(super) struct StatedProblem {
    /// One application for each task, in the order of `tasks`.
    pub scaling: ScalingProblem,
    /// The tasks with their groups, in the order of the variants.
    pub tasks: Vec<TaskCandidates>,
}

/// The groups that a task may have.
pub(super) struct TaskCandidates {
    pub pipeline: PipelineIndex,
    pub task: TaskIndex,
    pub groups: Vec<ScalingCandidate>,
}

/// A group that a task may have.
pub(super) struct ScalingCandidate {
    pub variant: VariantIndex,
    pub hardware: HardwareIndex,
    pub share: Share,
    pub batch: u32,
    /// What a query is charged for its time there, in milliseconds.
    pub charge_ms: f64,
    /// Queries per second of one replica.
    pub qps: f64,
    /// Price of one replica per hour.
    pub price_per_hour: f64,
}

/// States the problem. `None` if a task has no group within its part of the SLO.
pub(super) fn state(problem: &Problem, terms: &StatementTerms<'_>) -> Option<StatedProblem> {
    let mut stated = StatedProblem {
        scaling: ScalingProblem { lambda: terms.lambda, resources: resources(problem), applications: Vec::new() },
        tasks: Vec::new(),
    };
    for (i, pipeline) in problem.pipelines.iter().enumerate() {
        let p = PipelineIndex(i);
        let budgets = task_budgets_ms(problem, p, terms.left_out)?;
        for t in (0..pipeline.tasks.len()).map(TaskIndex) {
            let groups = candidates(problem, (p, t), budgets[t.get()], terms.left_out);
            if groups.is_empty() {
                return None;
            }
            let load_qps = (pipeline.demand_qps * terms.visits[i][t.get()]).max(LOAD_QPS_MIN);
            stated.scaling.applications.push(Application {
                name: format!("{}/{}", pipeline.name, pipeline.task(t).name),
                load_qps,
                slack_qps: load_qps * (terms.slack_factor - 1.0),
                slo_ms: budgets[t.get()],
                variants: groups.iter().map(|group| scaling_variant(problem, (p, t), group)).collect(),
            });
            stated.tasks.push(TaskCandidates { pipeline: p, task: t, groups });
        }
    }
    Some(stated)
}

/// Devices by hardware type, and the budget, as far as they are limited.
fn resources(problem: &Problem) -> BTreeMap<String, f64> {
    let devices = problem.hardware.iter().filter_map(|h| Some((devices_of(&h.name), f64::from(h.count?))));
    devices.chain(problem.objective.budget_per_hour.map(|budget| (BUDGET.to_owned(), budget))).collect()
}

fn devices_of(hardware: &str) -> String {
    format!("devices of {hardware}")
}

/// The groups of a task within its budget, in the order of variants and profiles.
fn candidates(
    problem: &Problem,
    (p, t): (PipelineIndex, TaskIndex),
    budget_ms: f64,
    left_out: &BTreeSet<LeftOutVariant>,
) -> Vec<ScalingCandidate> {
    let pipeline = problem.pipeline(p);
    let mut groups = Vec::new();
    for v in (0..pipeline.task(t).variants.len()).map(VariantIndex) {
        let variant = pipeline.variant(t, v);
        for (hardware, share) in variant.profile.places() {
            let may_run = !left_out.contains(&(p, t, v))
                && problem.hardware_at(hardware).count != Some(0)
                && problem.fits_memory(variant.memory_mib, hardware, share);
            let row = best_row(pipeline, t, variant.profile.on(hardware, share), budget_ms).filter(|_| may_run);
            groups.extend(row.map(|row| ScalingCandidate {
                variant: v,
                hardware,
                share,
                batch: row.batch,
                charge_ms: pipeline.hop_charge_ms(t, row.latency_ms),
                qps: row.throughput_qps(),
                price_per_hour: price_per_hour(problem, hardware) * share.value(),
            }));
        }
    }
    groups
}

/// Price of a whole device per hour, as scaling actions count it: none is free.
#[must_use]
pub fn price_per_hour(problem: &Problem, hardware: HardwareIndex) -> f64 {
    problem.hardware_at(hardware).price_per_hour.max(PRICE_PER_HOUR_MIN)
}

/// A group as a variant of the scaling problem.
fn scaling_variant(problem: &Problem, (p, t): (PipelineIndex, TaskIndex), group: &ScalingCandidate) -> ScalingVariant {
    let (variant, hardware) = (problem.pipeline(p).variant(t, group.variant), problem.hardware_at(group.hardware));
    let is_group = |d: &&apportion_domain::Deployed| {
        (d.pipeline, d.task, d.variant, d.hardware, d.share) == (p, t, group.variant, group.hardware, group.share)
    };
    let used = group.share.value();
    ScalingVariant {
        name: format!("{}/{}/{}", variant.name, hardware.name, group.share),
        saturation_qps: group.qps,
        latency_ms: group.charge_ms,
        load_s: variant.load_ms / 1_000.0,
        // one factor on all costs changes no answer, and solvers have absolute tolerances
        cost_per_s: group.price_per_hour,
        resources: [(devices_of(&hardware.name), used), (BUDGET.to_owned(), group.price_per_hour)].into(),
        running: problem.deployed.iter().filter(is_group).map(|d| d.replicas).sum(),
    }
}

impl StatedProblem {
    /// The groups of a solution by pipeline, ordered by task. A task with fewer replicas than its `min_replicas` gets
    /// more of its cheapest group.
    pub fn groups_of(&self, problem: &Problem, counts: &[Vec<u32>]) -> Vec<Vec<BaselineGroup>> {
        let mut groups: Vec<Vec<BaselineGroup>> = vec![Vec::new(); problem.pipelines.len()];
        for (of, counts) in self.tasks.iter().zip(counts) {
            let mut counts = counts.clone();
            let has: u32 = counts.iter().sum();
            let missing = problem.pipeline(of.pipeline).task(of.task).min_replicas.saturating_sub(has);
            let used = (0..counts.len()).filter(|&g| counts[g] > 0);
            let cheapest = used.min_by(|&a, &b| of.groups[a].price_per_hour.total_cmp(&of.groups[b].price_per_hour));
            if let Some(cheapest) = cheapest {
                counts[cheapest] += missing;
            }
            groups[of.pipeline.get()].extend(of.groups_with(&counts));
        }
        groups
    }
}

impl TaskCandidates {
    /// The groups with these replicas; each has its part of the task's queries in proportion to its throughput.
    fn groups_with(&self, counts: &[u32]) -> Vec<BaselineGroup> {
        let capacity = |(group, &n): (&ScalingCandidate, &u32)| group.qps * f64::from(n);
        let all: f64 = self.groups.iter().zip(counts).map(capacity).sum();
        let used = self.groups.iter().zip(counts).filter(|(_, n)| **n > 0);
        used.map(|(group, &replicas)| BaselineGroup {
            task: self.task,
            variant: group.variant,
            hardware: group.hardware,
            share: group.share,
            batch: group.batch,
            replicas,
            traffic: group.qps * f64::from(replicas) / all,
        })
        .collect()
    }
}
