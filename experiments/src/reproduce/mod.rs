//! Do the comparisons of the papers come out the same on this code?
//!
//! What belongs here: problems, loads and settings of the comparisons, their measures, the report. What never does: a
//! policy or a planner. The commonest addition is a comparison: a function that returns a report, and a row in the list of
//! `run.rs`.

mod across;
mod contenders;
pub(crate) mod headline;
mod infaas;
mod inferline;
mod lab;
mod loki;
mod pard;
mod replanning;
mod report;
mod robustness;
mod run;

pub use run::{ReproduceSettings, names, run};
