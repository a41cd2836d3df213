//! What do InferLine's comparisons (section 7) say of this code?

pub mod cost;
pub mod estimator;
pub mod tuner;
mod tuner_claims;
mod tuner_runs;
