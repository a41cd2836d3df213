//! Which requests come, and when?

pub mod workload;
