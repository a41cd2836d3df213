//! Which comparisons need several papers, or none?

pub mod closed_forms;
mod contest;
pub mod greedy_vs_milp;
pub mod headline;
mod headline_claims;
mod headline_inputs;
mod headline_trials;
mod overload;
mod system;
