//! What can be decided: groups with their undominated batch sizes, levels of latency budgets, the trie of variants.

use apportion_domain::{HardwareIndex, Pipeline, Problem, SLACK, Share, TaskIndex, VariantIndex};
use std::collections::BTreeMap;

/// Most trie nodes over all pipelines; a problem with more is refused, not approximated.
pub const NODES_MAX: usize = 20_000;

/// What the check loop adds to one task: 1 and 0 change nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tightening {
    /// The task's load is planned as if it were so many times larger.
    pub headroom: f64,
    /// Added to the task's hop charge.
    pub charge_ms: f64,
}

impl Default for Tightening {
    fn default() -> Self {
        Self { headroom: 1.0, charge_ms: 0.0 }
    }
}

/// Tightening by pipeline and task.
pub type Tightenings = Vec<Vec<Tightening>>;

/// One batch size of a group: no other is at most as slow and at least as fast.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// Batch size.
    pub batch: u32,
    /// Hop charge, tightening included.
    pub charge_ms: f64,
    /// Throughput of one replica.
    pub qps: f64,
}

/// A group that may be staffed.
#[derive(Clone, Debug)]
pub struct Site {
    /// Position of its pipeline.
    pub pipeline: usize,
    /// Its task.
    pub task: TaskIndex,
    /// Its variant.
    pub variant: VariantIndex,
    /// Its hardware.
    pub hardware: HardwareIndex,
    /// Its share of a device.
    pub share: Share,
    /// By increasing charge and throughput, never empty.
    pub choices: Vec<Choice>,
    /// Replicas deployed now.
    pub deployed: u32,
}

impl Site {
    /// The fastest choice within a budget.
    #[must_use]
    pub fn best_within(&self, budget_ms: f64) -> Option<&Choice> {
        self.choices.iter().rev().find(|c| c.charge_ms <= budget_ms * (1.0 + SLACK))
    }
}

/// One prefix of variants on the way from the root.
#[derive(Clone, Debug)]
pub struct Node {
    /// Position of its pipeline.
    pub pipeline: usize,
    /// The prefix one shorter.
    pub parent: Option<usize>,
    /// Its last task.
    pub task: TaskIndex,
    /// Its last variant.
    pub variant: VariantIndex,
    /// Queries here per root query: product over the ancestors only.
    pub multiplier: f64,
    /// Its part of the pipeline's accuracy per unit of flow.
    pub accuracy: f64,
}

/// Everything that a formulation decides about.
#[derive(Clone, Debug)]
pub struct Space {
    /// Groups.
    pub sites: Vec<Site>,
    /// Prefixes, parents before children.
    pub nodes: Vec<Node>,
    /// Budgets worth considering, by pipeline and task, increasing.
    pub levels: Vec<Vec<Vec<f64>>>,
}

/// Why there is no space to search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpaceError {
    /// A pipeline's fastest way is slower than its SLO; its position.
    TooSlow(usize),
    /// A task has no variant that fits into any device's memory.
    NoGroup(usize, TaskIndex),
    /// More prefixes than [`NODES_MAX`].
    TooLarge,
}

impl Space {
    /// Lays the space out. With `best_only` each task has only its most accurate variants (Loki's first step).
    ///
    /// # Errors
    /// If nothing can meet an SLO, or there are too many prefixes.
    pub fn new(problem: &Problem, tightenings: &Tightenings, best_only: bool) -> Result<Self, SpaceError> {
        let mut space = Self { sites: Vec::new(), nodes: Vec::new(), levels: Vec::new() };
        for (p, pipeline) in problem.pipelines.iter().enumerate() {
            let mut sites = sites(problem, p, &tightenings[p], best_only);
            for t in 0..pipeline.tasks.len() {
                if !sites.iter().any(|s| s.task == TaskIndex(t)) {
                    return Err(SpaceError::NoGroup(p, TaskIndex(t)));
                }
            }
            drop_hopeless(pipeline, &mut sites).map_err(|()| SpaceError::TooSlow(p))?;
            space.levels.push((0..pipeline.tasks.len()).map(|t| levels(&sites, TaskIndex(t))).collect());
            space.nodes(pipeline, p, &sites)?;
            space.sites.extend(sites);
        }
        Ok(space)
    }

    fn nodes(&mut self, pipeline: &Pipeline, p: usize, sites: &[Site]) -> Result<(), SpaceError> {
        let mut frontier = vec![(None, pipeline.root(), 1.0, Vec::new())];
        while let Some((parent, task, multiplier, path)) = frontier.pop() {
            for v in (0..pipeline.task(task).variants.len()).map(VariantIndex) {
                if !sites.iter().any(|s| s.task == task && s.variant == v) {
                    continue;
                }
                let mut path: Vec<_> = path.clone();
                path.push((task, v));
                let accuracy = accuracy_of_flow(pipeline, &path);
                self.nodes.push(Node { pipeline: p, parent, task, variant: v, multiplier, accuracy });
                if self.nodes.len() > NODES_MAX {
                    return Err(SpaceError::TooLarge);
                }
                let here = self.nodes.len() - 1;
                for edge in pipeline.children(task) {
                    let made = pipeline.fanout(edge, v);
                    if made > 0.0 {
                        frontier.push((Some(here), edge.to, multiplier * made, path.clone()));
                    }
                }
            }
        }
        Ok(())
    }

    /// Largest load of a group's variant per unit of demand: its largest multiplier.
    #[must_use]
    pub fn multiplier_max(&self, site: &Site) -> f64 {
        let same = |n: &&Node| n.pipeline == site.pipeline && n.task == site.task && n.variant == site.variant;
        self.nodes.iter().filter(same).map(|n| n.multiplier).fold(0.0, f64::max)
    }
}

/// What one unit of flow through the last stage of `path` adds to the pipeline's accuracy: by task under `task_mean`, else
/// the whole path's at the sinks that end here (also those below a child at which nothing is made).
fn accuracy_of_flow(pipeline: &Pipeline, path: &[(TaskIndex, VariantIndex)]) -> f64 {
    let (task, variant) = path[path.len() - 1];
    if pipeline.accuracy_model == apportion_domain::AccuracyModel::TaskMean {
        return pipeline.variant(task, variant).accuracy / pipeline.tasks.len() as f64;
    }
    let mut weight = if pipeline.children(task).next().is_none() { pipeline.leaf_weight(task) } else { 0.0 };
    for edge in pipeline.children(task).filter(|e| pipeline.fanout(e, variant) <= 0.0) {
        weight += sinks_below(pipeline, edge.to);
    }
    if weight == 0.0 { 0.0 } else { weight * pipeline.path_accuracy(path) }
}

fn sinks_below(pipeline: &Pipeline, task: TaskIndex) -> f64 {
    let mut children = pipeline.children(task).peekable();
    if children.peek().is_none() {
        return pipeline.leaf_weight(task);
    }
    children.map(|e| sinks_below(pipeline, e.to)).sum()
}

fn sites(problem: &Problem, p: usize, tightenings: &[Tightening], best_only: bool) -> Vec<Site> {
    let pipeline = &problem.pipelines[p];
    let mut sites = Vec::new();
    for (t, task) in pipeline.tasks.iter().enumerate() {
        let t = TaskIndex(t);
        let best: Vec<_> = pipeline.most_accurate(t).collect();
        for (v, variant) in task.variants.iter().enumerate() {
            if best_only && !best.contains(&VariantIndex(v)) {
                continue;
            }
            for (hardware, share) in variant.profile.places() {
                let choices = choices(pipeline, variant.profile.on(hardware, share), tightenings[t.get()]);
                if problem.fits_memory(variant.memory_mib, hardware, share) && problem.hardware_at(hardware).count != Some(0) {
                    let variant = VariantIndex(v);
                    let same = |d: &&apportion_domain::Deployed| {
                        (d.pipeline.get(), d.task, d.variant, d.hardware, d.share) == (p, t, variant, hardware, share)
                    };
                    let deployed = problem.deployed.iter().filter(same).map(|d| d.replicas).sum();
                    sites.push(Site { pipeline: p, task: t, variant, hardware, share, choices, deployed });
                }
            }
        }
    }
    sites
}

/// The undominated batch sizes within the SLO.
fn choices(pipeline: &Pipeline, rows: &[apportion_domain::ProfileRow], tightening: Tightening) -> Vec<Choice> {
    let mut all: Vec<_> = rows
        .iter()
        .map(|r| Choice {
            batch: r.batch,
            charge_ms: pipeline.hop_charge_ms(r.latency_ms) + tightening.charge_ms,
            qps: r.throughput_qps(),
        })
        .filter(|c| c.charge_ms <= pipeline.slo_ms * (1.0 + SLACK))
        .collect();
    all.sort_by(|a, b| a.charge_ms.total_cmp(&b.charge_ms).then(b.qps.total_cmp(&a.qps)));
    let mut best = 0.0;
    all.retain(|c| {
        let keep = c.qps > best;
        best = f64::max(best, c.qps);
        keep
    });
    all
}

/// Drops what cannot be within the SLO whatever the other tasks do, until nothing changes.
fn drop_hopeless(pipeline: &Pipeline, sites: &mut Vec<Site>) -> Result<(), ()> {
    let mut fastest: BTreeMap<TaskIndex, f64> = BTreeMap::new();
    for site in sites.iter().filter(|s| !s.choices.is_empty()) {
        let charge = site.choices[0].charge_ms;
        fastest.entry(site.task).and_modify(|f| *f = f.min(charge)).or_insert(charge);
    }
    if fastest.len() < pipeline.tasks.len() {
        return Err(());
    }
    let own = |t: TaskIndex| fastest[&t];
    let mut before = vec![0.0_f64; pipeline.tasks.len()];
    let mut after = vec![0.0_f64; pipeline.tasks.len()];
    for &t in pipeline.order() {
        before[t.get()] = pipeline.edges_into(t).map(|e| before[e.from.get()] + own(e.from)).fold(0.0, f64::max);
    }
    for &t in pipeline.order().iter().rev() {
        after[t.get()] = pipeline.edges_from(t).map(|e| after[e.to.get()] + own(e.to)).fold(0.0, f64::max);
    }
    let room = |t: TaskIndex| (pipeline.slo_ms - before[t.get()] - after[t.get()]) * (1.0 + SLACK) + SLACK;
    if pipeline.order().iter().any(|&t| own(t) > room(t)) {
        return Err(());
    }
    for site in sites.iter_mut() {
        let room = room(site.task);
        site.choices.retain(|c| c.charge_ms <= room);
    }
    sites.retain(|s| !s.choices.is_empty());
    Ok(())
}

fn levels(sites: &[Site], task: TaskIndex) -> Vec<f64> {
    let charges = sites.iter().filter(|s| s.task == task).flat_map(|s| &s.choices).map(|c| c.charge_ms);
    let mut levels: Vec<f64> = charges.collect();
    levels.sort_by(f64::total_cmp);
    levels.dedup();
    levels
}
