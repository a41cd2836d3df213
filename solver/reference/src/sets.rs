//! Which index sets does a pipeline have? Groups, their batch sizes, and the prefixes of paths of queries.

use crate::answer::{PREFIXES_MAX, ReferenceError};
use apportion_domain::{
    AccuracyModel, GroupName, HardwareIndex, Pipeline, PipelineIndex, Problem, Share, TaskIndex, VariantIndex,
};

/// A batch size b of a group.
#[derive(Clone, Copy, Debug)]
pub struct BatchSize {
    /// Queries in the batch.
    pub batch: u32,
    /// e(g, b) in milliseconds: the time of a query at the group, with waiting and network.
    pub charge_ms: f64,
    /// q(g, b): queries per second of one replica.
    pub qps: f64,
}

/// A group g = (task i, variant k, hardware h, share s of a device).
#[derive(Clone, Debug)]
pub struct ReferenceGroup {
    pub task: TaskIndex,
    pub variant: VariantIndex,
    pub hardware: HardwareIndex,
    pub share: Share,
    pub batches: Vec<BatchSize>,
}

/// A prefix p: groups from the root on, one task after the other.
#[derive(Clone, Debug)]
pub struct Prefix {
    /// Its groups; the last one is where it ends.
    pub groups: Vec<usize>,
    /// D m(p): queries per second at its last group if every root query took it.
    pub load_qps: f64,
    /// A(p), weighted by the sinks whose paths end here.
    pub accuracy: f64,
    /// Whether it is the whole path to some sink.
    pub is_path: bool,
}

/// The prefixes that continue one prefix over one edge. Without a prefix they begin at the root's frontend.
#[derive(Clone, Debug)]
pub struct PrefixBranches {
    pub from: Option<usize>,
    pub to: Vec<usize>,
}

/// The sets of one pipeline.
#[derive(Clone, Debug)]
pub struct Sets {
    pub groups: Vec<ReferenceGroup>,
    pub prefixes: Vec<Prefix>,
    pub splits: Vec<PrefixBranches>,
}

impl Sets {
    /// The sets of a pipeline of a problem.
    pub fn new(problem: &Problem, index: PipelineIndex) -> Result<Self, ReferenceError> {
        let pipeline = problem.pipeline(index);
        let groups = groups(problem, pipeline);
        let (prefixes, splits) = prefixes(pipeline, &groups)?;
        Ok(Self { groups, prefixes, splits })
    }

    /// The groups of a task.
    pub fn groups_of(&self, task: TaskIndex) -> impl Iterator<Item = usize> + '_ {
        (0..self.groups.len()).filter(move |&g| self.groups[g].task == task)
    }

    /// The prefixes that end at a group.
    pub fn ending_at(&self, group: usize) -> impl Iterator<Item = usize> + '_ {
        (0..self.prefixes.len()).filter(move |&p| self.prefixes[p].groups.last() == Some(&group))
    }

    /// The name of a group.
    pub fn name(&self, problem: &Problem, pipeline: &Pipeline, group: usize) -> GroupName {
        let group = &self.groups[group];
        GroupName {
            task: pipeline.task(group.task).name.clone(),
            variant: pipeline.variant(group.task, group.variant).name.clone(),
            hardware: problem.hardware_at(group.hardware).name.clone(),
            share: group.share,
        }
    }
}

/// Every group that was profiled and fits into its device's memory, with (5): `l = batch / q`, `e = queue_factor l + h`.
/// h is the hop into its task.
fn groups(problem: &Problem, pipeline: &Pipeline) -> Vec<ReferenceGroup> {
    let mut groups = Vec::new();
    for (t, task) in pipeline.tasks.iter().enumerate() {
        for (v, variant) in task.variants.iter().enumerate() {
            for (hardware, share) in variant.profile.places() {
                if !problem.fits_memory(variant.memory_mib, hardware, share) {
                    continue;
                }
                let rows = variant.profile.on(hardware, share).iter();
                let batches = rows.map(|row| BatchSize {
                    batch: row.batch,
                    charge_ms: pipeline.hop_charge_ms(TaskIndex(t), row.latency_ms),
                    qps: row.throughput_qps(),
                });
                let (task, variant) = (TaskIndex(t), VariantIndex(v));
                groups.push(ReferenceGroup { task, variant, hardware, share, batches: batches.collect() });
            }
        }
    }
    groups
}

/// Every prefix, with (1): m(p) is the product of the fan-outs of the **ancestors**. Loki's equation, as printed,
/// multiplies the factor of the last variant too. A child that gets no queries ends the path.
fn prefixes(pipeline: &Pipeline, groups: &[ReferenceGroup]) -> Result<(Vec<Prefix>, Vec<PrefixBranches>), ReferenceError> {
    let (mut prefixes, mut splits): (Vec<Prefix>, Vec<PrefixBranches>) = (Vec::new(), Vec::new());
    let mut open = vec![(None, pipeline.root(), pipeline.demand_qps)];
    while let Some((from, task, load_qps)) = open.pop() {
        let stem: Vec<usize> = from.map_or(Vec::new(), |p: usize| prefixes[p].groups.clone());
        let mut to = Vec::new();
        for g in (0..groups.len()).filter(|&g| groups[g].task == task) {
            if prefixes.len() == PREFIXES_MAX {
                return Err(ReferenceError::TooManyPrefixes(pipeline.name.clone()));
            }
            let p = prefixes.len();
            let path = [stem.as_slice(), &[g]].concat();
            let mut ends = pipeline.children(task).next().is_none();
            for edge in pipeline.children(task) {
                let fanout = pipeline.fanout(edge, groups[g].variant);
                if fanout > 0.0 {
                    open.push((Some(p), edge.to, load_qps * fanout));
                } else {
                    ends = true;
                }
            }
            let accuracy = accuracy(pipeline, groups, &path);
            prefixes.push(Prefix { groups: path, load_qps, accuracy, is_path: ends });
            to.push(p);
        }
        splits.push(PrefixBranches { from, to });
    }
    Ok((prefixes, splits))
}

/// The accuracy that a whole share of a prefix adds to the pipeline: A(p) times the weights of the sinks that its path
/// ends for. Under `task_mean` each task adds its own accuracy over the number of tasks.
fn accuracy(pipeline: &Pipeline, groups: &[ReferenceGroup], path: &[usize]) -> f64 {
    let stages: Vec<_> = path.iter().map(|&g| (groups[g].task, groups[g].variant)).collect();
    let (task, variant) = stages[stages.len() - 1];
    if pipeline.accuracy_model == AccuracyModel::TaskMean {
        return pipeline.variant(task, variant).accuracy / pipeline.tasks.len() as f64;
    }
    let ends_for = |sink: &TaskIndex| *sink == task || is_cut_off(pipeline, task, variant, *sink);
    let weight: f64 = pipeline.sinks().filter(ends_for).map(|sink| pipeline.leaf_weight(sink)).sum();
    if weight > 0.0 { weight * pipeline.path_accuracy(&stages) } else { 0.0 }
}

/// Whether a variant of a task above a sink makes no queries on the way there.
fn is_cut_off(pipeline: &Pipeline, task: TaskIndex, variant: VariantIndex, sink: TaskIndex) -> bool {
    let parent = |t: &TaskIndex| pipeline.primary_parent(*t).map(|edge| edge.from);
    let below = std::iter::successors(Some(sink), parent).find(|t| parent(t) == Some(task));
    let edge = below.and_then(|t| pipeline.primary_parent(t));
    edge.is_some_and(|edge| pipeline.fanout(edge, variant) <= 0.0)
}
