//! Routing tables for a plan, and its replay.

use apportion_domain::{Estimate, Plan, Problem};
use apportion_estimator::{SimulateOptions, Workload, simulate};

/// Fills the plan's tables by MostAccurateFirst. `headroom` is what the load was planned with: the tables leave it free too,
/// or the most accurate groups would run at full load while others have capacity to spare.
pub fn route(problem: &Problem, plan: &mut Plan, headroom: f64) {
    for part in &mut plan.pipelines {
        let Some(index) = problem.pipeline_named(&part.name) else { continue };
        let pipeline = problem.pipeline(index);
        let demand = part.demand_qps * headroom;
        match apportion_serving::most_accurate_first(pipeline, &problem.hardware, &part.assignments, demand) {
            Ok(routing) => part.routing = routing,
            Err(error) => tracing::error!(%error, "a plan without tables"),
        }
    }
}

/// How a plan fares on a workload, the default one if there is none.
#[must_use]
pub fn estimate(problem: &Problem, plan: &Plan, workload: Option<&Workload>) -> Option<Estimate> {
    simulation(problem, plan, workload).map(|s| s.total)
}

/// The whole simulation; `None` if the estimator cannot run this problem, which is logged.
#[must_use]
pub fn simulation(problem: &Problem, plan: &Plan, workload: Option<&Workload>) -> Option<apportion_estimator::Simulation> {
    let default;
    let workload = match workload {
        Some(workload) => workload,
        None => {
            default = Workload::default_for(problem);
            &default
        }
    };
    match simulate(problem, plan, workload, &SimulateOptions::default()) {
        Ok(simulation) => Some(simulation),
        Err(error) => {
            tracing::warn!(%error, "the plan was not replayed");
            None
        }
    }
}
