//! Pipelines: directed acyclic graphs of tasks with one root, valid by construction.

use crate::invalid::Invalids;
use crate::serving::{ServingWishes, named};
use crate::{Hardware, TaskIndex, Variant, VariantIndex};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

/// Largest number of tasks of one pipeline.
pub const TASKS_MAX: usize = 256;
/// Largest number of edges of one pipeline.
pub const EDGES_MAX: usize = 4_096;
/// Largest number of variants of one task.
pub const VARIANTS_MAX: usize = 1_024;
/// Largest number of profile rows of one variant.
pub const PROFILE_ROWS_MAX: usize = 16_384;
/// Largest batch size.
pub const BATCH_MAX: u32 = 65_536;
/// How far probabilities written in decimals may be from summing to 1.
const PROBABILITY_SLACK: f64 = 1e-6;
/// Largest SLO in milliseconds.
pub const SLO_MS_MAX: f64 = 1e12;
/// Largest value of any other number in a problem; what is above it is a slip of the pen.
pub const NUMBER_MAX: f64 = 1e12;

named! {
    /// How a stage runs its queries.
    TaskKind default Batch {
        /// In batches.
        Batch = "batch",
        /// In slots, each query for its own time (PARD section 7).
        Continuous = "continuous",
    }
}

named! {
    /// Which children a query visits.
    Route default All {
        /// Every child.
        All = "all",
        /// One child, chosen with the edge ratios as probabilities.
        OneOf = "one_of",
    }
}

named! {
    /// How the accuracies of the stages on a path combine.
    AccuracyModel default Product {
        /// Their product.
        Product = "product",
        /// Their mean.
        Mean = "mean",
        /// The mean over tasks of the share-weighted accuracy of each task.
        TaskMean = "task_mean",
    }
}

named! {
    /// What a dropped descendant does to its request.
    Partial default Deny {
        /// It drops the whole request.
        Deny = "deny",
        /// It is left out of the answer.
        Allow = "allow",
    }
}

/// One task of a pipeline.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// Unique in its pipeline.
    pub name: String,
    /// How it runs its queries.
    pub kind: TaskKind,
    /// Which children its queries visit.
    pub route: Route,
    /// Fewest replicas over all its groups.
    pub min_replicas: u32,
    /// At least one.
    pub variants: Vec<Variant>,
}

/// An edge: queries of `from` make queries of `to`.
#[derive(Clone, Debug, PartialEq)]
pub struct Edge {
    /// The parent.
    pub from: TaskIndex,
    /// The child.
    pub to: TaskIndex,
    /// Share of the parent's output that goes there; a probability under `one_of`.
    pub ratio: f64,
    /// Whether this edge makes queries. At a join one edge does, the others only delay.
    pub primary: bool,
    /// Child's input name to parent's output name.
    pub map: BTreeMap<String, String>,
}

/// Measured accuracy of one path, in place of the accuracy model.
#[derive(Clone, Debug, PartialEq)]
pub struct PathAccuracy {
    /// From the root to a sink (or to where the path ends).
    pub path: Vec<(TaskIndex, VariantIndex)>,
    /// 0 to 1.
    pub accuracy: f64,
}

/// A pipeline as read, before its graph and ranges are checked. Names are resolved already.
#[derive(Clone, Debug, PartialEq)]
pub struct PipelineDraft {
    /// Unique in its problem.
    pub name: String,
    /// Queries entering the root per second.
    pub demand_qps: f64,
    /// End-to-end latency objective.
    pub slo_ms: f64,
    /// Share of requests, in percent, that must meet the SLO when a trace is replayed.
    pub percentile: f64,
    /// How many of its own batch times a query takes at a task, waiting included: 2 in Loki section 4.1.
    pub queue_factor: f64,
    /// Per hop, the one into the root included.
    pub network_ms: f64,
    /// Weight in `max_accuracy`.
    pub weight: f64,
    /// Floor on the accuracy.
    pub min_accuracy: Option<f64>,
    /// How the accuracies of a path's stages combine.
    pub accuracy_model: AccuracyModel,
    /// Overrides the model for the paths listed.
    pub path_accuracy: Vec<PathAccuracy>,
    /// Weights of the sinks, normalised to sum to 1 by [`Pipeline::leaf_weight`]; empty is uniform.
    pub leaf_weights: BTreeMap<TaskIndex, f64>,
    /// Replicas of any one group that may be lost without losing capacity.
    pub survive: u32,
    /// What a dropped descendant does to its request.
    pub partial: Partial,
    /// Wishes for the plan's serving block.
    pub serving: ServingWishes,
    /// At least one.
    pub tasks: Vec<Task>,
    /// In the file's order.
    pub edges: Vec<Edge>,
}

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
        invalids.result()?;
        let (root, order, out_edges, in_edges) = graph.expect("a graph without findings");
        let mut pipeline = Self { draft, root, order, out_edges, in_edges };
        pipeline.check_tables(at)?;
        let total: f64 = pipeline.draft.leaf_weights.values().sum();
        if total > 0.0 {
            pipeline.draft.leaf_weights.values_mut().for_each(|w| *w /= total);
        }
        Ok(pipeline)
    }

    /// The same pipeline with another demand.
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

    /// Mean number of queries that one query at `variant` of `edge.from` makes at `edge.to`: the mean of `fanout_counts`,
    /// else `fanout_to`, else `fanout * ratio`.
    #[must_use]
    pub fn fanout(&self, edge: &Edge, variant: VariantIndex) -> f64 {
        let v = self.variant(edge.from, variant);
        if let Some(counts) = v.fanout_counts.get(&edge.to) {
            return counts.mean();
        }
        v.fanout_to.get(&edge.to).copied().unwrap_or(v.fanout * edge.ratio)
    }

    /// What a query pays at one task for a batch of this latency: `queue_factor * latency_ms + network_ms` (Loki 4.1).
    #[must_use]
    pub fn hop_charge_ms(&self, latency_ms: f64) -> f64 {
        self.draft.queue_factor * latency_ms + self.draft.network_ms
    }

    /// Accuracy of one path by the table, else by the model; `task_mean` counts a path as the mean over **all** tasks is
    /// not a path's affair, so here it is the mean over the path's stages.
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

    fn check_tables(&self, at: &str) -> Result<(), Invalids> {
        let mut invalids = Invalids::default();
        let mut seen = BTreeSet::new();
        for entry in &self.draft.path_accuracy {
            let key = self.path_key(&entry.path);
            let place = format!("{at}/path_accuracy/{}", escape(&key));
            let tasks_follow = entry.path.first().is_some_and(|&(t, _)| t == self.root)
                && entry.path.windows(2).all(|w| self.children(w[0].0).any(|e| e.to == w[1].0));
            if !tasks_follow {
                invalids.push(&place, &key, "a path of edges that starts at the root");
            }
            if !seen.insert(entry.path.clone()) {
                invalids.push(&place, &key, "each path once");
            }
            let ok = (0.0..=1.0).contains(&entry.accuracy);
            invalids.number(&place, entry.accuracy, ok, "an accuracy from 0 to 1");
        }
        for (&task, &weight) in &self.draft.leaf_weights {
            let place = format!("{at}/leaf_weights/{}", escape(&self.task(task).name));
            let ok = (0.0..=NUMBER_MAX).contains(&weight);
            invalids.number(&place, weight, ok, "a weight of at least 0");
            if self.children(task).next().is_some() {
                invalids.push(&place, &self.task(task).name, "a task without children");
            }
        }
        if !self.draft.leaf_weights.is_empty() && self.draft.leaf_weights.values().sum::<f64>() <= 0.0 {
            invalids.push(format!("{at}/leaf_weights"), "all 0", "a sum above 0");
        }
        invalids.result()
    }

    /// A path as the problem file writes it: `task:variant>task:variant`.
    #[must_use]
    pub fn path_key(&self, path: &[(TaskIndex, VariantIndex)]) -> String {
        let stage = |&(t, v): &(TaskIndex, VariantIndex)| format!("{}:{}", self.task(t).name, self.variant(t, v).name);
        path.iter().map(stage).collect::<Vec<_>>().join(">")
    }
}

/// Escapes one token of a JSON pointer (RFC 6901).
#[must_use]
pub fn escape(token: &str) -> String {
    token.replace('~', "~0").replace('/', "~1")
}

fn check_numbers(d: &PipelineDraft, at: &str, invalids: &mut Invalids) {
    let from_zero = 0.0..=NUMBER_MAX;
    let slo_ok = d.slo_ms > 0.0 && d.slo_ms <= SLO_MS_MAX;
    invalids.number(&format!("{at}/slo_ms"), d.slo_ms, slo_ok, "a number above 0, at most 1e12");
    let at_least = "a number of at least 0, at most 1e12";
    invalids.number(&format!("{at}/demand_qps"), d.demand_qps, from_zero.contains(&d.demand_qps), at_least);
    invalids.number(&format!("{at}/network_ms"), d.network_ms, from_zero.contains(&d.network_ms), at_least);
    invalids.number(&format!("{at}/weight"), d.weight, from_zero.contains(&d.weight), at_least);
    let percentile_ok = d.percentile > 0.0 && d.percentile < 100.0;
    invalids.number(&format!("{at}/percentile"), d.percentile, percentile_ok, "a number between 0 and 100, both excluded");
    let factor_ok = (1.0..=NUMBER_MAX).contains(&d.queue_factor);
    invalids.number(&format!("{at}/queue_factor"), d.queue_factor, factor_ok, "a number of at least 1");
    if let Some(floor) = d.min_accuracy {
        invalids.number(
            &format!("{at}/min_accuracy"),
            floor,
            (0.0..=1.0).contains(&floor),
            "an accuracy from 0 to 1, or null",
        );
    }
}

fn check_sizes(d: &PipelineDraft, at: &str, invalids: &mut Invalids) -> Result<(), Invalids> {
    if d.name.is_empty() {
        invalids.push(format!("{at}/name"), "\"\"", "a name");
    }
    if d.tasks.is_empty() || d.tasks.len() > TASKS_MAX {
        let found = format!("{} tasks", d.tasks.len());
        invalids.push(format!("{at}/tasks"), found, format!("1 to {TASKS_MAX} tasks"));
        return Err(std::mem::take(invalids));
    }
    if d.edges.len() > EDGES_MAX {
        invalids.push(format!("{at}/edges"), format!("{} edges", d.edges.len()), format!("at most {EDGES_MAX} edges"));
        return Err(std::mem::take(invalids));
    }
    Ok(())
}

pub(crate) fn check_unique<'a>(names: impl Iterator<Item = &'a str>, at: &str, invalids: &mut Invalids) {
    let mut seen = BTreeSet::new();
    for (i, name) in names.enumerate() {
        if !seen.insert(name) {
            invalids.push(format!("{at}/{i}/name"), format!("{name:?}"), "a name that no other has");
        }
    }
}

fn check_task(task: &Task, hardware: &[Hardware], at: &str, d: &PipelineDraft, invalids: &mut Invalids) {
    if task.name.is_empty() || task.name.contains(['>', ':']) {
        invalids.push(format!("{at}/name"), format!("{:?}", task.name), "a name without '>' and ':'");
    }
    if task.variants.is_empty() || task.variants.len() > VARIANTS_MAX {
        let found = format!("{} variants", task.variants.len());
        invalids.push(format!("{at}/variants"), found, format!("1 to {VARIANTS_MAX} variants"));
        return;
    }
    check_unique(task.variants.iter().map(|v| v.name.as_str()), &format!("{at}/variants"), invalids);
    for (v, variant) in task.variants.iter().enumerate() {
        check_variant(variant, hardware, &format!("{at}/variants/{v}"), d, invalids);
    }
}

fn check_variant(v: &Variant, hardware: &[Hardware], at: &str, d: &PipelineDraft, invalids: &mut Invalids) {
    let at_least = "a number of at least 0, at most 1e12";
    let from_zero = 0.0..=NUMBER_MAX;
    if v.name.is_empty() || v.name.contains(['>', ':']) {
        invalids.push(format!("{at}/name"), format!("{:?}", v.name), "a name without '>' and ':'");
    }
    invalids.number(&format!("{at}/accuracy"), v.accuracy, (0.0..=1.0).contains(&v.accuracy), "an accuracy from 0 to 1");
    invalids.number(&format!("{at}/fanout"), v.fanout, from_zero.contains(&v.fanout), at_least);
    invalids.number(&format!("{at}/load_ms"), v.load_ms, from_zero.contains(&v.load_ms), at_least);
    if let Some(memory) = v.memory_mib {
        invalids.number(&format!("{at}/memory_mib"), memory, from_zero.contains(&memory), at_least);
    }
    for (task, &mean) in &v.fanout_to {
        let place = format!("{at}/fanout_to/{}", escape(&d.tasks[task.0].name));
        invalids.number(&place, mean, from_zero.contains(&mean), at_least);
    }
    for (task, counts) in &v.fanout_counts {
        let place = format!("{at}/fanout_counts/{}", escape(&d.tasks[task.0].name));
        let total: f64 = counts.0.iter().map(|&(_, p)| p).sum();
        if counts.0.is_empty()
            || counts.0.iter().any(|&(_, p)| !(0.0..=1.0).contains(&p))
            || (total - 1.0).abs() > PROBABILITY_SLACK
        {
            invalids.push(&place, format!("a sum of {total}"), "probabilities from 0 to 1 that sum to 1");
        }
    }
    check_profile(v, hardware, at, invalids);
}

/// Profile rows are reported at the profile's pointer with their key, because sorting has lost their position.
fn check_profile(v: &Variant, hardware: &[Hardware], at: &str, invalids: &mut Invalids) {
    let at = format!("{at}/profile");
    let rows = v.profile.rows();
    if rows.is_empty() || rows.len() > PROFILE_ROWS_MAX {
        invalids.push(&at, format!("{} rows", rows.len()), format!("1 to {PROFILE_ROWS_MAX} rows"));
    }
    for row in rows {
        let key = format!("{} batch {} share {}", hardware[row.hardware.0].name, row.batch, row.share);
        if !(1..=BATCH_MAX).contains(&row.batch) {
            invalids.push(&at, &key, format!("a batch from 1 to {BATCH_MAX}"));
        }
        if !(row.latency_ms > 0.0 && row.latency_ms <= NUMBER_MAX) {
            invalids.push(&at, format!("{key}: latency_ms {}", row.latency_ms), "a latency above 0, at most 1e12");
        }
        if let Some(p99) = row.p99_ms.filter(|p| !(*p >= row.latency_ms && *p <= NUMBER_MAX)) {
            invalids.push(&at, format!("{key}: p99_ms {p99}"), "a p99 of at least the median latency");
        }
    }
    for pair in rows.windows(2) {
        if (pair[0].hardware, pair[0].share, pair[0].batch) == (pair[1].hardware, pair[1].share, pair[1].batch) {
            let key = format!("{} batch {} share {}", hardware[pair[0].hardware.0].name, pair[0].batch, pair[0].share);
            invalids.push(&at, key, "one row for each hardware, batch and share");
        }
    }
}

type Graph = (TaskIndex, Vec<TaskIndex>, Vec<Vec<usize>>, Vec<Vec<usize>>);

fn check_graph(d: &PipelineDraft, at: &str, invalids: &mut Invalids) -> Option<Graph> {
    let before = invalids.0.len();
    let n = d.tasks.len();
    let name = |t: TaskIndex| format!("{:?}", d.tasks[t.0].name);
    let (mut out_edges, mut in_edges) = (vec![Vec::new(); n], vec![Vec::new(); n]);
    let mut seen = BTreeSet::new();
    for (i, e) in d.edges.iter().enumerate() {
        let place = format!("{at}/edges/{i}");
        invalids.number(
            &format!("{place}/ratio"),
            e.ratio,
            (0.0..=NUMBER_MAX).contains(&e.ratio),
            "a number of at least 0",
        );
        if e.from == e.to {
            invalids.push(&place, name(e.from), "an edge between two tasks");
        }
        if !seen.insert((e.from, e.to)) {
            invalids.push(&place, format!("{} to {}", name(e.from), name(e.to)), "each pair of tasks once");
        }
        out_edges[e.from.0].push(i);
        in_edges[e.to.0].push(i);
    }
    let roots: Vec<_> = (0..n).filter(|&t| in_edges[t].is_empty()).map(TaskIndex).collect();
    let order = topological(n, d, &out_edges, &in_edges);
    if order.len() < n {
        let rest: Vec<_> = (0..n).map(TaskIndex).filter(|t| !order.contains(t)).map(name).collect();
        invalids.push(format!("{at}/edges"), format!("a cycle through or before {}", rest.join(", ")), "no cycle");
    }
    if roots.len() != 1 && order.len() == n {
        let names: Vec<_> = roots.iter().map(|&t| name(t)).collect();
        invalids.push(
            format!("{at}/tasks"),
            format!("{} roots ({})", roots.len(), names.join(", ")),
            "one task without a parent",
        );
    }
    for t in 0..n {
        check_edges_of_task(d, TaskIndex(t), &out_edges[t], &in_edges[t], at, invalids);
    }
    (invalids.0.len() == before).then(|| (roots[0], order, out_edges, in_edges))
}

fn check_edges_of_task(d: &PipelineDraft, t: TaskIndex, out: &[usize], into: &[usize], at: &str, invalids: &mut Invalids) {
    let name = &d.tasks[t.0].name;
    let primaries = into.iter().filter(|&&e| d.edges[e].primary).count();
    if !into.is_empty() && primaries != 1 {
        let place = format!("{at}/edges/{}", into[0]);
        let found = format!("{primaries} primary edges into {name:?}");
        invalids.push(place, found, "exactly one incoming edge of a join with `primary: true`");
    }
    if d.tasks[t.0].route == Route::OneOf {
        let making: Vec<_> = out.iter().filter(|&&e| d.edges[e].primary).collect();
        let total: f64 = making.iter().map(|&&e| d.edges[e].ratio).sum();
        if !making.is_empty() && (total - 1.0).abs() > PROBABILITY_SLACK {
            let found = format!("a sum of {total} over the edges out of {name:?}");
            invalids.push(format!("{at}/edges"), found, "ratios that sum to 1 under `route: one_of`");
        }
    }
}

fn topological(n: usize, d: &PipelineDraft, out: &[Vec<usize>], into: &[Vec<usize>]) -> Vec<TaskIndex> {
    let mut waiting: Vec<usize> = into.iter().map(Vec::len).collect();
    let mut ready: BTreeSet<usize> = (0..n).filter(|&t| waiting[t] == 0).collect();
    let mut order = Vec::with_capacity(n);
    while let Some(t) = ready.pop_first() {
        order.push(TaskIndex(t));
        for &e in &out[t] {
            let to = d.edges[e].to.0;
            waiting[to] -= 1;
            if waiting[to] == 0 {
                ready.insert(to);
            }
        }
    }
    order
}
