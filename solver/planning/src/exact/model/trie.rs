//! Which paths may queries take? A trie of variants, with the share f(prefix) of root queries at each prefix.
//!
//! The root's shares sum to 1. For each child task, the shares of a prefix's children sum to the prefix's own share. So the
//! branches of a tree agree about their common prefix. The load of a prefix counts the factors of its **ancestors** only
//! (Loki equation 1 as printed multiplies the node's own factor too).
//!
//! If accuracy is additive over tasks and no factor depends on the variant, the history of a query does not matter. Then
//! one node for each (task, variant) is enough.

use super::latency::makes_no_queries;
use apportion_domain::{AccuracyModel, Edge, LatencyRule, Pipeline, StopReason, TaskIndex, VariantIndex};
use apportion_mip::RunLimits;

/// Most nodes of one pipeline's trie: about as many columns as HiGHS reads within seconds.
pub(crate) const TRIE_NODES_MAX: usize = 20_000;

/// Most nodes of all tries of one problem: some hundred bytes each.
pub(crate) const TRIE_NODES_ALL_MAX: usize = 400_000;
/// Most entries of measured path accuracies that are compared for one trie, over all its nodes.
const COMPARED_MAX: usize = 100_000_000;
/// Nodes between two checks of the limits.
const NODES_PER_CHECK: usize = 64;

/// Why there is no trie.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TrieError {
    /// It would have more than [`TRIE_NODES_MAX`] nodes, or all tries together more than [`TRIE_NODES_ALL_MAX`].
    #[error("more than {TRIE_NODES_MAX} prefixes of variants in a pipeline, or {TRIE_NODES_ALL_MAX} in all")]
    TooLarge,
    /// The limits ended the construction.
    #[error("stopped: {0}")]
    Stopped(StopReason),
}

/// A prefix of variants, by its last one.
#[derive(Clone, Debug)]
pub(crate) struct PrefixNode {
    pub task: TaskIndex,
    pub variant: VariantIndex,
    /// The groups that its queries go to.
    pub lane: usize,
    /// Queries per second there if all root queries took this prefix.
    pub load_qps: f64,
    /// A share of 1 adds this to the pipeline's accuracy.
    pub accuracy: f64,
    /// Whether some sink's path ends here.
    pub ends: bool,
}

/// `sum of the shares of to = share of from`, or 1 for the root.
#[derive(Clone, Debug)]
pub(crate) struct PrefixSplit {
    pub from: Option<usize>,
    pub to: Vec<usize>,
}

/// A split that is not in the trie yet.
struct OpenSplit {
    /// Its parent; `None` at the root.
    from: Option<usize>,
    /// The task of its nodes.
    task: TaskIndex,
    /// Queries at that task for one query of the root.
    per_root: f64,
    /// The prefix of the parent.
    stages: Vec<(TaskIndex, VariantIndex)>,
}

/// Inputs of a trie.
pub(crate) struct TrieInputs<'a> {
    pub pipeline: &'a Pipeline,
    pub rule: LatencyRule,
    /// Factor on the load of each task.
    pub headroom: &'a [f64],
    pub nodes_max: usize,
}

/// All prefixes.
#[derive(Clone, Debug)]
pub(crate) struct Trie {
    /// Parents before children.
    pub nodes: Vec<PrefixNode>,
    /// Parents before children.
    pub splits: Vec<PrefixSplit>,
    /// Whether nodes are (task, variant) without history.
    pub merged: bool,
    /// Nodes that queries may go to from each node.
    pub next: Vec<Vec<usize>>,
}

impl Trie {
    /// The trie over the lanes of every variant, of at most `nodes_max` nodes; `headroom` multiplies the load of each task.
    pub fn new(
        inputs: TrieInputs<'_>,
        lanes: impl Fn(TaskIndex, VariantIndex) -> Vec<usize>,
        limits: &RunLimits,
    ) -> Result<Self, TrieError> {
        let TrieInputs { pipeline, rule, headroom, nodes_max } = inputs;
        // under rule `path` the time that a query has taken is its history
        let usable = |t, v| !lanes(t, v).is_empty();
        if rule == LatencyRule::TaskBudget && history_is_irrelevant(pipeline, &usable) {
            let trie = Self::merged(pipeline, lanes, headroom);
            return if trie.nodes.len() > nodes_max { Err(TrieError::TooLarge) } else { Ok(trie) };
        }
        let compared = COMPARED_MAX / pipeline.path_accuracy.len().max(1);
        let nodes_max = nodes_max.min(TRIE_NODES_MAX).min(compared);
        let mut trie = Self { nodes: Vec::new(), splits: Vec::new(), merged: false, next: Vec::new() };
        let mut open = vec![OpenSplit { from: None, task: pipeline.root(), per_root: 1.0, stages: Vec::new() }];
        while let Some(OpenSplit { from, task, per_root, stages }) = open.pop() {
            let mut to = Vec::new();
            let variants = (0..pipeline.task(task).variants.len()).map(VariantIndex);
            for (v, lane) in variants.flat_map(|v| lanes(task, v).into_iter().map(move |lane| (v, lane))) {
                let stages = [stages.as_slice(), &[(task, v)]].concat();
                let node = trie.nodes.len();
                if node == nodes_max {
                    return Err(TrieError::TooLarge);
                }
                if node.is_multiple_of(NODES_PER_CHECK) {
                    limits.stop_reason().map_or(Ok(()), |reason| Err(TrieError::Stopped(reason)))?;
                }
                to.push(node);
                trie.nodes.push(PrefixNode {
                    task,
                    variant: v,
                    lane,
                    load_qps: pipeline.demand_qps * headroom[task.get()] * per_root,
                    accuracy: prefix_accuracy(pipeline, &stages),
                    ends: is_end_of_path(pipeline, task, v),
                });
                for edge in pipeline.children(task).filter(|e| !makes_no_queries(pipeline, e, v)) {
                    let per_root = per_root * pipeline.fanout(edge, v);
                    open.push(OpenSplit { from: Some(node), task: edge.to, per_root, stages: stages.clone() });
                }
            }
            trie.splits.push(PrefixSplit { from, to });
        }
        trie.next = vec![Vec::new(); trie.nodes.len()];
        for split in &trie.splits {
            if let Some(from) = split.from {
                trie.next[from].extend(&split.to);
            }
        }
        Ok(trie)
    }

    fn merged(pipeline: &Pipeline, lanes: impl Fn(TaskIndex, VariantIndex) -> Vec<usize>, headroom: &[f64]) -> Self {
        let mut trie = Self { nodes: Vec::new(), splits: Vec::new(), merged: true, next: Vec::new() };
        let mut per_root = vec![1.0; pipeline.tasks.len()];
        for &task in pipeline.order() {
            if let Some(edge) = pipeline.primary_parent(task) {
                per_root[task.get()] = per_root[edge.from.get()] * pipeline.fanout(edge, VariantIndex(0));
            }
            let mut to = Vec::new();
            let variants = (0..pipeline.task(task).variants.len()).map(VariantIndex);
            for (v, lane) in variants.flat_map(|v| lanes(task, v).into_iter().map(move |lane| (v, lane))) {
                to.push(trie.nodes.len());
                trie.nodes.push(PrefixNode {
                    task,
                    variant: v,
                    lane,
                    load_qps: pipeline.demand_qps * headroom[task.get()] * per_root[task.get()],
                    accuracy: pipeline.variant(task, v).accuracy * additive_weight(pipeline, task),
                    ends: pipeline.children(task).next().is_none(),
                });
            }
            trie.splits.push(PrefixSplit { from: None, to });
        }
        let follows = |node: &PrefixNode| {
            let nodes = trie.nodes.iter().enumerate();
            let ahead = nodes.filter(|(_, n)| pipeline.children(node.task).any(|e| e.to == n.task));
            ahead.map(|(i, _)| i).collect()
        };
        trie.next = trie.nodes.iter().map(follows).collect();
        trie
    }

    /// Whether no path can be taken at all.
    pub fn is_empty(&self) -> bool {
        let mut possible = vec![true; self.nodes.len()];
        for split in self.splits.iter().rev() {
            let any = split.to.iter().any(|&n| possible[n]);
            match split.from {
                Some(from) if !any => possible[from] = false,
                None if !any => return true,
                _ => {}
            }
        }
        false
    }
}

/// Whether accuracy is a sum over tasks and no factor depends on the variant.
fn history_is_irrelevant(pipeline: &Pipeline, usable: &impl Fn(TaskIndex, VariantIndex) -> bool) -> bool {
    let additive = pipeline.accuracy_model == AccuracyModel::TaskMean
        || (pipeline.accuracy_model == AccuracyModel::Mean && pipeline.path_accuracy.is_empty());
    let constant = |edge: &Edge| {
        let first = pipeline.fanout(edge, VariantIndex(0));
        let all = (0..pipeline.task(edge.from).variants.len()).map(VariantIndex);
        first > 0.0 && all.filter(|&v| usable(edge.from, v)).all(|v| pipeline.fanout(edge, v).to_bits() == first.to_bits())
    };
    additive && pipeline.edges.iter().filter(|e| e.primary).all(constant)
}

/// Weight of a task's accuracy where accuracy is additive: 1 over the tasks, or by sink 1 over the stages of its path.
fn additive_weight(pipeline: &Pipeline, task: TaskIndex) -> f64 {
    if pipeline.accuracy_model == AccuracyModel::TaskMean {
        return 1.0 / pipeline.tasks.len() as f64;
    }
    let mut weight = 0.0;
    for sink in pipeline.sinks() {
        let mut route = vec![sink];
        while let Some(edge) = pipeline.primary_parent(route[route.len() - 1]) {
            route.push(edge.from);
        }
        if route.contains(&task) {
            weight += pipeline.leaf_weight(sink) / route.len() as f64;
        }
    }
    weight
}

/// Whether the path of some sink ends at this stage.
fn is_end_of_path(pipeline: &Pipeline, task: TaskIndex, variant: VariantIndex) -> bool {
    let mut children = pipeline.children(task).peekable();
    children.peek().is_none() || children.any(|e| makes_no_queries(pipeline, e, variant))
}

/// The accuracy that the prefix `stages` adds: the path accuracy, weighted by the sinks whose paths end there.
fn prefix_accuracy(pipeline: &Pipeline, stages: &[(TaskIndex, VariantIndex)]) -> f64 {
    let (task, variant) = stages[stages.len() - 1];
    if pipeline.accuracy_model == AccuracyModel::TaskMean {
        return pipeline.variant(task, variant).accuracy / pipeline.tasks.len() as f64;
    }
    let weight = if pipeline.children(task).next().is_none() {
        pipeline.leaf_weight(task)
    } else {
        let ended = pipeline.children(task).filter(|e| makes_no_queries(pipeline, e, variant));
        ended.map(|e| leaf_weight_below(pipeline, e.to)).sum()
    };
    if weight > 0.0 { weight * pipeline.path_accuracy(stages) } else { 0.0 }
}

/// Weights of all sinks at or below a task, summed.
fn leaf_weight_below(pipeline: &Pipeline, task: TaskIndex) -> f64 {
    if pipeline.children(task).next().is_none() {
        return pipeline.leaf_weight(task);
    }
    pipeline.children(task).map(|e| leaf_weight_below(pipeline, e.to)).sum()
}
