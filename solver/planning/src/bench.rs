//! Benchmarks of the planner.
