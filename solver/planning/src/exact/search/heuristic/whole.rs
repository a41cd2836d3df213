//! Is there a better plan than the best one? The whole formulation decides, within its counted work.
//!
//! Example: the best plan costs 8.40 per hour. The formulation is solved with the condition that a plan costs less. Either
//! HiGHS finds such a plan, or it proves that there is none, or its work ends.

use crate::exact::model::bounds::is_maximised;
use crate::exact::model::goal::{Goal, Stage};
use crate::exact::model::space::Space;
use crate::exact::model::tightening::Tightening;
use crate::exact::model::tolerances::{ACCURACY_SLACK, STAGE_GAP_SHARE};
use crate::exact::priced::{GAP, PricedSearch};
use crate::exact::solution::choice::PlanIntegers;
use crate::exact::solution::finish::{LastValues, finish};
use crate::exact::solution::found::BestFound;
use crate::exact::stage::solve::{StageResult, solve_stage};
use apportion_domain::{Mode, ObjectiveStep, Problem};
use apportion_mip::RunLimits;

/// The cost of a plan by its goal, to be beaten. Other plans cost less by more than the gap, or by a whole replica.
pub(super) fn cost_to_beat(problem: &Problem, best: &BestFound) -> f64 {
    match best.step {
        Some(ObjectiveStep::Hardware) => best.value,
        Some(ObjectiveStep::Accuracy) | None => {
            let sign = if is_maximised(problem, best.step) { -1.0 } else { 1.0 };
            sign * best.value - (STAGE_GAP_SHARE * GAP * best.value.abs()).max(1e-9)
        }
    }
}

/// A plan that is better than `best`, or `best` with the proof that there is none. `NotFound` if the work ends before.
pub(super) fn better_plan_of_whole(
    problem: &Problem,
    tightening: &Tightening,
    best: &BestFound,
    limits: &RunLimits,
) -> PricedSearch {
    let of = WholeSearch { problem, tightening, limits };
    let to_beat = cost_to_beat(problem, best);
    let found = match best.step {
        Some(ObjectiveStep::Hardware) => of.in_step(best.step, Some(to_beat)),
        // any plan of the first step is better than one of the second
        Some(ObjectiveStep::Accuracy) => match of.in_step(Some(ObjectiveStep::Hardware), None) {
            PricedSearch::Found(first) => PricedSearch::Found(first),
            PricedSearch::Infeasible | PricedSearch::NotFound => of.in_step(best.step, Some(to_beat)),
        },
        None => of.in_step(None, Some(to_beat)),
    };
    match found {
        PricedSearch::Infeasible => {
            let sign = if is_maximised(problem, best.step) { -1.0 } else { 1.0 };
            PricedSearch::Found(Box::new(BestFound { bound: sign * to_beat, ..best.clone() }))
        }
        found => found,
    }
}

/// The whole formulation of a problem.
struct WholeSearch<'a> {
    problem: &'a Problem,
    tightening: &'a Tightening,
    limits: &'a RunLimits,
}

impl WholeSearch<'_> {
    /// A plan of a step, if one costs less than the cost to beat.
    fn in_step(&self, step: Option<ObjectiveStep>, to_beat: Option<f64>) -> PricedSearch {
        let &Self { problem, tightening, limits } = self;
        let space = match step {
            Some(ObjectiveStep::Hardware) => Space::of_most_accurate(problem, tightening, limits),
            Some(ObjectiveStep::Accuracy) | None => Space::new(problem, tightening, limits),
        };
        let Ok(space) = space else { return PricedSearch::NotFound };
        let goal = Goal::of_step(problem.objective.mode, step);
        match solve_stage(problem, &space, Stage::new(goal), GAP, limits, to_beat) {
            StageResult::Found { choice, value, bound, .. } => {
                let choice = self.with_second_goal(&space, step, choice, value);
                let bound = if is_maximised(problem, step) { -bound } else { bound };
                PricedSearch::found_or_not(finish(problem, space, choice, LastValues { step, bound }, limits))
            }
            StageResult::Infeasible => PricedSearch::Infeasible,
            StageResult::Unknown(_) => PricedSearch::NotFound,
        }
    }

    /// Among the plans of the same accuracy, one that costs less or has fewer replicas.
    fn with_second_goal(
        &self,
        space: &Space,
        step: Option<ObjectiveStep>,
        choice: PlanIntegers,
        value: f64,
    ) -> PlanIntegers {
        let goal = match (self.problem.objective.mode, step) {
            (Mode::MaxAccuracy, _) => Goal::Cost,
            (Mode::HardwareThenAccuracy, Some(ObjectiveStep::Accuracy)) => Goal::Replicas,
            (Mode::HardwareThenAccuracy | Mode::MinCost, _) => return choice,
        };
        let stage = Stage { accuracy_min: Some(-value - ACCURACY_SLACK * value.abs()), ..Stage::new(goal) };
        match solve_stage(self.problem, space, stage, GAP, self.limits, None) {
            StageResult::Found { choice: leaner, .. } => leaner,
            StageResult::Infeasible | StageResult::Unknown(_) => choice,
        }
    }
}
