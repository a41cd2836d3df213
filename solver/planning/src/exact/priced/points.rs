//! Which operating point does each group of a pipeline run at, and which prefixes may queries then take?
//!
//! Example: with 100 ms for `find` and 150 ms for `read`, `find-l` runs batch 4 and `read-m` runs batch 8. Given one point
//! for each group, replicas and flows are all that is left to choose.

use crate::exact::model::covers::nodes_in_time;
use crate::exact::model::space::PipelineSpace;
use apportion_domain::{LatencyRule, Pipeline};

/// One operating point for each group of a pipeline.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct GroupPoints {
    /// By group: the position of its point; `None` may not run.
    pub points: Vec<Option<usize>>,
    /// By node of the trie: whether queries may be there in time.
    pub open: Vec<bool>,
}

impl GroupPoints {
    /// The fastest throughput within these budgets, one for each task, in milliseconds.
    pub fn within(pipeline: &Pipeline, part: &PipelineSpace, budgets: &[f64]) -> Self {
        let points = part.groups.iter().map(|g| g.best_within(budgets[g.task.get()])).collect();
        Self::new(pipeline, part, points)
    }

    /// These points, by group.
    pub fn new(pipeline: &Pipeline, part: &PipelineSpace, points: Vec<Option<usize>>) -> Self {
        let runs = |lane: usize| part.lanes[lane].iter().any(|&g| points[g].is_some());
        let mut open: Vec<bool> = match part.rule {
            LatencyRule::TaskBudget => part.trie.nodes.iter().map(|n| runs(n.lane)).collect(),
            LatencyRule::Path => nodes_in_time(pipeline, &part.path_view(), &points),
        };
        // No query goes on below a closed prefix, also where it would be in time: another branch of the prefix is late.
        // Parents come first.
        for split in &part.trie.splits {
            if split.from.is_some_and(|from| !open[from]) {
                split.to.iter().for_each(|&n| open[n] = false);
            }
        }
        Self { points, open }
    }

    /// The time that each task takes at these points, in milliseconds.
    pub fn budgets(&self, part: &PipelineSpace) -> Vec<f64> {
        let mut budgets = vec![0.0_f64; part.levels.len()];
        for (group, point) in part.groups.iter().zip(&self.points) {
            if let Some(point) = point.filter(|_| !group.is_idle) {
                let own = &mut budgets[group.task.get()];
                *own = own.max(group.points[point].charge_ms);
            }
        }
        budgets
    }
}
