//! Plans on a load: the estimator's verdict.

use apportion_domain::{Estimate, Plan, Problem};
use apportion_estimator::{SimulateOptions, Simulation, Workload, simulate};

/// The workload that plans are judged on without a trace of one's own.
pub(crate) fn default_workload(problem: &Problem) -> Workload {
    Workload::default_for(problem)
}

/// Replays a plan; `None`, logged, if the estimator refuses it.
pub(crate) fn replay(problem: &Problem, plan: &Plan, workload: &Workload) -> Option<Simulation> {
    match simulate(problem, plan, workload, &SimulateOptions::default()) {
        Ok(simulation) => Some(simulation),
        Err(error) => {
            tracing::warn!(%error, "the plan could not be replayed");
            None
        }
    }
}

/// By how much each pipeline misses its percentile: 0 where it holds.
pub(crate) fn misses(problem: &Problem, estimates: &[Estimate]) -> Vec<f64> {
    let miss = |(p, e): (&apportion_domain::Pipeline, &Estimate)| (p.percentile / 100.0 - e.attainment).max(0.0);
    problem.pipelines.iter().zip(estimates).map(miss).collect()
}
