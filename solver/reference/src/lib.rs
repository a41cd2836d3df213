//! How do the planners' programmes look in `good_lp`, as plain as the algebra? The slow, obvious version of the exact
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
mod answer;
mod choice;
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

pub use answer::{INTEGER_MAX, OptimalPlan, PREFIXES_MAX, ReferenceAnswer, ReferenceError};
use apportion_domain::{Mode, Problem};
pub use infaas::solve_scaling;
use solver::Programme;
pub use solver::{ReferenceSettings, Solver};

/// Solves a problem in its mode, under its latency rule, at the demands of its pipelines.
///
/// # Errors
/// If the problem is too large, the time limit is reached, or the solver failed. Then nothing is proven.
pub fn solve(problem: &Problem, settings: &ReferenceSettings) -> Result<ReferenceAnswer, ReferenceError> {
    let programme = Programme { problem, settings };
    let found = match problem.objective.mode {
        Mode::HardwareThenAccuracy => match hardware_scaling::solve(programme)? {
            Some(found) => Some(found),
            None => accuracy_scaling::solve(programme)?,
        },
        Mode::MinCost => min_cost::solve(programme)?,
        Mode::MaxAccuracy => max_accuracy::solve(programme)?,
    };
    Ok(found.map_or(ReferenceAnswer::Infeasible, |found| ReferenceAnswer::Optimal(Box::new(found))))
}
