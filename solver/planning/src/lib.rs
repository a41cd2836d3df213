//! Planners: which variants run on which hardware, with which batch size and how many replicas?
//!
//! What belongs here: formulations, searches over them, the check of a plan on a trace, and the explanation of a plan or of
//! its absence. What never does: clocks (the caller passes one), input and output, databases, the execution of a plan.
//!
//! The rooms, from the bottom up. A room imports only from the rooms before it:
//!
//! - `stopwatch`, `options`, `replay`, `routing`, `warnings`: what takes the time of a run, its settings, replays on the
//!   estimator, routing tables, doubtful figures of a problem;
//! - `held_out`: does a plan hold on samples that it was not made on?
//! - `exact`: the exact planner. Its documentation is the formulation;
//! - `answer`: outcome, report, explanation, shortfalls;
//! - `trace_check`: does a plan hold on the trace?
//! - `greedy` (InferLine) and `baselines` (the planners that the papers compare themselves with);
//! - [`ladder`]: replica counts at other rates;
//! - `planners`: the choice of the planner, [`plan`];
//! - `along`: many plans along an axis ([`frontier`], [`compare`], [`change`]);
//! - [`scaling`]: INFaaS's scaling problem, and plans of pipelines by its answer ([`scaling::rescale`]), beside all these.
//!
//! The independent checker confirms every plan, and the estimator replays it, before a caller sees it.
//!
//! The commonest addition is a rule that plans must obey. Add it to the checker with a fixture that the checker must
//! reject. Then add its row to `exact::model::constraints`. Then add a tiny problem to the brute-force test that only
//! the rule decides.

mod along;
mod answer;
mod baselines;
pub mod bench;
#[cfg(test)]
mod bounded;
mod exact;
#[cfg(test)]
mod fixtures;
mod fleet_memory;
mod greedy;
mod held_out;
pub mod ladder;
mod options;
mod planners;
mod replay;
mod routing;
pub mod scaling;
mod stopwatch;
mod trace_check;
mod warnings;

pub use along::{change, compare, frontier};
pub use apportion_mip::{Incumbent, Listener, StopSignal};
pub use fleet_memory::FleetMemory;
pub use held_out::effort::JudgeEffort;
pub use held_out::side_by_side::judge_side_by_side;
pub use options::{ExplanationDepth, PlanListener, Planner, PlanningOptions};
pub use planners::plan;
pub use replay::REPLAY_VISITS_MAX;
pub use stopwatch::Stopwatch;
