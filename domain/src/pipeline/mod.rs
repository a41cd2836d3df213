//! What is a pipeline? A directed acyclic graph of tasks with one root, valid by construction.

mod checks;
mod draft;

pub(crate) use checks::check_unique;
pub use draft::{
    AccuracyModel, BATCH_MAX, EDGES_MAX, Edge, KIB_PER_QUERY_MAX, NETWORK_MS_PER_MIB_MAX, NUMBER_MAX, OTHER_SERVER,
    PROFILE_ROWS_MAX, Partial, PathAccuracy, PipelineDraft, Route, SLO_MS_MAX, TASKS_MAX, Task, TaskKind, VARIANTS_MAX,
    escape,
};
pub(crate) use draft::{FROM_ZERO, FROM_ZERO_TO_ONE};

use crate::invalid::Invalids;
use crate::{Hardware, PipelinePlan, TaskIndex, Variant, VariantIndex};
use checks::{PipelineGraph, check_graph, check_numbers, check_sizes, check_task};
use std::collections::BTreeSet;
use std::ops::Deref;

/// KiB of one MiB.
const KIB_PER_MIB: f64 = 1024.0;

/// A valid pipeline: one root, no cycle, every number in range. Its fields are those of [`PipelineDraft`].
#[derive(Clone, Debug, PartialEq)]
pub struct Pipeline {
    draft: PipelineDraft,
    root: TaskIndex,
    order: Vec<TaskIndex>,
    out_edges: Vec<Vec<usize>>,
    in_edges: Vec<Vec<usize>>,
}

impl Deref for Pipeline {
    type Target = PipelineDraft;
    fn deref(&self) -> &PipelineDraft {
        &self.draft
    }
}

impl Pipeline {
    /// Checks ranges and graph.
    ///
    /// # Errors
    /// Every refused value with its pointer below `at` (for example `/pipelines/0`).
    pub fn new(draft: PipelineDraft, hardware: &[Hardware], at: &str) -> Result<Self, Invalids> {
        let mut invalids = Invalids::default();
        check_numbers(&draft, at, &mut invalids);
        check_sizes(&draft, at, &mut invalids)?;
        for (t, task) in draft.tasks.iter().enumerate() {
            check_task(task, hardware, &format!("{at}/tasks/{t}"), &draft, &mut invalids);
        }
        check_unique(draft.tasks.iter().map(|t| t.name.as_str()), &format!("{at}/tasks"), &mut invalids);
        let graph = check_graph(&draft, at, &mut invalids);
        invalids.into_result()?;
        let PipelineGraph { root, order, out_edges, in_edges } = graph.expect("a graph without findings");
        let mut pipeline = Self { draft, root, order, out_edges, in_edges };
        pipeline.check_tables(at)?;
        let total: f64 = pipeline.draft.leaf_weights.values().sum();
        if total > 0.0 {
            pipeline.draft.leaf_weights.values_mut().for_each(|w| *w /= total);
        }
        Ok(pipeline)
    }

    /// The same pipeline with another demand, in queries per second.
    ///
    /// # Panics
    /// If the demand is not from 0 to [`NUMBER_MAX`].
    #[must_use]
    pub fn with_demand(&self, demand_qps: f64) -> Self {
        assert!((0.0..=NUMBER_MAX).contains(&demand_qps), "a demand in range");
        let mut other = self.clone();
        other.draft.demand_qps = demand_qps;
        other
    }

    /// A changed copy, checked again.
    ///
    /// # Errors
    /// As [`Pipeline::new`].
    pub fn changed(&self, hardware: &[Hardware], change: impl FnOnce(&mut PipelineDraft)) -> Result<Self, Invalids> {
        let mut draft = self.draft.clone();
        change(&mut draft);
        Self::new(draft, hardware, "")
    }

    /// Profile rows of all variants of all tasks.
    #[must_use]
    pub fn profile_rows(&self) -> usize {
        self.draft.tasks.iter().flat_map(|t| &t.variants).map(|v| v.profile.rows().len()).sum()
    }

    /// The task at which every query enters.
    #[must_use]
    pub fn root(&self) -> TaskIndex {
        self.root
    }

    /// All tasks, parents before children, ties in the file's order.
    #[must_use]
    pub fn order(&self) -> &[TaskIndex] {
        &self.order
    }

    /// The task at an index.
    #[must_use]
    pub fn task(&self, task: TaskIndex) -> &Task {
        &self.draft.tasks[task.0]
    }

    /// The variant at an index.
    #[must_use]
    pub fn variant(&self, task: TaskIndex, variant: VariantIndex) -> &Variant {
        &self.draft.tasks[task.0].variants[variant.0]
    }

    /// The task with this name.
    #[must_use]
    pub fn task_named(&self, name: &str) -> Option<TaskIndex> {
        self.draft.tasks.iter().position(|t| t.name == name).map(TaskIndex)
    }

    /// All edges out of a task, in the file's order.
    pub fn edges_from(&self, task: TaskIndex) -> impl Iterator<Item = &Edge> + '_ {
        self.out_edges[task.0].iter().map(|&e| &self.draft.edges[e])
    }

    /// All edges into a task, in the file's order.
    pub fn edges_into(&self, task: TaskIndex) -> impl Iterator<Item = &Edge> + '_ {
        self.in_edges[task.0].iter().map(|&e| &self.draft.edges[e])
    }

    /// The edges out of a task that make queries.
    pub fn children(&self, task: TaskIndex) -> impl Iterator<Item = &Edge> + '_ {
        self.edges_from(task).filter(|e| e.primary)
    }

    /// The edge that makes the queries of a task; `None` for the root.
    #[must_use]
    pub fn primary_parent(&self, task: TaskIndex) -> Option<&Edge> {
        self.edges_into(task).find(|e| e.primary)
    }

    /// Whether a task has several parents.
    #[must_use]
    pub fn is_join(&self, task: TaskIndex) -> bool {
        self.in_edges[task.0].len() > 1
    }

    /// Whether no task has several parents.
    #[must_use]
    pub fn is_tree(&self) -> bool {
        self.in_edges.iter().all(|e| e.len() <= 1)
    }

    /// Tasks that make no queries, in the file's order.
    pub fn sinks(&self) -> impl Iterator<Item = TaskIndex> + '_ {
        (0..self.draft.tasks.len()).map(TaskIndex).filter(|&t| self.children(t).next().is_none())
    }

    /// Weight of a sink's accuracy; the weights of all sinks sum to 1.
    #[must_use]
    pub fn leaf_weight(&self, sink: TaskIndex) -> f64 {
        if self.draft.leaf_weights.is_empty() {
            1.0 / self.sinks().count() as f64
        } else {
            self.draft.leaf_weights.get(&sink).copied().unwrap_or(0.0)
        }
    }

    /// Mean number of queries that one query at `variant` of `edge.from` makes at `edge.to`. It is the mean of
    /// `fanout_counts`, or else `fanout_to`, or else `fanout * ratio`.
    #[must_use]
    pub fn fanout(&self, edge: &Edge, variant: VariantIndex) -> f64 {
        let v = self.variant(edge.from, variant);
        if let Some(counts) = v.fanout_counts.get(&edge.to) {
            return counts.mean();
        }
        v.fanout_to.get(&edge.to).copied().unwrap_or(v.fanout * edge.ratio)
    }

    /// Mean size of the inputs that travel to one query of a task, in KiB; 0 if it is not known. The parts of a join's
    /// query travel at the same time, so only the largest one counts.
    #[must_use]
    pub fn kib_per_query(&self, task: TaskIndex) -> f64 {
        if task == self.root {
            return self.draft.ingress_kib_per_query;
        }
        self.edges_into(task).map(|e| e.kib_per_query).fold(0.0, f64::max)
    }

    /// The time that the network takes to bring one query to a task, in milliseconds: `network_ms`, and
    /// `network_ms_per_mib` for each MiB of [`Pipeline::kib_per_query`].
    #[must_use]
    pub fn transfer_ms(&self, task: TaskIndex) -> f64 {
        self.draft.network_ms + self.draft.network_ms_per_mib * (self.kib_per_query(task) / KIB_PER_MIB)
    }

    /// The time from the moment when a query is made to the moment when it joins a queue of its task, in milliseconds. It
    /// is [`Pipeline::transfer_ms`]. Into the root it begins when the request arrives, and has `ingress_ms` too.
    ///
    /// Estimator, checker and planners all take the times of hops from here.
    #[must_use]
    pub fn hop_ms(&self, task: TaskIndex) -> f64 {
        let ingress_ms = if task == self.root { self.draft.ingress_ms } else { 0.0 };
        self.transfer_ms(task) + ingress_ms
    }

    /// The time that a query is charged at one task for a batch of this latency: `queue_factor * latency_ms + hop`, in
    /// milliseconds, with the hop of [`Pipeline::hop_ms`] (Loki section 4.1).
    #[must_use]
    pub fn hop_charge_ms(&self, task: TaskIndex, latency_ms: f64) -> f64 {
        self.draft.queue_factor * latency_ms + self.hop_ms(task)
    }

    /// Accuracy of one path, 0 to 1: by the table, or else by the model. Under `task_mean` it is the mean over the stages
    /// of the path.
    #[must_use]
    pub fn path_accuracy(&self, path: &[(TaskIndex, VariantIndex)]) -> f64 {
        if let Some(entry) = self.draft.path_accuracy.iter().find(|e| e.path == path) {
            return entry.accuracy;
        }
        let stages = path.iter().map(|&(t, v)| self.variant(t, v).accuracy);
        match self.draft.accuracy_model {
            AccuracyModel::Product => stages.product(),
            AccuracyModel::Mean | AccuracyModel::TaskMean => stages.sum::<f64>() / path.len() as f64,
        }
    }

    /// The variants of highest accuracy of a task; several if they tie.
    pub fn most_accurate(&self, task: TaskIndex) -> impl Iterator<Item = VariantIndex> + '_ {
        let variants = &self.task(task).variants;
        let best = variants.iter().map(|v| v.accuracy).fold(f64::NEG_INFINITY, f64::max);
        variants.iter().enumerate().filter(move |(_, v)| v.accuracy == best).map(|(i, _)| VariantIndex(i))
    }

    /// Whether this plan of it runs only the most accurate variants of its tasks.
    #[must_use]
    pub fn is_most_accurate(&self, plan: &PipelinePlan) -> bool {
        plan.assignments.iter().all(|assignment| {
            let Some(task) = self.task_named(&assignment.group.task) else { return false };
            self.most_accurate(task).any(|v| self.variant(task, v).name == assignment.group.variant)
        })
    }

    /// Checks path accuracies and leaf weights, which need the graph.
    fn check_tables(&self, at: &str) -> Result<(), Invalids> {
        let mut invalids = Invalids::default();
        let mut seen = BTreeSet::new();
        for entry in &self.draft.path_accuracy {
            let key = self.path_key(&entry.path);
            let place = format!("{at}/path_accuracy/{}", escape(&key));
            let tasks: Vec<TaskIndex> = entry.path.iter().map(|&(task, _)| task).collect();
            let tasks_follow = tasks.first() == Some(&self.root)
                && tasks.windows(2).all(|pair| self.children(pair[0]).any(|e| e.to == pair[1]));
            if !tasks_follow {
                invalids.push(&place, &key, "a path of edges that starts at the root");
            }
            if !seen.insert(entry.path.clone()) {
                invalids.push(&place, &key, "each path once");
            }
            invalids.check_number(&place, entry.accuracy, FROM_ZERO_TO_ONE, "an accuracy from 0 to 1");
        }
        for (&task, &weight) in &self.draft.leaf_weights {
            let place = format!("{at}/leaf_weights/{}", escape(&self.task(task).name));
            invalids.check_number(&place, weight, FROM_ZERO, "a weight of at least 0");
            if self.children(task).next().is_some() {
                invalids.push(&place, &self.task(task).name, "a task without children");
            }
        }
        if !self.draft.leaf_weights.is_empty() && self.draft.leaf_weights.values().sum::<f64>() <= 0.0 {
            invalids.push(format!("{at}/leaf_weights"), "all 0", "a sum above 0");
        }
        invalids.into_result()
    }

    /// A path as the problem file writes it: `task:variant>task:variant`.
    #[must_use]
    pub fn path_key(&self, path: &[(TaskIndex, VariantIndex)]) -> String {
        let stage = |&(t, v): &(TaskIndex, VariantIndex)| format!("{}:{}", self.task(t).name, self.variant(t, v).name);
        path.iter().map(stage).collect::<Vec<_>>().join(">")
    }
}
