//! Which share of the traffic takes which path of groups: as the plan says, or in proportion to capacity.

use crate::resolve::{Group, Key, Part};
use crate::{Finding, TOLERANCE, differ};
use apportion_domain::{Flow, GroupName, TaskIndex};
use std::collections::BTreeMap;

/// Shares of root queries by path prefix (from the root on); every prefix with traffic is there.
pub(crate) type Flows = BTreeMap<Vec<Key>, f64>;

/// Most prefixes that are followed for a plan without flows.
const PREFIXES_MAX: usize = 1_000_000;

/// The flows of a part; what is wrong with them is a finding.
pub(crate) fn of(part: &Part<'_>, findings: &mut Vec<Finding>) -> Flows {
    if part.plan.flows.is_empty() {
        let mut flows = Flows::new();
        spread(part, part.pipeline.root(), &mut Vec::new(), 1.0, &mut flows);
        return flows;
    }
    let mut by_end: BTreeMap<(TaskIndex, Vec<Key>), f64> = BTreeMap::new();
    for flow in &part.plan.flows {
        match keys(part, flow) {
            Ok(path) => *by_end.entry((path[path.len() - 1].0, path)).or_default() += flow.share,
            Err(evidence) => findings.push(Finding::new("flow", part.place(path_text(flow)), evidence)),
        }
    }
    let mut flows = Flows::new();
    for sink in part.pipeline.sinks() {
        let paths = paths_to(part, &by_end, sink);
        check_sink(part, sink, &paths, &flows, findings);
        for (prefix, share) in prefixes(&paths) {
            flows.entry(prefix).or_insert(share);
        }
    }
    flows
}

/// Every path that ends at `sink`, or earlier on the way to it because nothing is made there.
fn paths_to(part: &Part<'_>, by_end: &BTreeMap<(TaskIndex, Vec<Key>), f64>, sink: TaskIndex) -> Flows {
    let way = way_to(part, sink);
    let on_way = |path: &[Key]| {
        let follows = path.iter().map(|k| k.0).eq(way.iter().copied().take(path.len()));
        follows && (path.len() == way.len() || ends(part, path[path.len() - 1], way[path.len()]))
    };
    by_end.iter().filter(|((_, path), _)| on_way(path)).map(|((_, path), &share)| (path.clone(), share)).collect()
}

/// The tasks from the root to `sink` along the edges that make queries.
fn way_to(part: &Part<'_>, sink: TaskIndex) -> Vec<TaskIndex> {
    let mut way = vec![sink];
    while let Some(edge) = part.pipeline.primary_parent(way[way.len() - 1]) {
        way.push(edge.from);
    }
    way.reverse();
    way
}

/// Whether queries of `key` make none at `child`.
fn ends(part: &Part<'_>, key: Key, child: TaskIndex) -> bool {
    part.pipeline.children(key.0).filter(|e| e.to == child).all(|e| part.pipeline.fanout(e, key.1) <= 0.0)
}

fn prefixes(paths: &Flows) -> Flows {
    let mut all = Flows::new();
    for (path, share) in paths {
        for n in 1..=path.len() {
            *all.entry(path[..n].to_vec()).or_default() += share;
        }
    }
    all
}

fn check_sink(part: &Part<'_>, sink: TaskIndex, paths: &Flows, others: &Flows, findings: &mut Vec<Finding>) {
    let name = &part.pipeline.task(sink).name;
    let total: f64 = paths.values().sum();
    if differ(total, 1.0) {
        findings.push(Finding::new("flow", part.place(name), format!("the shares of the paths to it sum to {total}, not 1")));
    }
    for (path, &share) in paths {
        if !(share >= -TOLERANCE && share <= 1.0 + TOLERANCE) {
            findings.push(Finding::new("flow", part.place(name), format!("a path of {} stages has share {share}", path.len())));
        }
    }
    for (prefix, share) in prefixes(paths) {
        if let Some(&other) = others.get(&prefix).filter(|&&other| differ(other, share)) {
            let evidence = format!("a prefix of {} stages carries {share} here and {other} to another sink", prefix.len());
            findings.push(Finding::new("flow", part.place(name), evidence));
        }
    }
}

fn keys(part: &Part<'_>, flow: &Flow) -> Result<Vec<Key>, String> {
    let key = |name: &GroupName| part.groups.iter().find(|g| &g.assignment.group == name).map(|g| g.key);
    let missing = |name: &GroupName| format!("group {name} has no replicas");
    let path: Vec<Key> = flow.path.iter().map(|n| key(n).ok_or_else(|| missing(n))).collect::<Result<_, _>>()?;
    let starts = path.first().is_some_and(|k| k.0 == part.pipeline.root());
    let follows = path.windows(2).all(|w| part.pipeline.children(w[0].0).any(|e| e.to == w[1].0));
    if starts && follows { Ok(path) } else { Err("the path does not follow edges from the root".to_owned()) }
}

fn path_text(flow: &Flow) -> String {
    flow.path.iter().map(ToString::to_string).collect::<Vec<_>>().join(" > ")
}

/// Splits a prefix's traffic over the groups of `task` in proportion to their capacity, and so on below.
fn spread(part: &Part<'_>, task: TaskIndex, prefix: &mut Vec<Key>, share: f64, flows: &mut Flows) {
    let capacity = |g: &Group<'_>| f64::from(g.assignment.replicas) * g.row.throughput_qps();
    let groups: Vec<_> = part.groups.iter().filter(|g| g.key.0 == task).collect();
    let total: f64 = groups.iter().map(|g| capacity(g)).sum();
    for group in groups {
        if total <= 0.0 || flows.len() >= PREFIXES_MAX {
            return;
        }
        prefix.push(group.key);
        let part_share = share * capacity(group) / total;
        flows.insert(prefix.clone(), part_share);
        for edge in part.pipeline.children(task) {
            if part.pipeline.fanout(edge, group.key.1) > 0.0 {
                spread(part, edge.to, prefix, part_share, flows);
            }
        }
        prefix.pop();
    }
}

/// Queries per root query that reach the last group of a prefix.
pub(crate) fn multiplier(part: &Part<'_>, prefix: &[Key]) -> f64 {
    let made = |w: &[Key]| part.pipeline.children(w[0].0).find(|e| e.to == w[1].0).map_or(0.0, |e| part.pipeline.fanout(e, w[0].1));
    prefix.windows(2).map(made).product()
}
