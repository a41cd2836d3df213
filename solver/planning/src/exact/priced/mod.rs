//! Which plan do prices lead to, in a fixed number of steps? A heuristic that knows how good it is (*price and branch*).
//!
//! 1. [`budgets`], [`points`]: the time budgets of the tasks are listed, and each vector fixes the batch size of every
//!    group.
//! 2. [`prices`]: the relaxation over all of them is solved by column generation. Its columns are walks ([`walk`]). It
//!    gives a bound, and prices that rank the vectors.
//! 3. [`stage`], [`programme`]: the best vectors become small integer programmes over replicas and flows, each searched for
//!    a fixed number of nodes. Several rounds ([`joint`]) give more work to hard problems. Many pipelines are searched one
//!    or two at a time ([`apart`]).
//! 4. [`moves`]: vectors near those of the best plan are tried too.
//!
//! The bound of a vector that was searched to its end is exact, so the bound of the plan is often its value. No clock
//! decides the result. A run that is stopped returns the best plan so far.

mod apart;
mod budgets;
mod candidates;
mod context;
mod free;
mod joint;
mod moves;
mod points;
mod prices;
mod programme;
mod stage;
#[cfg(test)]
mod tests;
mod walk;

use crate::exact::model::space::{Space, SpaceError};
use crate::exact::model::tightening::Tightening;
use crate::exact::model::tolerances::ACCURACY_SLACK;
use crate::exact::solution::choice::PlanIntegers;
use crate::exact::solution::finish::{LastValues, finish};
use crate::exact::solution::found::BestFound;
use apportion_domain::{Mode, ObjectiveStep, Problem};
use apportion_mip::RunLimits;
use context::{StageEnd, StagePlan, StageSearch};
use prices::{PartCandidates, PricedGoal, PricedStage};

/// How the search ended.
#[derive(Clone, Debug)]
pub(crate) enum PricedSearch {
    /// A plan with a bound.
    Found(Box<BestFound>),
    /// It is proven that there is no plan.
    Infeasible,
    /// Nothing is known.
    NotFound,
}

impl PricedSearch {
    /// The plan of a search, if it has found one.
    pub fn found_or_not(found: Option<BestFound>) -> Self {
        found.map_or(Self::NotFound, |found| Self::Found(Box::new(found)))
    }
}

/// Relative gap at which the search of one vector stops.
pub(crate) const GAP: f64 = 1e-4;

/// Most counted work of the first goal of a mode. The rest is for the goal that breaks its ties.
const FIRST_GOAL_WORK_MAX: u64 = 600_000_000;

/// Searches for a plan of a problem in its mode, under its latency rule.
pub(crate) fn plan_by_prices(problem: &Problem, tightening: &Tightening, limits: &RunLimits) -> PricedSearch {
    let space = match Space::new(problem, tightening, &limits.for_finishing()) {
        Ok(space) => space,
        Err(SpaceError::Latency(_)) => return PricedSearch::Infeasible,
        Err(SpaceError::Stopped(_) | SpaceError::TooLarge(_)) => return PricedSearch::NotFound,
    };
    let search = PricedModes { problem, tightening, limits };
    match problem.objective.mode {
        Mode::HardwareThenAccuracy => search.hardware_then_accuracy(space),
        Mode::MinCost => search.stages(space, PricedGoal::Cost, None),
        Mode::MaxAccuracy => search.stages(space, PricedGoal::Accuracy, Some(PricedGoal::Cost)),
    }
}

/// The search over the stages of a mode.
struct PricedModes<'a> {
    problem: &'a Problem,
    tightening: &'a Tightening,
    limits: &'a RunLimits,
}

impl PricedModes<'_> {
    /// Loki: the fewest replicas of the most accurate variants, or else the highest accuracy.
    fn hardware_then_accuracy(&self, space: Space) -> PricedSearch {
        if let Ok(best) = Space::of_most_accurate(self.problem, self.tightening, &self.limits.for_finishing()) {
            let found = self.one_stage(&best, PricedStage { goal: PricedGoal::Replicas, accuracy_min: None }, None);
            if let StageEnd::Found { plan, bound } = found {
                let last = LastValues { step: Some(ObjectiveStep::Hardware), bound: (bound - 1e-6).ceil() };
                return PricedSearch::found_or_not(finish(self.problem, best, choice_of(plan), last, self.limits));
            }
        }
        self.stages(space, PricedGoal::Accuracy, Some(PricedGoal::Replicas))
    }

    /// Solves `goal` first, and then `second` among plans of the same accuracy.
    fn stages(&self, space: Space, goal: PricedGoal, second: Option<PricedGoal>) -> PricedSearch {
        let limits = self.limits.with_work(FIRST_GOAL_WORK_MAX);
        let first = PricedModes { limits: &limits, ..*self };
        let (mut plan, bound) = match first.one_stage(&space, PricedStage { goal, accuracy_min: None }, None) {
            StageEnd::Found { plan, bound } => (plan, bound),
            StageEnd::Infeasible => return PricedSearch::Infeasible,
            StageEnd::NotFound => return PricedSearch::NotFound,
        };
        if let Some(second) = second {
            let accuracy = -plan.cost;
            let stage = PricedStage { goal: second, accuracy_min: Some(accuracy * (1.0 - ACCURACY_SLACK)) };
            if let StageEnd::Found { plan: leaner, .. } = self.one_stage(&space, stage, Some(plan.clone())) {
                plan = leaner;
            }
        }
        let step = (self.problem.objective.mode == Mode::HardwareThenAccuracy).then_some(ObjectiveStep::Accuracy);
        let bound = if goal == PricedGoal::Accuracy { -bound } else { bound };
        PricedSearch::found_or_not(finish(self.problem, space, choice_of(plan), LastValues { step, bound }, self.limits))
    }

    /// One stage. A known plan is valued by the stage's goal.
    fn one_stage(&self, space: &Space, stage: PricedStage, known: Option<StagePlan>) -> StageEnd {
        let list = |part| candidates::list(self.problem.pipeline(part), &space.parts[part.get()]);
        let mut parts: Vec<PartCandidates<'_>> = space.parts.iter().map(|part| list(part.index)).collect();
        if parts.iter().any(|p| p.candidates.is_empty()) {
            return if parts.iter().all(|p| p.is_complete) { StageEnd::Infeasible } else { StageEnd::NotFound };
        }
        let near = {
            let search = StageSearch { problem: self.problem, stage, parts: &parts, gap: GAP, limits: self.limits };
            let relaxation = search.relaxation();
            let Some(priced) = relaxation.solve(self.limits) else { return StageEnd::NotFound };
            if parts.iter().all(|p| p.is_complete) {
                let known = known.map(|plan| search.revalued(plan));
                return search.solve(&priced, known);
            }
            (0..parts.len()).map(|p| candidates::near(&relaxation, p, &priced)).collect::<Vec<_>>()
        };
        for (part, near) in parts.iter_mut().zip(near) {
            part.candidates.extend(near);
        }
        let search = StageSearch { problem: self.problem, stage, parts: &parts, gap: GAP, limits: self.limits };
        let Some(priced) = search.relaxation().solve(self.limits) else { return StageEnd::NotFound };
        let known = known.map(|plan| search.revalued(plan));
        search.solve(&priced, known)
    }
}

/// The integers of a plan.
fn choice_of(plan: StagePlan) -> PlanIntegers {
    PlanIntegers { groups: plan.groups }
}
