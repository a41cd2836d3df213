//! How is rule `path` solved for one pipeline on one kind of device? Most groups and batch sizes are excluded first.
//!
//! Example: the traffic pipeline has 12 variants with 60 batch sizes. At a load of 320 per second the relaxation says that
//! no plan is more accurate than 0.9715, and the best plan of rule `task_budget` reaches 0.9684. A replica of 30 of the 60
//! batch sizes would cost more than this distance. So they are in no better plan, and a small programme remains.
//!
//! 1. The best plan of rule `task_budget` keeps rule `path` too. It is the first incumbent.
//! 2. The relaxation gives a price for a replica and a bound ([`Configurations`]).
//! 3. Every batch size whose loss exceeds the distance of bound and incumbent is left out.
//! 4. The formulation over the rest is solved by our own branch and bound.
//! 5. The fewest replicas with this accuracy are found in the same way.

use super::configurations::Configurations;
use super::enumerate::{self, one_kind_of_device};
use super::solve::{StageResult, solve_stage};
use crate::exact::model::goal::{Goal, Stage};
use crate::exact::model::groups::Group;
use crate::exact::model::space::{PipelineSpace, Space};
use crate::exact::model::tightening::Tightening;
use crate::exact::model::tolerances::{ACCURACY_SLACK, STAGE_GAP_SHARE};
use crate::exact::solution::choice::{Choice, GroupChoice};
use apportion_domain::{LatencyRule, Problem};
use apportion_mip::Limits;

/// Prices at which losses are compared, as factors of the best one. Each excludes other batch sizes.
const PRICE_FACTORS: [f64; 3] = [1.0, 0.5, 2.0];

/// The search of one problem under rule `path`.
struct PathSearch<'a> {
    problem: &'a Problem,
    tightening: &'a Tightening,
    space: &'a Space,
    configurations: Configurations,
    devices: f64,
    gap: f64,
    limits: &'a Limits,
}

/// The highest accuracy, then the fewest replicas that keep it, under rule `path`. Value and bound are negated accuracies.
/// `None` if the problem has another rule, several pipelines or several kinds of devices, or if it is too large.
pub(crate) fn most_accurate(
    problem: &Problem,
    tightening: &Tightening,
    space: &Space,
    gap: f64,
    limits: &Limits,
) -> Option<StageResult> {
    let devices = one_kind_of_device(problem, space).filter(|devices| devices.is_finite())?;
    let part = &space.parts[0];
    if part.rule != LatencyRule::Path {
        return None;
    }
    let configurations = Configurations::new(problem.pipeline(part.index), part, limits)?;
    let search = PathSearch { problem, tightening, space, configurations, devices, gap, limits };
    Some(search.run())
}

impl PathSearch<'_> {
    fn run(&self) -> StageResult {
        let enough = self.devices + 1e-9 * self.devices.max(1.0);
        let Some(price) = self.configurations.price(|way| way.replicas > enough) else { return StageResult::Infeasible };
        let bound = self.configurations.value(price) + price * self.devices;
        let incumbent = self.most_accurate_within_budgets();
        let small = STAGE_GAP_SHARE * self.gap;
        let result = match &incumbent {
            Some((accuracy, _)) if bound <= accuracy * (1.0 + small) => None,
            _ => Some(self.beat(incumbent.as_ref().map(|(accuracy, _)| *accuracy), price)),
        };
        let (accuracy, choice, bound, stopped) = match (result, incumbent) {
            (Some(StageResult::Found { choice, value, bound: own, stopped }), _) => {
                (-value, choice, bound.min(-own), stopped)
            }
            (Some(StageResult::Unknown(reason)), Some((accuracy, choice))) => (accuracy, choice, bound, Some(reason)),
            // no plan beats the incumbent by more than the gap
            (_, Some((accuracy, choice))) => (accuracy, choice, bound.min(accuracy * (1.0 + small)), None),
            (Some(other), None) => return other,
            (None, None) => return StageResult::Infeasible,
        };
        self.limits.report_progress("accuracy", accuracy, bound);
        let choice = if stopped.is_none() { self.reduce_replicas(accuracy, choice) } else { choice };
        StageResult::Found { choice, value: -accuracy, bound: -bound.max(accuracy), stopped }
    }

    /// Searches for a plan that beats this accuracy by more than the gap.
    fn beat(&self, accuracy: Option<f64>, price: f64) -> StageResult {
        let least = accuracy.map_or(f64::NEG_INFINITY, |a| a * (1.0 + STAGE_GAP_SHARE * self.gap));
        let Some(narrow) = self.narrow(price, least, self.devices) else { return StageResult::Infeasible };
        let stage = Stage { is_narrow: true, ..Stage::new(Goal::Accuracy) };
        let result = solve_stage(self.problem, &narrow, stage, self.gap, self.limits, accuracy.map(|a| -a));
        self.widen(&narrow, result)
    }

    /// The fewest replicas with accuracy of at least `accuracy * (1 - 1e-6)`.
    fn reduce_replicas(&self, accuracy: f64, choice: Choice) -> Choice {
        let least = accuracy * (1.0 - ACCURACY_SLACK);
        let fewest = choice.replicas() as f64;
        let Some(price) = self.configurations.price(|way| way.accuracy >= least).filter(|&price| price > 0.0) else {
            return choice;
        };
        let replicas_min = (least - self.configurations.value(price)) / price;
        if (replicas_min - 1e-6).ceil() >= fewest {
            return choice;
        }
        let Some(narrow) = self.narrow(price, least, fewest - 1.0) else { return choice };
        let stage = Stage { accuracy_min: Some(least), is_narrow: true, ..Stage::new(Goal::Replicas) };
        let result = solve_stage(self.problem, &narrow, stage, 0.0, self.limits, Some(fewest));
        match self.widen(&narrow, result) {
            StageResult::Found { choice: other, .. } if other.replicas() < choice.replicas() => other,
            _ => choice,
        }
    }

    /// The space without the batch sizes that no plan of at least this accuracy and at most so many replicas has.
    /// `None` if no such plan exists, or if the time is up.
    fn narrow(&self, price: f64, accuracy: f64, replicas: f64) -> Option<Space> {
        let part = &self.space.parts[0];
        let mut keep: Vec<Vec<bool>> = part.groups.iter().map(|g| vec![true; g.points.len()]).collect();
        for factor in PRICE_FACTORS {
            let price = factor * price;
            let loss_max = self.configurations.value(price) + price * replicas - accuracy + 1e-9;
            let losses = self.configurations.losses(part, price);
            for (keep, loss) in keep.iter_mut().flatten().zip(losses.iter().flatten()) {
                *keep &= *loss <= loss_max;
            }
        }
        let kept = |(group, keep): (&Group, &Vec<bool>)| {
            let points = group.points.iter().zip(keep).filter(|(_, keep)| **keep).map(|(p, _)| *p).collect();
            Group { points, ..group.clone() }
        };
        let groups: Vec<Group> = part.groups.iter().zip(&keep).map(kept).filter(|g| !g.points.is_empty()).collect();
        let limits = self.limits.for_finishing();
        let narrow = Space::of_groups(self.problem, self.tightening, vec![groups], &limits).ok()?;
        let points = |space: &Space| space.parts[0].groups.iter().map(|g| g.points.len()).sum::<usize>();
        tracing::debug!(all = points(self.space), kept = points(&narrow), "batch sizes");
        Some(narrow)
    }

    /// The result of a search in a narrower space, in this one.
    fn widen(&self, narrow: &Space, result: StageResult) -> StageResult {
        match result {
            StageResult::Found { choice, value, bound, stopped } => {
                StageResult::Found { choice: self.translate(&narrow.parts[0], &choice), value, bound, stopped }
            }
            other => other,
        }
    }

    /// A choice over the groups of another space, over the groups of this one.
    fn translate(&self, from: &PipelineSpace, choice: &Choice) -> Choice {
        let of_group = |group: &Group| {
            let is_same = |other: &Group| {
                (other.task, other.variant, other.hardware, other.share)
                    == (group.task, group.variant, group.hardware, group.share)
            };
            let at = from.groups.iter().position(is_same)?;
            let chosen = choice.groups[0][at];
            let batch = from.groups[at].points[chosen.point].batch;
            let point = group.points.iter().position(|p| p.batch == batch)?;
            (chosen.replicas > 0).then_some(GroupChoice { replicas: chosen.replicas, point })
        };
        let groups = self.space.parts[0].groups.iter().map(|group| of_group(group).unwrap_or_default()).collect();
        Choice { groups: vec![groups] }
    }

    /// The best plan of rule `task_budget`, with its accuracy. It keeps rule `path` too.
    fn most_accurate_within_budgets(&self) -> Option<(f64, Choice)> {
        let problem = self.problem.changed(|d| d.objective.latency_rule = LatencyRule::TaskBudget).ok()?;
        let limits = self.limits.without_listener();
        let space = Space::new(&problem, self.tightening, &limits).ok()?;
        match enumerate::most_accurate(&problem, &space, self.gap, &limits)? {
            StageResult::Found { choice, value, .. } => Some((-value, self.translate(&space.parts[0], &choice))),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
