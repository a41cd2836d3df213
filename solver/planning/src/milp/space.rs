//! What a plan may be made of: the groups that can ever meet the SLO, with their (latency, throughput) frontiers.

use super::paths::{self, Cover, NoCovers};
use super::trie::{NoTrie, TRIE_NODES_ALL_MAX, Trie};
use crate::limits::Limits;
use crate::tightening::Tightening;
use apportion_domain::{
    Edge, HardwareIndex, LatencyRule, Pipeline, PipelineIndex, Problem, SLACK, Share, StopReason, TaskIndex, VariantIndex,
};

/// One batch size of a group that no other of the group beats in both latency and throughput.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Point {
    pub batch: u32,
    pub latency_ms: f64,
    /// `queue_factor * latency + network`, plus what the check loop charges.
    pub charge_ms: f64,
    pub qps: f64,
}

/// A (task, variant, hardware, share) that fits into memory and into the SLO.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub task: TaskIndex,
    pub variant: VariantIndex,
    pub hardware: HardwareIndex,
    pub share: Share,
    /// By increasing charge, and so by increasing throughput; never empty.
    pub points: Vec<Point>,
    /// Position of its lane.
    pub lane: usize,
    /// Replicas that run now.
    pub deployed: u32,
    /// The batch size that runs now.
    pub deployed_batch: Option<u32>,
    /// Cost of loading one replica more, for the objective of `min_cost`.
    pub switch_cost: f64,
}

impl Group {
    /// The fastest-serving point that a budget admits.
    pub fn best_within(&self, budget_ms: f64) -> Option<usize> {
        let slack = SLACK * budget_ms.abs().max(1.0);
        self.points.iter().rposition(|p| p.charge_ms <= budget_ms + slack)
    }
}

/// Everything about one pipeline that the formulation needs.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub index: PipelineIndex,
    pub groups: Vec<Group>,
    /// Positions of the groups of each variant of each task.
    pub by_variant: Vec<Vec<Vec<usize>>>,
    /// Groups that the queries of one node of the trie may go to, in proportion to their capacity: all those of a variant
    /// under rule `task_budget`; one alone under rule `path`, where it matters which group a query has been at.
    pub lanes: Vec<Vec<usize>>,
    /// Which latency rule the space is for.
    pub rule: LatencyRule,
    /// Rule `path`: its rows of latency.
    pub covers: Vec<Cover>,
    /// Where queries may go.
    pub trie: Trie,
    /// Share of this pipeline in the objective of accuracy.
    pub weight: f64,
    /// Distinct charges of each task, increasing; what a budget may be.
    pub levels: Vec<Vec<f64>>,
    /// Factor on the load of each task that the trie contains.
    pub headroom: Vec<f64>,
}

/// The parts of all pipelines of a problem.
#[derive(Clone, Debug)]
pub(crate) struct Space {
    pub parts: Vec<Part>,
}

/// Why there is no space to search.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoSpace {
    /// No path of this pipeline is fast enough, however many replicas run.
    #[error("no variants of pipeline {0:?} meet its SLO at any load")]
    Latency(PipelineIndex),
    /// A formulation would be too large.
    #[error("{0}")]
    TooLarge(String),
    /// Time was up first.
    #[error("stopped: {0}")]
    Stopped(StopReason),
}

impl From<NoTrie> for NoSpace {
    fn from(no: NoTrie) -> Self {
        match no {
            NoTrie::Stopped(reason) => Self::Stopped(reason),
            NoTrie::TooLarge => Self::TooLarge(no.to_string()),
        }
    }
}

impl From<NoCovers> for NoSpace {
    fn from(no: NoCovers) -> Self {
        match no {
            NoCovers::Stopped(reason) => Self::Stopped(reason),
            NoCovers::TooMany => Self::TooLarge(no.to_string()),
        }
    }
}

impl Space {
    /// The space of a problem, tightened.
    pub fn new(problem: &Problem, tightening: &Tightening, limits: &Limits) -> Result<Self, NoSpace> {
        Self::restricted(problem, tightening, false, limits)
    }

    /// The same with only the most accurate variants of each task: step 1 of `hardware_then_accuracy`.
    pub fn restricted(
        problem: &Problem,
        tightening: &Tightening,
        best_only: bool,
        limits: &Limits,
    ) -> Result<Self, NoSpace> {
        let all = (0..problem.pipelines.len()).map(|i| {
            if let Some(reason) = limits.reason() {
                return Err(NoSpace::Stopped(reason));
            }
            let index = PipelineIndex(i);
            let best = |t, v| !best_only || problem.pipeline(index).most_accurate(t).any(|best| best == v);
            Ok(usable_groups(problem, index, tightening, best))
        });
        let all = all.collect::<Result<_, NoSpace>>()?;
        Self::of_groups(problem, tightening, all, limits)
    }

    /// The space of these groups, by pipeline.
    pub fn of_groups(
        problem: &Problem,
        tightening: &Tightening,
        all: Vec<Vec<Group>>,
        limits: &Limits,
    ) -> Result<Self, NoSpace> {
        let mut nodes_left = TRIE_NODES_ALL_MAX;
        let total: f64 = problem.pipelines.iter().map(|p| p.weight).sum();
        let mut parts = Vec::with_capacity(problem.pipelines.len());
        for (i, mut groups) in all.into_iter().enumerate() {
            let pipeline = &problem.pipelines[i];
            let rule = problem.objective.latency_rule;
            let by_variant = by_variant(pipeline, &groups);
            let lanes = lanes(rule, &by_variant, &mut groups);
            let lanes_of = |t: TaskIndex, v: VariantIndex| {
                let mut lanes: Vec<usize> = by_variant[t.get()][v.get()].iter().map(|&g| groups[g].lane).collect();
                lanes.dedup();
                lanes
            };
            let headroom = tightening.parts[i].headroom.clone();
            let trie = Trie::new((pipeline, rule), lanes_of, &headroom, nodes_left, limits)?;
            nodes_left -= trie.nodes.len();
            let index = PipelineIndex(i);
            if trie.is_empty() {
                return Err(NoSpace::Latency(index));
            }
            let levels = levels(pipeline, &groups);
            let weight = if total > 0.0 { pipeline.weight / total } else { 1.0 / problem.pipelines.len() as f64 };
            let covers = Vec::new();
            let mut part = Part { index, groups, by_variant, lanes, rule, covers, trie, weight, levels, headroom };
            if rule == LatencyRule::Path {
                part.covers = paths::covers(pipeline, &part, limits)?;
            }
            parts.push(part);
        }
        Ok(Self { parts })
    }
}

/// The groups of a pipeline that can ever meet the SLO, of the variants that are `wanted`.
pub(crate) fn usable_groups(
    problem: &Problem,
    index: PipelineIndex,
    tightening: &Tightening,
    wanted: impl Fn(TaskIndex, VariantIndex) -> bool,
) -> Vec<Group> {
    let pipeline = problem.pipeline(index);
    let mut groups = all_groups(problem, index, tightening);
    groups.retain(|g| wanted(g.task, g.variant));
    prune_slow(pipeline, &optional_tasks(pipeline), problem.objective.latency_rule, &mut groups);
    groups
}

/// The fastest that a pipeline can answer, at any load and with any number of replicas, and the task, if any, that fits
/// into no memory.
pub(crate) fn fastest(problem: &Problem, index: PipelineIndex) -> Result<f64, TaskIndex> {
    let pipeline = problem.pipeline(index);
    let optional = optional_tasks(pipeline);
    let groups = all_groups(problem, index, &Tightening::none(problem));
    let least = least_charges(pipeline, &optional, &groups);
    match least.iter().position(|charge| charge.is_infinite()) {
        Some(t) => Err(TaskIndex(t)),
        None => Ok(finish_times(pipeline, problem.objective.latency_rule, &least).into_iter().fold(0.0, f64::max)),
    }
}

fn all_groups(problem: &Problem, index: PipelineIndex, tightening: &Tightening) -> Vec<Group> {
    let pipeline = problem.pipeline(index);
    let mut groups = Vec::new();
    for (t, task) in pipeline.tasks.iter().enumerate() {
        for (v, variant) in task.variants.iter().enumerate() {
            for (hardware, share) in variant.profile.places() {
                if !problem.fits_memory(variant.memory_mib, hardware, share) {
                    continue;
                }
                let extra = tightening.parts[index.0].charge_ms[t];
                let points = frontier(pipeline, variant.profile.on(hardware, share), extra);
                let runs = problem.deployed.iter().find(|d| {
                    (d.pipeline, d.task.get(), d.variant.get(), d.hardware, d.share) == (index, t, v, hardware, share)
                });
                let price = problem.hardware_at(hardware).price_per_hour;
                groups.push(Group {
                    task: TaskIndex(t),
                    variant: VariantIndex(v),
                    hardware,
                    share,
                    points,
                    lane: 0,
                    deployed: runs.map_or(0, |d| d.replicas),
                    deployed_batch: runs.map(|d| d.batch),
                    switch_cost: problem.switching_weight * variant.load_ms / 1000.0 * price / 3600.0,
                });
            }
        }
    }
    groups
}

/// The points that no other beats: latency and throughput both increase along them.
fn frontier(pipeline: &Pipeline, rows: &[apportion_domain::ProfileRow], extra_ms: f64) -> Vec<Point> {
    let point = |r: &apportion_domain::ProfileRow| Point {
        batch: r.batch,
        latency_ms: r.latency_ms,
        charge_ms: pipeline.hop_charge_ms(r.latency_ms) + extra_ms,
        qps: r.throughput_qps(),
    };
    let mut points: Vec<Point> = rows.iter().map(point).collect();
    points.sort_by(|a, b| a.charge_ms.total_cmp(&b.charge_ms).then(b.qps.total_cmp(&a.qps)));
    let mut best = 0.0;
    points.retain(|p| {
        let better = p.qps > best;
        best = p.qps.max(best);
        better
    });
    points
}

/// Tasks that some choice of variants makes no queries for.
pub(crate) fn optional_tasks(pipeline: &Pipeline) -> Vec<bool> {
    let mut optional = vec![false; pipeline.tasks.len()];
    for &t in pipeline.order() {
        let Some(edge) = pipeline.primary_parent(t) else { continue };
        let none = (0..pipeline.task(edge.from).variants.len()).any(|v| makes_none(pipeline, edge, VariantIndex(v)));
        optional[t.get()] = none || optional[edge.from.get()];
    }
    optional
}

/// Whether a variant makes no queries over an edge.
pub(crate) fn makes_none(pipeline: &Pipeline, edge: &Edge, variant: VariantIndex) -> bool {
    pipeline.fanout(edge, variant) <= 0.0
}

/// Whether an edge delays what comes after it: rule `path` speaks of the ways that queries take, and over an edge that is
/// not primary none is made.
fn delays(rule: LatencyRule, edge: &Edge) -> bool {
    edge.primary || rule == LatencyRule::TaskBudget
}

/// Longest way from the root to the end of each task, each task charging what `charges` says.
pub(crate) fn finish_times(pipeline: &Pipeline, rule: LatencyRule, charges: &[f64]) -> Vec<f64> {
    let mut finish = vec![0.0; pipeline.tasks.len()];
    for &t in pipeline.order() {
        let into = pipeline.edges_into(t).filter(|e| delays(rule, e));
        let before = into.map(|e| finish[e.from.get()]).fold(0.0, f64::max);
        finish[t.get()] = before + charges[t.get()];
    }
    finish
}

/// Longest way from the end of each task to the end of the pipeline.
fn remaining_times(pipeline: &Pipeline, rule: LatencyRule, charges: &[f64]) -> Vec<f64> {
    let mut remaining = vec![0.0; pipeline.tasks.len()];
    for &t in pipeline.order().iter().rev() {
        let out_of = pipeline.edges_from(t).filter(|e| delays(rule, e));
        let after = out_of.map(|e| remaining[e.to.get()] + charges[e.to.get()]).fold(0.0, f64::max);
        remaining[t.get()] = after;
    }
    remaining
}

/// The least that each task can charge: its fastest point; nothing where it can be left out.
pub(crate) fn least_charges(pipeline: &Pipeline, optional: &[bool], groups: &[Group]) -> Vec<f64> {
    let mut least = vec![f64::INFINITY; pipeline.tasks.len()];
    for group in groups {
        let charge = &mut least[group.task.get()];
        *charge = group.points.iter().map(|p| p.charge_ms).fold(*charge, f64::min);
    }
    least.iter_mut().zip(optional).for_each(|(charge, &optional)| *charge = if optional { 0.0 } else { *charge });
    least
}

/// Drops the points that miss the SLO even beside the fastest of everything else, then groups without points.
fn prune_slow(pipeline: &Pipeline, optional: &[bool], rule: LatencyRule, groups: &mut Vec<Group>) {
    let least = least_charges(pipeline, optional, groups);
    let finish = finish_times(pipeline, rule, &least);
    let remaining = remaining_times(pipeline, rule, &least);
    let slo = pipeline.slo_ms + SLACK * pipeline.slo_ms.max(1.0);
    for group in groups.iter_mut() {
        let t = group.task.get();
        let into = pipeline.edges_into(group.task).filter(|e| delays(rule, e));
        let others = into.map(|e| finish[e.from.get()]).fold(0.0, f64::max) + remaining[t];
        group.points.retain(|p| others + p.charge_ms <= slo);
    }
    groups.retain(|g| !g.points.is_empty());
}

fn by_variant(pipeline: &Pipeline, groups: &[Group]) -> Vec<Vec<Vec<usize>>> {
    let mut positions: Vec<Vec<Vec<usize>>> = pipeline.tasks.iter().map(|t| vec![Vec::new(); t.variants.len()]).collect();
    for (g, group) in groups.iter().enumerate() {
        positions[group.task.get()][group.variant.get()].push(g);
    }
    positions
}

/// Makes the lanes and tells every group which is its own.
fn lanes(rule: LatencyRule, by_variant: &[Vec<Vec<usize>>], groups: &mut [Group]) -> Vec<Vec<usize>> {
    let of_variants = by_variant.iter().flatten().filter(|of| !of.is_empty());
    let lanes: Vec<Vec<usize>> = match rule {
        LatencyRule::TaskBudget => of_variants.cloned().collect(),
        LatencyRule::Path => of_variants.flatten().map(|&g| vec![g]).collect(),
    };
    for (lane, of_lane) in lanes.iter().enumerate() {
        of_lane.iter().for_each(|&g| groups[g].lane = lane);
    }
    lanes
}

fn levels(pipeline: &Pipeline, groups: &[Group]) -> Vec<Vec<f64>> {
    let mut levels = vec![Vec::new(); pipeline.tasks.len()];
    for group in groups {
        levels[group.task.get()].extend(group.points.iter().map(|p| p.charge_ms));
    }
    for of_task in &mut levels {
        of_task.sort_by(f64::total_cmp);
        of_task.dedup();
    }
    levels
}
