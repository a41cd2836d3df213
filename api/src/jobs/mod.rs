//! How are plans solved, and analyses run, in the background?
//!
//! A worker claims a job under a lease (`worker`). The job takes one of a bounded number of places (`places`) and runs
//! (`plan`, `analysis`) on a thread of its own (`solve`; `rescale` for scaling actions). It is watched meanwhile
//! (`watch`). While the database is unavailable, writes are tried again (`retry`). The full explanation of a stored plan
//! is no job: its client waits for it (`explain`).
//!
//! What belongs here: claims, leases, and every call of a solver, each off the async threads. What never does: HTTP,
//! clients.

mod analysis;
mod analysis_run;
mod context;
mod explain;
mod figures;
mod places;
mod plan;
mod rescale;
mod retry;
mod solve;
mod watch;
mod worker;

pub use analysis::ANALYSIS_TIME_MAX;
pub use explain::{
    FULL_EXPLANATION_TIME_MAX, FullExplanation, PlanToExplain, UnreadablePlan, explain_in_full, leaves_searches_out,
};
pub use figures::{FiguresError, PlanFigures, figures_of, plan_figures};
pub use rescale::{RescaleRequest, RescaledPlan, rescale};
pub use solve::{PlanOptions, SolveError, SolveRequest, SolvedPlan, TIME_LIMIT_S, TIME_LIMIT_S_MAX, judge_sides, solve};
pub use worker::{DEATHS_MAX, run};
