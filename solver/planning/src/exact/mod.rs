//! Exact planning by mixed-integer programming: Loki's two steps (section 4.2), least cost, highest accuracy.
//!
//! Reading order: [`variables`] what is decided, [`constraints`] the equations, [`budgets`] why there are often no binaries,
//! [`search`] one goal over all budgets, [`extract`] a plan from whole replicas. [`highs`] alone names the solver.

pub mod budgets;
pub mod constraints;
pub mod extract;
pub mod highs;
pub mod search;
pub mod variables;

use crate::control::Control;
use apportion_domain::{Mode, ObjectiveStep, ObjectiveValue, Plan, Problem, StopReason};
use highs::Ending;
use search::{Found, Goal, Search};
use variables::{Space, SpaceError, Tightenings};

/// A later step may give up this share of an earlier step's accuracy: what floats lose, far below any gap asked for.
const ACCURACY_KEPT: f64 = 1.0 - 1e-6;

/// What solving one problem gave.
#[derive(Clone, Debug)]
pub enum Answer {
    /// A plan; `stopped` says why it is not proven.
    Plan {
        /// The plan, without routing tables.
        plan: Plan,
        /// Its value and bound.
        objective: ObjectiveValue,
        /// `None` if it is proven within the gap.
        stopped: Option<StopReason>,
    },
    /// Proven that there is none.
    Infeasible(Option<SpaceError>),
    /// Neither.
    Unknown(StopReason),
}

/// Solves under rule `task_budget`.
#[must_use]
pub fn solve(problem: &Problem, tightenings: &Tightenings, gap: f64, control: &Control) -> Answer {
    match problem.objective.mode {
        Mode::HardwareThenAccuracy => hardware_then_accuracy(problem, tightenings, gap, control),
        Mode::MinCost => single(problem, tightenings, gap, control, Goal::Cost { switching: true }),
        Mode::MaxAccuracy => accuracy_then(problem, tightenings, gap, control, Goal::Cost { switching: false }),
    }
}

/// Whether any plan exists at all.
#[must_use]
pub fn feasible(problem: &Problem, control: &Control) -> Option<bool> {
    let tightenings = crate::untightened(problem);
    let space = match Space::new(problem, &tightenings, false) {
        Ok(space) => space,
        Err(SpaceError::TooLarge) => return None,
        Err(_) => return Some(false),
    };
    let found = Search { problem, space: &space, tightenings: &tightenings, gap: 1.0, control }.best(Goal::Replicas, None);
    match (found.incumbent.is_some(), found.ending) {
        (true, _) => Some(true),
        (false, Ending::Infeasible) => Some(false),
        (false, _) => None,
    }
}

fn hardware_then_accuracy(problem: &Problem, tightenings: &Tightenings, gap: f64, control: &Control) -> Answer {
    if let Ok(space) = Space::new(problem, tightenings, true) {
        let search = Search { problem, space: &space, tightenings, gap, control };
        let found = search.best(Goal::Replicas, None);
        if found.incumbent.is_some() || found.ending == Ending::Failed {
            return answer(&search, &found, Some(ObjectiveStep::Hardware), |f, _| (f.objective, (f.bound - 1e-6).ceil()));
        }
        if found.ending == Ending::Stopped && control.cancelled() {
            return Answer::Unknown(StopReason::Cancelled);
        }
    }
    accuracy_then(problem, tightenings, gap, control, Goal::Replicas)
}

/// Highest accuracy; among plans equal in it, the least of `tie`.
fn accuracy_then(problem: &Problem, tightenings: &Tightenings, gap: f64, control: &Control, tie: Goal) -> Answer {
    let space = match Space::new(problem, tightenings, false) {
        Ok(space) => space,
        Err(SpaceError::TooLarge) => return Answer::Unknown(StopReason::Numerics),
        Err(error) => return Answer::Infeasible(Some(error)),
    };
    let search = Search { problem, space: &space, tightenings, gap, control };
    let mut found = search.best(Goal::Accuracy, None);
    if found.incumbent.is_some() && !control.must_stop() {
        let least = search.best(tie, Some(-found.objective * ACCURACY_KEPT));
        if least.incumbent.is_some() {
            found.incumbent = least.incumbent;
        }
    }
    let step = (problem.objective.mode == Mode::HardwareThenAccuracy).then_some(ObjectiveStep::Accuracy);
    answer(&search, &found, step, |f, plan| (weighted_accuracy(search.problem, plan), -f.bound))
}

fn single(problem: &Problem, tightenings: &Tightenings, gap: f64, control: &Control, goal: Goal) -> Answer {
    let space = match Space::new(problem, tightenings, false) {
        Ok(space) => space,
        Err(SpaceError::TooLarge) => return Answer::Unknown(StopReason::Numerics),
        Err(error) => return Answer::Infeasible(Some(error)),
    };
    let search = Search { problem, space: &space, tightenings, gap, control };
    let found = search.best(goal, None);
    answer(&search, &found, None, |f, _| (f.objective, f.bound))
}

/// The plan of what was found, with the value and bound that `value` reads off it.
fn answer(
    search: &Search<'_>,
    found: &Found,
    step: Option<ObjectiveStep>,
    value: impl Fn(&Found, &Plan) -> (f64, f64),
) -> Answer {
    let stopped = if search.control.cancelled() { StopReason::Cancelled } else { StopReason::TimeLimit };
    let Some(incumbent) = &found.incumbent else {
        return match found.ending {
            Ending::Infeasible => Answer::Infeasible(None),
            Ending::Stopped => Answer::Unknown(stopped),
            Ending::Optimal | Ending::Failed => Answer::Unknown(StopReason::Numerics),
        };
    };
    let Some(plan) = extract::plan(search, incumbent) else { return Answer::Unknown(StopReason::Numerics) };
    let (value, bound) = value(found, &plan);
    let objective = ObjectiveValue { step, value: Some(value), bound: bound.is_finite().then_some(bound) };
    let proven = objective.gap().is_some_and(|g| g <= search.gap * (1.0 + 1e-6) + 1e-9);
    Answer::Plan { plan, objective, stopped: (!proven).then_some(stopped) }
}

/// Mean by weight over the pipelines.
#[must_use]
pub fn weighted_accuracy(problem: &Problem, plan: &Plan) -> f64 {
    let total: f64 = problem.pipelines.iter().map(|p| p.weight).sum();
    let part = |p: &apportion_domain::Pipeline| plan.pipeline(&p.name).map_or(0.0, |q| q.accuracy * p.weight);
    if total > 0.0 { problem.pipelines.iter().map(part).sum::<f64>() / total } else { 0.0 }
}
