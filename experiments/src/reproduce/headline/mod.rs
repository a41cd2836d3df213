//! How much does the system cost at equal attainment, against the autoscalers that people run, on traces that chose
//! nothing?
//!
//! `experiments/protocol.yaml` says what is compared; [`protocol`] reads it. [`pipelines`] reads pipelines, and
//! [`traces`] reads stretches. [`contest`] prepares one pipeline and plays it under one scaler, [`scalers`] makes a scaler
//! of a setting. [`trials`] chooses settings on one stretch and judges them on others, [`bound`] looks for the least cost
//! of a policy that knows the arrivals.

mod bound;
mod cases;
mod claims;
mod contest;
mod findings;
mod overload;
pub mod pipelines;
pub mod protocol;
mod report;
pub mod scalers;
mod system;
mod tables;
mod traces;
mod trials;

pub use report::report;
