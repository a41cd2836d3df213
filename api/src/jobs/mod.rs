//! How are plans solved in the background?
//!
//! A worker claims a job under a lease (`worker`). The job takes one of a bounded number of places (`places`), is solved
//! (`solve`), and is watched meanwhile (`execution`). While the database is unavailable, writes are tried again (`retry`).
//!
//! What belongs here: claims, leases, and every call of a solver, each off the async threads. What never does: HTTP,
//! clients.

mod context;
mod execution;
mod figures;
mod places;
mod retry;
mod solve;
mod worker;

pub use figures::{FiguresError, PlanFigures, figures_of, plan_figures};
pub use solve::{PlanOptions, SolveError, SolveRequest, SolvedPlan, judge_sides, solve};
pub use worker::{DEATHS_MAX, run};
