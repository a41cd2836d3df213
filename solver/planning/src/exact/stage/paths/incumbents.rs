//! Which plan is known before the tree search begins?

use super::context::PathSearch;
use super::relaxation::{Bounds, Relaxed, RelaxedGoal};
use super::tree::{KnownPlan, solve_over};
use super::ways::BatchSizeOfGroup;
use crate::exact::model::goal::Goal;
use crate::exact::model::space::Space;
use crate::exact::stage::enumerate;
use crate::exact::stage::solve::StageResult;
use apportion_domain::LatencyRule;

/// Share of the time for the fast search of a large pipeline.
const LARGE_TIME_SHARE: f64 = 0.5;

/// A plan of rule `task_budget`.
struct PlanWithinBudgets {
    plan: KnownPlan,
    /// Whether no plan of that rule is better.
    is_optimum: bool,
}

impl PathSearch<'_> {
    /// The better one of two plans: that of rule `task_budget`, and the best plan over the batch sizes that the relaxation
    /// uses. The most accurate plan of rule `task_budget` is good enough by itself.
    pub(super) fn first_incumbent(&self, goal: RelaxedGoal, all: &[Bounds], root: &Relaxed) -> Option<KnownPlan> {
        let known = match self.plan_within_budgets(goal.goal) {
            Some(known) if known.is_optimum && goal.goal == Goal::Accuracy => return Some(known.plan),
            known => known.map(|known| known.plan),
        };
        let cost = known.as_ref().map(|plan| plan.cost);
        let used = |at| root.stops.contains(&at);
        let of_relaxation = solve_over(self, goal, all, used, cost).ok().and_then(|node| node.plan);
        of_relaxation.or(known).or_else(|| {
            // the smallest batch sizes leave the most time
            let used =
                |at: BatchSizeOfGroup| root.stops.iter().any(|stop| stop.group == at.group && at.point <= stop.point);
            solve_over(self, goal, all, used, None).ok().and_then(|node| node.plan)
        })
    }

    /// The best plan of rule `task_budget` on one kind of device, or that of the fast search of large pipelines. `None` for
    /// other problems, and without a plan.
    fn plan_within_budgets(&self, goal: Goal) -> Option<PlanWithinBudgets> {
        let problem = self.problem.changed(|d| d.objective.latency_rule = LatencyRule::TaskBudget).ok()?;
        let (gap, limits) = (self.effort.gap, self.limits.without_listener());
        let space = Space::of_groups(&problem, self.tightening, vec![self.groups.to_vec()], &limits).ok()?;
        let best = match goal {
            Goal::Accuracy => enumerate::most_accurate(&problem, &space, gap, &limits),
            _ => enumerate::least_cost(&problem, &space, gap, &limits),
        };
        let (choice, cost, is_optimum) = match best {
            Some(StageResult::Found { choice, value, stopped, .. }) => {
                let cost = if goal == Goal::Replicas { choice.replicas() as f64 } else { value };
                (choice, cost, stopped.is_none())
            }
            Some(_) => return None,
            // a search of bounded effort looks at no clock
            None if self.effort.nodes_max.is_some() => return None,
            None => {
                let limits = limits.with_share_of_time(LARGE_TIME_SHARE);
                let (choice, cost) = (self.plan_large)(&problem, &space, goal, gap, &limits)?;
                (choice, cost, false)
            }
        };
        let choice = self.translate(&space.parts[0], &choice);
        Some(PlanWithinBudgets { plan: KnownPlan { cost, choice }, is_optimum })
    }
}
