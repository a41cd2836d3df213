//! The exact planner: mixed-integer programmes over groups, budgets and flows.
//!
//! One formulation ([`constraints`]) serves every mode; a mode is a sequence of stages over it:
//!
//! - `hardware_then_accuracy` (Loki section 4.2): fewest replicas of the most accurate variants; if that is infeasible, the
//!   highest accuracy A within the counts; then the fewest replicas with accuracy of at least `A (1 - 1e-6)`, which the
//!   paper leaves out and without which the second step fills the cluster for nothing.
//! - `min_cost`: one stage. `max_accuracy`: the highest weighted accuracy, then the least cost that keeps it.
//!
//! Three pipelines or more are taken apart along what they share ([`decompose`]).
//!
//! One pipeline on one kind of device takes a shorter way ([`enumerate`]): its budget vectors are few, and each has a bound
//! in closed form ([`envelope`]).

pub(crate) mod bounds;
pub(crate) mod branch;
pub(crate) mod constraints;
pub(crate) mod decompose;
pub(crate) mod enumerate;
pub(crate) mod envelope;
pub(crate) mod extract;
pub(crate) mod fallback;
pub(crate) mod formulation;
pub(crate) mod highs;
pub(crate) mod keep;
pub(crate) mod paths;
pub(crate) mod space;
pub(crate) mod tableau;
pub(crate) mod trie;
pub(crate) mod variables;
pub(crate) mod vectors;

use crate::limits::Limits;
use crate::tightening::Tightening;
use apportion_domain::{Mode, ObjectiveStep, Problem, StopReason};
use constraints::{Goal, Stage, build};
use extract::Choice;
use formulation::{Ending, Solved};
use highs::Settings;
use space::{NoSpace, Space};

/// How much accuracy the last stage may give up for fewer replicas or less cost, relative.
pub(crate) const ACCURACY_SLACK: f64 = 1e-6;

/// Part of the gap asked for at which a stage stops: the rest of it is left for what the last stage gives up.
pub(crate) const SMALL_GAP: f64 = 0.05;

/// A choice with what is proven about it.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub space: Space,
    pub choice: Choice,
    /// Shares by pipeline and trie node.
    pub flows: Vec<Vec<f64>>,
    pub step: Option<ObjectiveStep>,
    pub value: f64,
    pub bound: f64,
    /// Why the search ended before its proof.
    pub stopped: Option<StopReason>,
}

/// How a search ended.
#[derive(Clone, Debug)]
pub(crate) enum Search {
    Found(Box<Found>),
    Infeasible,
    Unknown(StopReason),
}

/// One stage's answer.
pub(crate) enum StageAnswer {
    /// A choice; its goal's value and bound, both to be minimised; why it ended early.
    Found {
        choice: Choice,
        value: f64,
        bound: f64,
        stopped: Option<StopReason>,
    },
    Infeasible,
    Unknown(StopReason),
}

/// Searches for the best plan of a problem in its mode, under its latency rule. When the time is up or the formulation would be
/// too large, the plan that needs no search is better than none.
pub(crate) fn search(problem: &Problem, tightening: &Tightening, gap: f64, limits: &Limits) -> Search {
    match exact(problem, tightening, gap, limits) {
        Search::Unknown(reason) if reason != StopReason::Cancelled => {
            match fallback::plan(problem, tightening, limits, reason) {
                Some(found) => Search::Found(Box::new(found)),
                None => Search::Unknown(reason),
            }
        }
        other => other,
    }
}

fn exact(problem: &Problem, tightening: &Tightening, gap: f64, limits: &Limits) -> Search {
    // without a space there is no plan of any kind, so it is made even if that takes the last of the time
    let space = match Space::new(problem, tightening, &limits.finishing()) {
        Ok(space) => space,
        Err(NoSpace::Latency(_)) => return Search::Infeasible,
        Err(NoSpace::Stopped(reason)) => return Search::Unknown(reason),
        Err(why @ NoSpace::TooLarge(_)) => {
            tracing::warn!(%why, "too large to plan for");
            return Search::Unknown(StopReason::Unsupported);
        }
    };
    let found = match problem.objective.mode {
        Mode::HardwareThenAccuracy => hardware_then_accuracy(problem, tightening, space, gap, limits),
        Mode::MinCost => stages((problem, tightening), space, Goal::CostAndSwitching, None, gap, limits),
        Mode::MaxAccuracy => stages((problem, tightening), space, Goal::Accuracy, Some(Goal::Cost), gap, limits),
    };
    match found {
        Search::Found(found) => Search::Found(Box::new(keep::prefer_deployed(problem, *found, limits))),
        other => other,
    }
}

fn hardware_then_accuracy(problem: &Problem, tightening: &Tightening, space: Space, gap: f64, limits: &Limits) -> Search {
    if let Ok(best) = Space::restricted(problem, tightening, true, &limits.finishing()) {
        let answer = match enumerate::fewest_replicas(problem, &best, &limits.finishing()) {
            Some(answer) => answer,
            None => decompose::answer(problem, &best, Goal::Replicas, None, gap, limits)
                .unwrap_or_else(|| solve_stage(problem, &best, Stage::new(Goal::Replicas), gap, limits, None)),
        };
        match answer {
            StageAnswer::Found { choice, value, bound, stopped } => {
                let step = Some(ObjectiveStep::Hardware);
                return finish((problem, tightening), best, choice, step, (value, (bound - 1e-6).ceil()), stopped, limits);
            }
            StageAnswer::Infeasible => {}
            StageAnswer::Unknown(reason) => return Search::Unknown(reason),
        }
    }
    match enumerate::most_accurate(problem, &space, gap, limits) {
        Some(StageAnswer::Found { choice, value, bound, stopped }) => {
            finish((problem, tightening), space, choice, Some(ObjectiveStep::Accuracy), (-value, -bound), stopped, limits)
        }
        Some(StageAnswer::Infeasible) => Search::Infeasible,
        Some(StageAnswer::Unknown(reason)) => Search::Unknown(reason),
        None => stages((problem, tightening), space, Goal::Accuracy, Some(Goal::Replicas), gap, limits),
    }
}

/// The stages of a mode on the whole formulation: `goal` first, then `second` among what is as accurate.
fn stages(
    (problem, tightening): (&Problem, &Tightening),
    space: Space,
    goal: Goal,
    second: Option<Goal>,
    gap: f64,
    limits: &Limits,
) -> Search {
    let apart = decompose::answer(problem, &space, goal, second, gap, limits);
    // ties are broken already where the problem was taken apart
    let second = second.filter(|_| apart.is_none());
    let first = apart.unwrap_or_else(|| solve_stage(problem, &space, Stage::new(goal), gap, limits, None));
    let (mut choice, value, bound, mut stopped) = match first {
        StageAnswer::Found { choice, value, bound, stopped } => (choice, value, bound, stopped),
        StageAnswer::Infeasible => return Search::Infeasible,
        StageAnswer::Unknown(reason) => return Search::Unknown(reason),
    };
    if let (Some(goal), None) = (second, stopped) {
        let least = -value - ACCURACY_SLACK * value.abs();
        let stage = Stage { accuracy_min: Some(least), ..Stage::new(goal) };
        match solve_stage(problem, &space, stage, gap, limits, None) {
            StageAnswer::Found { choice: cheaper, .. } => choice = cheaper,
            StageAnswer::Infeasible => stopped = Some(StopReason::Numerics),
            StageAnswer::Unknown(_) => {}
        }
    }
    let step = (problem.objective.mode == Mode::HardwareThenAccuracy).then_some(ObjectiveStep::Accuracy);
    let (value, bound) = if goal == Goal::Accuracy { (-value, -bound) } else { (value, bound) };
    finish((problem, tightening), space, choice, step, (value, bound), stopped, limits)
}

/// Builds and solves one stage. With an `incumbent` cost only what is cheaper counts.
///
/// Stages with given budgets are small and go to our own branch and bound first, then to HiGHS.
pub(crate) fn solve_stage(
    problem: &Problem,
    space: &Space,
    stage: Stage<'_>,
    gap: f64,
    limits: &Limits,
    incumbent: Option<f64>,
) -> StageAnswer {
    // a stage with given budgets is small, and may be all that there will be
    let late = if stage.budgets.is_some() { limits.finishing() } else { limits.clone() };
    if let Some(reason) = late.reason() {
        return StageAnswer::Unknown(reason);
    }
    let mut built = build(problem, space, stage);
    let small = stage
        .budgets
        .and_then(|_| branch::solve(&built.formulation, SMALL_GAP * gap, incumbent.unwrap_or(f64::INFINITY), limits));
    let solved = small.unwrap_or_else(|| {
        if let Some(incumbent) = incumbent {
            let terms = built.formulation.costs.iter().enumerate().filter(|(_, c)| **c != 0.0);
            let terms = terms.map(|(i, &c)| (formulation::Column(i), c)).collect();
            built.formulation.at_most(if stage.is_whole() { incumbent - 1.0 } else { incumbent }, terms);
        }
        let told = stage.goal.told().filter(|_| stage.budgets.is_none());
        highs::solve(&built.formulation, Settings { told, ..Settings::mip(SMALL_GAP * gap) }, limits, None)
    });
    let Solved { ending, values, cost, bound } = solved;
    let reason = || limits.reason().unwrap_or(StopReason::TimeLimit);
    match (ending, values) {
        (Ending::Infeasible, _) => StageAnswer::Infeasible,
        (Ending::Optimal | Ending::Stopped, Some(values)) => StageAnswer::Found {
            choice: extract::choice(space, &built.columns.parts, &values),
            value: cost,
            bound: bound.min(cost),
            stopped: (ending == Ending::Stopped).then(reason),
        },
        (Ending::Stopped, None) => StageAnswer::Unknown(reason()),
        _ => StageAnswer::Unknown(StopReason::Numerics),
    }
}

/// Solves the flows of a choice, takes what it does not need away, and says what it is worth.
fn finish(
    (problem, tightening): (&Problem, &Tightening),
    space: Space,
    choice: Choice,
    step: Option<ObjectiveStep>,
    (value, bound): (f64, f64),
    stopped: Option<StopReason>,
    limits: &Limits,
) -> Search {
    // the last linear programme is tiny and must not be lost to the limit that ended the search
    let flows = match extract::flows(problem, &space, &choice, &limits.finishing()) {
        Ok(Some(flows)) => flows,
        Ok(None) => {
            tracing::error!("a solution's integers carry no flows");
            return Search::Unknown(StopReason::Numerics);
        }
        Err(reason) => return Search::Unknown(reason),
    };
    let choice = keep::trim(problem, &space, choice, &flows);
    let worth = keep::worth(problem, &space, &choice, &flows, step);
    let accuracy_like = bounds::is_maximised(problem, step);
    let bound = match (stopped.is_some(), accuracy_like) {
        (false, _) => bound,
        (true, true) => bound.min(bounds::bound(problem, tightening, step)),
        (true, false) => bound.max(bounds::bound(problem, tightening, step)),
    };
    // trimming and exact flows may be better than what the solver saw, never worse than its own tolerance
    let bound = if accuracy_like { bound.max(worth) } else { bound.min(worth) };
    tracing::debug!(value, worth, bound, "solved");
    Search::Found(Box::new(Found { space, choice, flows, step, value: worth, bound, stopped }))
}
