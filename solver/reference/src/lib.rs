//! The planners' programmes, written in `good_lp` as plainly as the algebra: the slow, obvious version of the exact
//! planner.
//!
//! What belongs here: one short file for each mode and one for each latency rule. Each constraint stands with its
//! equation number. What never does: a search of our own, a decomposition, a tableau, a bound in closed form. The
//! production planner has these, and tests compare its objective with the objective of this crate. The commonest
//! addition is a rule that plans must obey: add its constraint to the file that has its neighbours, and give it a
//! number in `docs/explanation/reference-formulations.md`.
//!
//! | file | question |
//! |---|---|
//! | `sets` | Which groups, batch sizes and prefixes are there? Loki (1), (5) |
//! | `model` | Which variables are there? |
//! | `allocation` | What must every plan obey? Loki (2) to (4), (13) to (19) |
//! | `task_budget` | When is a plan in time under rule `task_budget`? (20) to (22) |
//! | `path` | When is a plan in time under rule `path`? Loki (6), (7) |
//! | `hardware_scaling` | Loki's step 1: (8) to (11) |
//! | `accuracy_scaling` | Loki's step 2: (12), (23) |
//! | `min_cost` | Least cost: (24), (25) |
//! | `max_accuracy` | Highest weighted accuracy: (12), (26) |
//! | `infaas` | INFaaS's scaling problem, section 4.2.1 |
//!
//! Two solvers answer, HiGHS and `microlp`. Both stand in the file `solver`.

mod accuracy_scaling;
mod allocation;
mod hardware_scaling;
mod infaas;
mod max_accuracy;
mod min_cost;
mod model;
mod path;
mod plan;
mod sets;
mod solver;
mod task_budget;

use apportion_domain::{Mode, ObjectiveStep, Plan, Problem};
pub use infaas::solve_scaling;
use solver::Programme;
pub use solver::{Settings, Solver};

/// Most prefixes of groups in one pipeline: each is a variable, and under rule `path` nearly each has a row.
pub const PREFIXES_MAX: usize = 20_000;
/// Most replicas or devices of one kind. HiGHS counts steps between the bounds of integers in 32 bits, and its root
/// node has been seen not to end far beyond this.
pub const INTEGER_MAX: f64 = 1e6;
/// How much accuracy the last stage may give up for fewer replicas or less cost, relative.
const ACCURACY_SLACK: f64 = 1e-6;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ReferenceError {
    /// A pipeline has more than [`PREFIXES_MAX`] prefixes.
    #[error("pipeline {0:?} has more than {PREFIXES_MAX} prefixes of groups")]
    TooManyPrefixes(String),
    /// A number of replicas or devices may be larger than [`INTEGER_MAX`].
    #[error("{0} may need more than {INTEGER_MAX} replicas")]
    TooManyReplicas(String),
    /// The time limit was reached before the proof.
    #[error("the time limit was reached before the proof")]
    TimeLimit,
    /// The solver failed.
    #[error("the solver failed: {0}")]
    Solver(String),
}

/// An optimal plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// Replicas by (task, variant, hardware, batch), with the paths that carry traffic. It has no routing tables.
    pub plan: Plan,
    /// Which of Loki's two steps found it; `None` in other modes.
    pub step: Option<ObjectiveStep>,
    /// Replicas in step `hardware`, accuracy in step `accuracy`, cost with switching in `min_cost`, else weighted
    /// accuracy.
    pub value: f64,
    /// No plan has a better value: the value and the gap of the settings.
    pub bound: f64,
}

/// The answer to a problem.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// Optimal within the gap of the settings.
    Optimal(Box<Found>),
    /// No plan exists.
    Infeasible,
}

/// Solves a problem in its mode, under its latency rule, at the demands of its pipelines.
///
/// # Errors
/// If the problem is too large, the time limit struck, or the solver failed: nothing is known then.
pub fn solve(problem: &Problem, settings: &Settings) -> Result<Answer, ReferenceError> {
    let programme = Programme { problem, settings };
    let found = match problem.objective.mode {
        Mode::HardwareThenAccuracy => match hardware_scaling::solve(programme)? {
            Some(found) => Some(found),
            None => accuracy_scaling::solve(programme)?,
        },
        Mode::MinCost => min_cost::solve(programme)?,
        Mode::MaxAccuracy => max_accuracy::solve(programme)?,
    };
    Ok(found.map_or(Answer::Infeasible, |found| Answer::Optimal(Box::new(found))))
}
