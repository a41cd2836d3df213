//! Work that takes a while: plans to be solved. What belongs here: claiming, leases, and every call of a solver, each off
//! the async threads. What never does: HTTP, who asked.
//!
//! A job is claimed under a lease (`worker`), takes one of a bounded number of places (`places`), is solved (`solve`) and
//! watched meanwhile (`carry`); what the database does not take at once is tried again (`insist`).

mod carry;
pub mod counts;
mod insist;
mod places;
mod solve;
mod worker;

pub use solve::{Ask, Holds, PlanOptions, Solved, holds, solve};
pub use worker::{DEATHS_MAX, run};
