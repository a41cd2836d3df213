//! What does every part of the search know, and how does it narrow the problem?

use super::relaxation::Bounds;
use super::ways::{BatchSizeOfGroup, TaskPlace, Ways};
use crate::exact::model::goal::{Goal, ReplicaRange, SearchEffort};
use crate::exact::model::groups::{FeasibleGroup, is_same_group};
use crate::exact::model::space::{PipelineSpace, Space, SpaceError};
use crate::exact::model::tightening::Tightening;
use crate::exact::model::tolerances::STAGE_GAP_SHARE;
use crate::exact::solution::choice::{GroupChoice, PlanIntegers};
use apportion_domain::Problem;
use apportion_mip::RunLimits;

/// A fast search of one large pipeline under rule `task_budget`: a choice with its cost. `None` for small pipelines, and if
/// it finds no plan.
pub(crate) type LargePlanner = fn(&Problem, &Space, Goal, f64, &RunLimits) -> Option<(PlanIntegers, f64)>;

/// The search of one pipeline under rule `path`.
pub(super) struct PathSearch<'a> {
    pub problem: &'a Problem,
    pub tightening: &'a Tightening,
    pub groups: &'a [FeasibleGroup],
    pub ways: &'a Ways,
    /// By place: most replicas that can be useful.
    pub replicas_max: &'a [f64],
    pub effort: SearchEffort,
    pub plan_large: LargePlanner,
    pub limits: &'a RunLimits,
}

impl PathSearch<'_> {
    /// The same bounds, as conditions of a formulation.
    pub fn ranges(&self, bounds: &[Bounds]) -> Vec<ReplicaRange> {
        let range = |(place, of): (&TaskPlace, &Bounds)| ReplicaRange {
            task: place.task,
            hardware: place.hardware,
            share: place.share,
            least: of.least,
            most: of.most,
        };
        self.ways.places.iter().zip(bounds).map(range).collect()
    }

    /// The distance of cost that counts as none.
    pub fn margin(&self, goal: Goal, cost: f64) -> f64 {
        // every plan has a whole number of replicas
        if goal == Goal::Replicas { 1.0 - 1e-6 } else { STAGE_GAP_SHARE * self.effort.gap * cost.abs() }
    }

    /// The space of the batch sizes to keep, by group and point. Idle groups keep all of theirs, because no way uses them.
    pub fn narrow(&self, keep: impl Fn(BatchSizeOfGroup) -> bool) -> Result<Space, SpaceError> {
        let kept = |(g, group): (usize, &FeasibleGroup)| {
            let points = group.points.iter().enumerate();
            let points = points.filter(|&(point, _)| group.is_idle || keep(BatchSizeOfGroup { group: g, point }));
            FeasibleGroup { points: points.map(|(_, at)| *at).collect(), ..group.clone() }
        };
        let groups = self.groups.iter().enumerate().map(kept).filter(|g| !g.points.is_empty()).collect();
        Space::of_groups(self.problem, self.tightening, vec![groups], &self.limits.for_finishing())
    }

    /// A choice over the groups of another space, over all groups.
    pub fn translate(&self, from: &PipelineSpace, choice: &PlanIntegers) -> Vec<GroupChoice> {
        let of_group = |group: &FeasibleGroup| {
            let at = from.groups.iter().position(|other| is_same_group(group, other))?;
            let chosen = choice.groups[0][at];
            let batch = from.groups[at].points.get(chosen.point)?.batch;
            let point = group.points.iter().position(|p| p.batch == batch)?;
            (chosen.replicas > 0).then_some(GroupChoice { replicas: chosen.replicas, point })
        };
        self.groups.iter().map(|group| of_group(group).unwrap_or_default()).collect()
    }
}
