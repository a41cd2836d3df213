//! Placeholder.
use apportion_domain::{Estimate, Plan, Problem, Trace};
/// How arrivals are drawn inside a second of a rates trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ArrivalProcess {
    /// Exponential gaps.
    Poisson,
    /// Equal gaps.
    Uniform,
    /// Gamma gaps with this coefficient of variation.
    Gamma(f64),
}
/// The load of each pipeline of the problem.
#[derive(Clone, Debug)]
pub struct Workload {
    /// One trace per pipeline, in the problem's order.
    pub traces: Vec<Trace>,
    /// How arrivals are drawn from rates.
    pub arrivals: ArrivalProcess,
    /// Root seed.
    pub seed: u64,
}
/// Why a run could not start.
#[derive(Debug, thiserror::Error)]
pub enum SimulateError {
    /// The plan names something that the problem does not know.
    #[error("{0}")]
    Plan(String),
}
/// What happened to one request.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestRecord;
/// Options of a run.
#[derive(Clone, Debug, Default)]
pub struct SimulateOptions {
    /// Keep one record per request.
    pub requests: bool,
}
/// Result of a run.
#[derive(Clone, Debug)]
pub struct Simulation {
    /// One per pipeline, in the problem's order.
    pub pipelines: Vec<Estimate>,
    /// Over all pipelines.
    pub total: Estimate,
}
/// Replays `workload` through `plan`.
///
/// # Errors
/// If the plan does not fit the problem.
pub fn simulate(_p: &Problem, _plan: &Plan, _w: &Workload, _o: &SimulateOptions) -> Result<Simulation, SimulateError> {
    Err(SimulateError::Plan(String::new()))
}
