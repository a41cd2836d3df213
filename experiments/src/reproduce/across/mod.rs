//! Which comparisons need several papers, or none?

pub mod closed_forms;
pub mod greedy_vs_milp;
