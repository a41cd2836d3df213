//! Do the results of InferLine's comparisons (section 7) hold on this code?

pub mod cost;
pub mod estimator;
pub mod tuner;
mod tuner_claims;
mod tuner_runs;
