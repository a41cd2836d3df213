//! Where do the queries go? The load of every group, and the accuracy of all paths together.

use crate::compare::{CLAIM_SLACK, at_most};
use crate::finding::Finding;
use crate::groups::{ResolvedGroup, ResolvedGroups};
use crate::rules;
use apportion_domain::{AccuracyModel, Edge, GroupName, Pipeline, PipelinePlan, SLACK, TaskIndex, VariantIndex};
use std::collections::{BTreeMap, BTreeSet};

/// Most stages of all prefixes of a plan without flows whose accuracies are added up one by one.
const PREFIX_STAGES_MAX: usize = 2_000_000;

/// Traffic of one pipeline's part of a plan.
pub(crate) struct Traffic {
    /// Queries per second at each group.
    pub load_qps: Vec<f64>,
    /// Share of its task's root shares that each group carries: the sum of f over prefixes that end there.
    pub share: Vec<f64>,
    /// The accuracy of the pipeline.
    pub accuracy: f64,
}

impl Traffic {
    /// Load at most `(replicas - survive) * q`; a group without traffic needs none.
    pub fn check_capacity(&self, pipeline: &Pipeline, groups: &ResolvedGroups<'_>, findings: &mut Vec<Finding>) {
        for (g, group) in groups.groups.iter().enumerate() {
            let load = self.load_qps[g];
            let capacity = f64::from(group.replicas.saturating_sub(pipeline.survive)) * group.replica_qps;
            if !at_most(load, capacity) {
                let spare = if pipeline.survive > 0 { format!(" less {}", pipeline.survive) } else { String::new() };
                let evidence = format!(
                    "load {load:.6} queries/s, but {}{spare} replicas of {:.6} serve {capacity:.6}",
                    group.replicas, group.replica_qps
                );
                findings.push(Finding::new(rules::CAPACITY, groups.place(group.name), evidence));
            }
        }
        for t in (0..pipeline.tasks.len()).map(TaskIndex) {
            let missing = groups.of(t).next().is_none() && self.reaches(pipeline, groups, t);
            if missing {
                let place = format!("{}/{}", pipeline.name, pipeline.task(t).name);
                findings.push(Finding::new(rules::MISSING_TASK, place, "queries reach the task and it has no group"));
            }
        }
    }

    /// Whether any group with traffic makes queries at `task`.
    fn reaches(&self, pipeline: &Pipeline, groups: &ResolvedGroups<'_>, task: TaskIndex) -> bool {
        match pipeline.primary_parent(task) {
            None => true,
            Some(edge) => {
                groups.of(edge.from).any(|(g, group)| self.share[g] > 0.0 && pipeline.fanout(edge, group.variant) > 0.0)
            }
        }
    }
}

/// The traffic of a part, by its flows or in proportion to capacity. `None` with findings if its flows are not valid.
pub(crate) fn traffic(
    pipeline: &Pipeline,
    part: &PipelinePlan,
    groups: &ResolvedGroups<'_>,
    findings: &mut Vec<Finding>,
) -> Option<Traffic> {
    let trie = if part.flows.is_empty() {
        Trie::in_proportion(pipeline, groups, findings)?
    } else {
        Trie::of_flows(pipeline, part, groups, findings)?
    };
    Some(trie.traffic(pipeline, groups))
}

/// A prefix of group positions, from the root on.
type Prefix = Vec<usize>;

/// A prefix, or a whole path, with its share of the root's queries.
struct PathShare {
    path: Prefix,
    share: f64,
}

/// Root shares f(prefix) of all prefixes that carry traffic.
struct Trie {
    shares: BTreeMap<Prefix, f64>,
}

impl Trie {
    /// Each task's traffic in proportion to `replicas * q`, for all prefixes alike.
    fn in_proportion(pipeline: &Pipeline, groups: &ResolvedGroups<'_>, findings: &mut Vec<Finding>) -> Option<Trie> {
        let mut fractions = vec![0.0; groups.groups.len()];
        for t in (0..pipeline.tasks.len()).map(TaskIndex) {
            let capacity = |g: &ResolvedGroup<'_>| f64::from(g.replicas) * g.replica_qps;
            let total: f64 = groups.of(t).map(|(_, g)| capacity(g)).sum();
            groups.of(t).for_each(|(i, g)| fractions[i] = capacity(g) / total);
        }
        let mut shares = BTreeMap::new();
        let root = groups.of(pipeline.root());
        let mut open: Vec<PathShare> = root.map(|(i, _)| PathShare { path: vec![i], share: fractions[i] }).collect();
        let mut stages = 0;
        while let Some(PathShare { path: prefix, share }) = open.pop() {
            stages += prefix.len();
            if stages > PREFIX_STAGES_MAX {
                let evidence =
                    format!("paths of groups with more than {PREFIX_STAGES_MAX} stages: the plan must list its flows");
                findings.push(Finding::new(rules::FLOW_PATH, &pipeline.name, evidence));
                return None;
            }
            let last = &groups.groups[prefix[prefix.len() - 1]];
            for edge in pipeline.children(last.task).filter(|e| pipeline.fanout(e, last.variant) > 0.0) {
                for (i, _) in groups.of(edge.to) {
                    let longer = [prefix.as_slice(), &[i]].concat();
                    open.push(PathShare { path: longer, share: share * fractions[i] });
                }
            }
            shares.insert(prefix, share);
        }
        Some(Trie { shares })
    }

    /// The shares of the flows. The shares of a prefix must agree for all sinks.
    fn of_flows(
        pipeline: &Pipeline,
        part: &PipelinePlan,
        groups: &ResolvedGroups<'_>,
        findings: &mut Vec<Finding>,
    ) -> Option<Trie> {
        let before = findings.len();
        let mut paths: Vec<PathShare> = Vec::new();
        for flow in &part.flows {
            let shown = || flow.path.iter().map(ToString::to_string).collect::<Vec<_>>().join(" > ");
            match resolve_path(pipeline, groups, &flow.path) {
                Ok(path) if flow.share >= -SLACK && flow.share.is_finite() => {
                    paths.push(PathShare { path, share: flow.share });
                }
                Ok(_) => {
                    let evidence = format!("{} is no share", flow.share);
                    findings.push(Finding::new(rules::FLOW_PATH, format!("{}: {}", part.name, shown()), evidence));
                }
                Err(bad) => {
                    let place = format!("{}: {}", part.name, shown());
                    findings.push(Finding::new(rules::FLOW_PATH, place, bad.to_string()));
                }
            }
        }
        if findings.len() > before {
            return None;
        }
        let mut trie = Trie { shares: BTreeMap::new() };
        for sink in pipeline.sinks() {
            trie.add_sink(pipeline, groups, sink, &paths, findings);
        }
        (findings.len() == before).then_some(trie)
    }

    /// Sums one sink's paths by prefix. Compares the sums with the shares of the same prefixes on the way to other sinks.
    fn add_sink(
        &mut self,
        pipeline: &Pipeline,
        groups: &ResolvedGroups<'_>,
        sink: TaskIndex,
        paths: &[PathShare],
        findings: &mut Vec<Finding>,
    ) {
        let route = route_to(pipeline, sink);
        let mut own: BTreeMap<Prefix, f64> = BTreeMap::new();
        let mut total = 0.0;
        for PathShare { path, share } in paths.iter().filter(|p| serves(pipeline, groups, &route, &p.path)) {
            total += share;
            for end in 1..=path.len() {
                *own.entry(path[..end].to_vec()).or_default() += share;
            }
        }
        if (total - 1.0).abs() > CLAIM_SLACK {
            let place = format!("{}/{}", pipeline.name, pipeline.task(sink).name);
            findings.push(Finding::new(rules::FLOW_SHARES, place, format!("the shares sum to {total}, not to 1")));
        }
        let seen: BTreeSet<TaskIndex> =
            self.shares.keys().map(|p| groups.groups[p[p.len() - 1]].task).filter(|t| route.contains(t)).collect();
        for (prefix, &share) in &own {
            let task = groups.groups[prefix[prefix.len() - 1]].task;
            let other = self.shares.get(prefix).copied().unwrap_or(if seen.contains(&task) { 0.0 } else { share });
            if (other - share).abs() > CLAIM_SLACK {
                let names: Vec<_> = prefix.iter().map(|&g| groups.groups[g].name.to_string()).collect();
                let place = format!("{}: {}", pipeline.name, names.join(" > "));
                let evidence = format!("carries {share} on the way to {}, {other} otherwise", pipeline.task(sink).name);
                findings.push(Finding::new(rules::FLOW_PREFIX, place, evidence));
            }
        }
        for (prefix, share) in own {
            self.shares.entry(prefix).or_insert(share);
        }
    }

    /// Loads, shares and accuracy.
    fn traffic(&self, pipeline: &Pipeline, groups: &ResolvedGroups<'_>) -> Traffic {
        let mut load_qps = vec![0.0; groups.groups.len()];
        let mut share_of = vec![0.0; groups.groups.len()];
        let mut accuracy = 0.0;
        for (prefix, &share) in &self.shares {
            let last = prefix[prefix.len() - 1];
            load_qps[last] += pipeline.demand_qps * share * multiplier(pipeline, groups, prefix);
            share_of[last] += share;
            accuracy += share * accuracy_weight(pipeline, groups, prefix);
        }
        Traffic { load_qps, share: share_of, accuracy }
    }
}

/// Why a flow's path is not a path of the pipeline.
#[derive(Debug, thiserror::Error)]
enum BadPath {
    #[error("the plan has no group {0}")]
    UnknownGroup(GroupName),
    #[error("starts at {0:?}, not at the root")]
    NotFromRoot(String),
    #[error("no edge makes queries of {from:?} at {to:?}")]
    NoEdge { from: String, to: String },
    #[error("{from} makes no queries at {to:?}")]
    NoQueries { from: GroupName, to: String },
    #[error("an empty path")]
    Empty,
    #[error("stops at {0}, which makes queries at every child")]
    StopsEarly(GroupName),
}

/// The group positions of a flow's path.
fn resolve_path(pipeline: &Pipeline, groups: &ResolvedGroups<'_>, path: &[GroupName]) -> Result<Prefix, BadPath> {
    let mut prefix = Prefix::new();
    for name in path {
        let position = groups.position(name).ok_or_else(|| BadPath::UnknownGroup(name.clone()))?;
        let task = groups.groups[position].task;
        match prefix.last().map(|&g| &groups.groups[g]) {
            None if task != pipeline.root() => return Err(BadPath::NotFromRoot(name.task.clone())),
            None => {}
            Some(parent) => {
                let Some(edge) = pipeline.children(parent.task).find(|e| e.to == task) else {
                    return Err(BadPath::NoEdge { from: parent.name.task.clone(), to: name.task.clone() });
                };
                if pipeline.fanout(edge, parent.variant) <= 0.0 {
                    return Err(BadPath::NoQueries { from: parent.name.clone(), to: name.task.clone() });
                }
            }
        }
        prefix.push(position);
    }
    let Some(&last) = prefix.last() else { return Err(BadPath::Empty) };
    let last = &groups.groups[last];
    let mut children = pipeline.children(last.task).peekable();
    if children.peek().is_some() && !children.any(|e| pipeline.fanout(e, last.variant) <= 0.0) {
        return Err(BadPath::StopsEarly(last.name.clone()));
    }
    Ok(prefix)
}

/// The tasks from the root to `sink` along the edges that make queries.
fn route_to(pipeline: &Pipeline, sink: TaskIndex) -> Vec<TaskIndex> {
    let mut route = vec![sink];
    while let Some(edge) = pipeline.primary_parent(route[route.len() - 1]) {
        route.push(edge.from);
    }
    route.reverse();
    route
}

/// Whether a path counts for the sink at the end of `route`. It ends at the sink, or at a variant that makes no queries
/// towards the sink.
fn serves(pipeline: &Pipeline, groups: &ResolvedGroups<'_>, route: &[TaskIndex], path: &[usize]) -> bool {
    let on_route = path.len() <= route.len() && path.iter().zip(route).all(|(&g, &t)| groups.groups[g].task == t);
    on_route
        && (path.len() == route.len() || {
            let last = &groups.groups[path[path.len() - 1]];
            let next = route[path.len()];
            pipeline.children(last.task).any(|e| e.to == next && pipeline.fanout(e, last.variant) <= 0.0)
        })
}

/// Queries at the last stage of a prefix for one query of the root: the product over its **ancestors**. Loki's equation 1
/// also has the node's own factor.
fn multiplier(pipeline: &Pipeline, groups: &ResolvedGroups<'_>, prefix: &[usize]) -> f64 {
    let step = |pair: &[usize]| {
        let (parent, child) = (&groups.groups[pair[0]], &groups.groups[pair[1]]);
        let edge = pipeline.children(parent.task).find(|e| e.to == child.task);
        edge.map_or(0.0, |e| pipeline.fanout(e, parent.variant))
    };
    prefix.windows(2).map(step).product()
}

/// The accuracy that one unit of f(prefix) adds to the pipeline.
fn accuracy_weight(pipeline: &Pipeline, groups: &ResolvedGroups<'_>, prefix: &[usize]) -> f64 {
    let stages: Vec<(TaskIndex, VariantIndex)> =
        prefix.iter().map(|&g| (groups.groups[g].task, groups.groups[g].variant)).collect();
    let (task, variant) = stages[stages.len() - 1];
    if pipeline.accuracy_model == AccuracyModel::TaskMean {
        return pipeline.variant(task, variant).accuracy / pipeline.tasks.len() as f64;
    }
    let mut ended: Vec<TaskIndex> =
        pipeline.children(task).filter(|e: &&Edge| pipeline.fanout(e, variant) <= 0.0).map(|e| e.to).collect();
    if pipeline.children(task).next().is_none() {
        ended.push(task);
    }
    let weight: f64 = ended.iter().map(|&t| weight_below(pipeline, t)).sum();
    if weight > 0.0 { weight * pipeline.path_accuracy(&stages) } else { 0.0 }
}

/// Leaf weights of all sinks at or below a task.
fn weight_below(pipeline: &Pipeline, task: TaskIndex) -> f64 {
    let mut children = pipeline.children(task).peekable();
    if children.peek().is_none() {
        return pipeline.leaf_weight(task);
    }
    children.map(|e| weight_below(pipeline, e.to)).sum()
}
