//! Which plan is known before the tree search begins?

use super::context::PathSearch;
use super::relaxation::{Bounds, Relaxed, RelaxedGoal};
use super::tree::{KnownPlan, solve_over};
use super::ways::BatchSizeOfGroup;
use crate::exact::model::goal::Goal;
use crate::exact::model::groups::FeasibleGroup;
use crate::exact::model::space::Space;
use crate::exact::stage::enumerate;
use crate::exact::stage::solve::StageResult;
use apportion_domain::LatencyRule;

impl PathSearch<'_> {
    /// The better one of two plans: the best plan over the batch sizes that the relaxation uses, and on one kind of device
    /// the most accurate plan of rule `task_budget`.
    pub(super) fn first_incumbent(&self, goal: RelaxedGoal, all: &[Bounds], root: &Relaxed) -> Option<KnownPlan> {
        if goal.goal == Goal::Accuracy
            && let Some(plan) = self.most_accurate_within_budgets()
        {
            return Some(plan);
        }
        let used = |at| root.stops.contains(&at);
        let of_relaxation = solve_over(self, goal, all, used, None).ok().and_then(|node| node.plan);
        of_relaxation.or_else(|| {
            // the smallest batch sizes leave the most time
            let used =
                |at: BatchSizeOfGroup| root.stops.iter().any(|stop| stop.group == at.group && at.point <= stop.point);
            solve_over(self, goal, all, used, None).ok().and_then(|node| node.plan)
        })
    }

    /// The most accurate plan of rule `task_budget`, if that search is fast. It keeps rule `path` too.
    fn most_accurate_within_budgets(&self) -> Option<KnownPlan> {
        let problem = self.problem.changed(|d| d.objective.latency_rule = LatencyRule::TaskBudget).ok()?;
        let limits = self.limits.without_listener();
        let groups: Vec<FeasibleGroup> = self.groups.to_vec();
        let space = Space::of_groups(&problem, self.tightening, vec![groups], &limits).ok()?;
        match enumerate::most_accurate(&problem, &space, self.effort.gap, &limits)? {
            StageResult::Found { choice, value, .. } => {
                Some(KnownPlan { cost: value, choice: self.translate(&space.parts[0], &choice) })
            }
            _ => None,
        }
    }
}
