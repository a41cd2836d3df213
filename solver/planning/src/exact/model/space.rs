//! What may a plan consist of? The groups that can meet the SLO, their operating points, and the paths of queries.

use super::covers::{CoversError, LateCombination, PathView, late_combinations};
use super::groups::{FeasibleGroup, levels, usable_groups};
use super::tightening::Tightening;
use super::trie::{TRIE_NODES_ALL_MAX, Trie, TrieError, TrieInputs};
use apportion_domain::{LatencyRule, Pipeline, PipelineIndex, Problem, StopReason, TaskIndex, VariantIndex};
use apportion_mip::RunLimits;

/// The search space of one pipeline.
#[derive(Clone, Debug)]
pub(crate) struct PipelineSpace {
    pub index: PipelineIndex,
    pub groups: Vec<FeasibleGroup>,
    /// Positions of the groups of each variant of each task.
    pub by_variant: Vec<Vec<Vec<usize>>>,
    /// By lane, the groups that share the queries of a node in proportion to their capacity. Under rule `task_budget` a
    /// lane has all groups of a variant. Under rule `path` it has one group, because the group of a query decides its
    /// time.
    pub lanes: Vec<Vec<usize>>,
    /// Which latency rule the space is for.
    pub rule: LatencyRule,
    /// Rule `path`: its latency rows.
    pub covers: Vec<LateCombination>,
    /// The paths of queries.
    pub trie: Trie,
    /// Weight of this pipeline in the objective of accuracy.
    pub weight: f64,
    /// Distinct charges of each task, increasing: the possible budgets.
    pub levels: Vec<Vec<f64>>,
    /// Factor on the load of each task that the trie contains.
    pub headroom: Vec<f64>,
}

impl PipelineSpace {
    /// The parts that decide which paths are late.
    pub fn path_view(&self) -> PathView<'_> {
        PathView { trie: &self.trie, lanes: &self.lanes, groups: &self.groups }
    }
}

/// The search spaces of all pipelines of a problem.
#[derive(Clone, Debug)]
pub(crate) struct Space {
    pub parts: Vec<PipelineSpace>,
}

/// Why there is no search space.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpaceError {
    /// No path of this pipeline is fast enough, however many replicas run.
    #[error("no variants of pipeline {0:?} meet its SLO at any load")]
    Latency(PipelineIndex),
    /// A formulation would be too large.
    #[error("{0}")]
    TooLarge(String),
    /// The limits ended the construction.
    #[error("stopped: {0}")]
    Stopped(StopReason),
}

impl From<TrieError> for SpaceError {
    fn from(no: TrieError) -> Self {
        match no {
            TrieError::Stopped(reason) => Self::Stopped(reason),
            TrieError::TooLarge => Self::TooLarge(no.to_string()),
        }
    }
}

impl From<CoversError> for SpaceError {
    fn from(no: CoversError) -> Self {
        match no {
            CoversError::Stopped(reason) => Self::Stopped(reason),
            CoversError::TooMany => Self::TooLarge(no.to_string()),
        }
    }
}

impl Space {
    /// The space of a problem, tightened.
    pub fn new(problem: &Problem, tightening: &Tightening, limits: &RunLimits) -> Result<Self, SpaceError> {
        Self::of_variants(problem, tightening, limits, |_, _, _| true)
    }

    /// The space of the most accurate variants of each task: step 1 of `hardware_then_accuracy`.
    pub fn of_most_accurate(problem: &Problem, tightening: &Tightening, limits: &RunLimits) -> Result<Self, SpaceError> {
        Self::of_variants(problem, tightening, limits, |p, t, v| problem.pipeline(p).most_accurate(t).any(|best| best == v))
    }

    fn of_variants(
        problem: &Problem,
        tightening: &Tightening,
        limits: &RunLimits,
        wanted: impl Fn(PipelineIndex, TaskIndex, VariantIndex) -> bool,
    ) -> Result<Self, SpaceError> {
        let all = (0..problem.pipelines.len()).map(|i| {
            if let Some(reason) = limits.stop_reason() {
                return Err(SpaceError::Stopped(reason));
            }
            let index = PipelineIndex(i);
            Ok(usable_groups(problem, index, tightening, |t, v| wanted(index, t, v)))
        });
        let all = all.collect::<Result<_, SpaceError>>()?;
        Self::of_groups(problem, tightening, all, limits)
    }

    /// The space of these groups, by pipeline.
    pub fn of_groups(
        problem: &Problem,
        tightening: &Tightening,
        all: Vec<Vec<FeasibleGroup>>,
        limits: &RunLimits,
    ) -> Result<Self, SpaceError> {
        let mut nodes_left = TRIE_NODES_ALL_MAX;
        let total: f64 = problem.pipelines.iter().map(|p| p.weight).sum();
        let mut parts = Vec::with_capacity(problem.pipelines.len());
        for (i, mut groups) in all.into_iter().enumerate() {
            let pipeline = &problem.pipelines[i];
            let rule = problem.objective.latency_rule;
            let by_variant = by_variant(pipeline, &groups);
            let lanes = lanes(rule, &by_variant, &mut groups);
            // no query goes to an idle group
            let lanes_of = |t: TaskIndex, v: VariantIndex| {
                let serving = by_variant[t.get()][v.get()].iter().filter(|&&g| !groups[g].is_idle);
                let mut lanes: Vec<usize> = serving.map(|&g| groups[g].lane).collect();
                lanes.dedup();
                lanes
            };
            let headroom = tightening.parts[i].headroom.clone();
            let trie =
                Trie::new(TrieInputs { pipeline, rule, headroom: &headroom, nodes_max: nodes_left }, lanes_of, limits)?;
            nodes_left -= trie.nodes.len();
            let index = PipelineIndex(i);
            if trie.is_empty() {
                return Err(SpaceError::Latency(index));
            }
            let levels = levels(pipeline, &groups);
            let weight = if total > 0.0 { pipeline.weight / total } else { 1.0 / problem.pipelines.len() as f64 };
            let mut part = PipelineSpace {
                index,
                groups,
                by_variant,
                lanes,
                rule,
                covers: Vec::new(),
                trie,
                weight,
                levels,
                headroom,
            };
            if rule == LatencyRule::Path {
                part.covers = late_combinations(pipeline, &part.path_view(), limits)?;
            }
            parts.push(part);
        }
        Ok(Self { parts })
    }
}

fn by_variant(pipeline: &Pipeline, groups: &[FeasibleGroup]) -> Vec<Vec<Vec<usize>>> {
    let mut positions: Vec<Vec<Vec<usize>>> = pipeline.tasks.iter().map(|t| vec![Vec::new(); t.variants.len()]).collect();
    for (g, group) in groups.iter().enumerate() {
        positions[group.task.get()][group.variant.get()].push(g);
    }
    positions
}

/// Makes the lanes and sets the lane of every group.
fn lanes(rule: LatencyRule, by_variant: &[Vec<Vec<usize>>], groups: &mut [FeasibleGroup]) -> Vec<Vec<usize>> {
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
