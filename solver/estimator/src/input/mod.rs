//! What does a caller ask for: which requests come, when, and under which options?

pub mod fresh;
pub mod ingresses;
pub mod options;
pub mod workload;
