//! How do plans change along an axis: a value of the problem, the planner, or time?

pub mod change;
pub mod compare;
pub mod frontier;
