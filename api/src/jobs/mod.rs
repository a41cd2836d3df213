//! Work that takes a while: plans to be solved. What belongs here: claiming, leases, and every call of a solver, each off
//! the async threads. What never does: HTTP, who asked.

mod solve;
mod worker;

pub use solve::{Ask, Holds, PlanOptions, Solved, holds, solve};
pub use worker::{RETRIES_MAX, run};
