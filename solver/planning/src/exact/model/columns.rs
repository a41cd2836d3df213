//! Which columns does the formulation have?

use super::groups::FeasibleGroup;
use super::space::PipelineSpace;
use apportion_domain::{LatencyRule, Problem, SLACK};
use apportion_mip::{ColumnId, Formulation};

/// Columns of one pipeline.
pub(crate) struct PartColumns {
    /// Share f of root queries by trie node.
    pub flow: Vec<ColumnId>,
    /// Replicas X of each group.
    pub replicas: Vec<ColumnId>,
    /// Replicas n of each group by point, continuous. With given budgets: one column if replicas may be lost, else none.
    pub running: Vec<Vec<ColumnId>>,
    /// Whether a group is used, where replicas may be lost (`survive > 0`).
    pub used: Vec<Option<ColumnId>>,
    /// Which budget each task has: binaries over its levels; empty with given budgets and under rule `path`.
    pub level: Vec<Vec<ColumnId>>,
    /// Rule `path`: which batch each group runs, binaries over its points; empty under rule `task_budget`.
    pub batch: Vec<Vec<ColumnId>>,
    /// With given budgets, the point that each group runs at.
    pub fixed: Option<Vec<Option<usize>>>,
}

/// Columns of the whole formulation.
pub(crate) struct Columns {
    pub parts: Vec<PartColumns>,
    /// Whole devices by hardware type, where anything is said about them; integer only where shares are mixed.
    pub devices: Vec<ColumnId>,
}

/// The largest load that a group can get.
pub(crate) fn load_max(part: &PipelineSpace, group: &FeasibleGroup) -> f64 {
    let of_group = part.trie.nodes.iter().filter(|n| n.lane == group.lane);
    if part.trie.merged {
        return of_group.map(|n| n.load_qps).sum();
    }
    // Shares of one task's prefixes sum to at most 1, so the largest load is that of its costliest prefix.
    of_group.map(|n| n.load_qps).fold(0.0, f64::max)
}

/// Most replicas of a group that can be useful at a point of throughput `qps`, within the device counts.
pub(crate) fn replicas_max(problem: &Problem, part: &PipelineSpace, group: &FeasibleGroup, qps: f64) -> f64 {
    let pipeline = problem.pipeline(part.index);
    let needed = (load_max(part, group) / qps - SLACK).ceil().max(1.0) + f64::from(pipeline.survive);
    let needed = needed.max(f64::from(pipeline.task(group.task).min_replicas));
    match problem.hardware_at(group.hardware).count {
        Some(count) => needed.min(f64::from(count) / group.share.value()),
        None => needed,
    }
}

/// Adds the columns of one pipeline.
pub(crate) fn add_part(
    problem: &Problem,
    part: &PipelineSpace,
    budgets: Option<&[f64]>,
    formulation: &mut Formulation,
) -> PartColumns {
    let fixed: Option<Vec<Option<usize>>> =
        budgets.map(|b| part.groups.iter().map(|g| g.best_within(b[g.task.get()])).collect());
    let survive = problem.pipeline(part.index).survive;
    let flow = part.trie.nodes.iter().map(|_| formulation.continuous(0.0, 1.0)).collect();
    let mut columns =
        PartColumns { flow, replicas: vec![], running: vec![], used: vec![], level: vec![], batch: vec![], fixed };
    for (g, group) in part.groups.iter().enumerate() {
        let slowest = match &columns.fixed {
            Some(fixed) => fixed[g],
            None => Some(0),
        };
        let most = slowest.map_or(0.0, |p| replicas_max(problem, part, group, group.points[p].qps));
        columns.replicas.push(formulation.integer(0.0, most));
        columns.used.push((survive > 0).then(|| formulation.integer(0.0, 1.0)));
        if columns.fixed.is_some() {
            // if no loss must be survived, every replica counts
            let counted = (survive > 0).then(|| formulation.continuous(0.0, most));
            columns.running.push(counted.into_iter().collect());
        } else {
            columns.running.push(group.points.iter().map(|_| formulation.continuous(0.0, most)).collect());
        }
    }
    if columns.fixed.is_none() && part.rule == LatencyRule::Path {
        let batches = part.groups.iter().map(|g| g.points.iter().map(|_| formulation.integer(0.0, 1.0)).collect());
        columns.batch = batches.collect();
    } else if columns.fixed.is_none() {
        columns.level =
            part.levels.iter().map(|levels| levels.iter().map(|_| formulation.integer(0.0, 1.0)).collect()).collect();
    }
    columns
}
