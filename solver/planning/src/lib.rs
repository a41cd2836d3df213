//! Planners: which variants run on which hardware, with which batch size and how many replicas.
//!
//! What belongs here: formulations, searches over them, the check loop that makes plans hold on a trace, and the words that
//! explain a plan or say why there is none. What never does: clocks (the caller passes one), I/O, databases, how a plan is
//! carried out.
//!
//! The exact planner is the module `milp`, whose documentation is the formulation; the greedy one is `greedy` (InferLine);
//! `baselines` are what the papers compare themselves with. [`frontier`] plans along one value of a problem.
//! Every plan is confirmed by the independent checker and replayed by the estimator before it is returned.
//!
//! The commonest addition is a rule that plans must obey: add it to the checker with a fixture that it must reject, then
//! its row to `milp::constraints`, then a tiny problem to the brute-force test that only the rule decides.

mod along;
mod answer;
mod baselines;
pub mod bench;
#[cfg(test)]
mod bounded;
mod exact;
#[cfg(test)]
mod fixtures;
mod greedy;
pub mod ladder;
mod options;
mod planners;
mod replay;
mod routing;
pub mod scaling;
mod trace_check;

pub use along::{change, compare, frontier};
pub use apportion_mip::{Incumbent, Listener};
pub use options::{PlanOptions, Planner};
pub use planners::plan;
pub use replay::REPLAY_VISITS_MAX;
