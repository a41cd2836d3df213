//! What does a plan cost, and how does it serve a load?

use super::solve::{SolveError, run_in_thread, workload};
use apportion_domain::{ArrivalTrace, Plan, Problem};
use apportion_estimator::{SimulateError, SimulateOptions, Workload, simulate};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One plan under the load that was seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PlanFigures {
    /// Price of its devices.
    pub cost_per_hour: f64,
    /// Its replicas.
    pub replicas: u64,
    /// Requests of the replay.
    pub requests: u64,
    /// Share of the requests that are answered by their deadline.
    pub attainment: f64,
    /// Mean accuracy of the answers; `None` without an answer.
    pub accuracy: Option<f64>,
    /// 99th percentile of the latency; `None` without an answer.
    pub p99_ms: Option<f64>,
    /// The checker's findings at that load, one sentence each.
    pub findings: Vec<String>,
}

/// Checks and replays a plan. `problem` has the demand that was seen.
///
/// # Errors
/// If the plan cannot be replayed, for example because it lacks a pipeline.
pub fn plan_figures(problem: &Problem, plan: &Plan, load: &Workload) -> Result<PlanFigures, SimulateError> {
    let price = |name: &str| problem.hardware_named(name).map_or(0.0, |h| problem.hardware_at(h).price_per_hour);
    let mut plan = plan.clone();
    plan.cost_per_hour = plan.devices().into_iter().map(|(name, count)| price(name) * count as f64).sum();
    // Demand, accuracy and utilisation are claims for another demand, which the checker would compare with this one.
    for part in &mut plan.pipelines {
        if let Some(index) = problem.pipeline_named(&part.name) {
            part.demand_qps = problem.pipeline(index).demand_qps;
        }
        part.assignments.iter_mut().for_each(|a| a.utilisation = 0.0);
    }
    let findings = apportion_checker::check(problem, &plan).iter().map(ToString::to_string).collect();
    let total = simulate(problem, &plan, load, &SimulateOptions::default())?.total;
    let estimate = apportion_wire::EstimateFile::from(&total);
    Ok(PlanFigures {
        cost_per_hour: plan.cost_per_hour,
        replicas: plan.replicas(),
        requests: estimate.requests,
        attainment: estimate.attainment,
        accuracy: estimate.accuracy,
        p99_ms: estimate.p99_ms,
        findings,
    })
}

/// The figures of several plans under Poisson arrivals at the rates of the traces, in a thread of their own.
///
/// # Errors
/// If a plan cannot be replayed, or the estimator panicked.
pub async fn figures_of(
    problem: Problem,
    plans: Vec<Plan>,
    traces: Vec<ArrivalTrace>,
) -> Result<Vec<PlanFigures>, FiguresError> {
    let load = workload(traces);
    let replay = move || plans.iter().map(|plan| plan_figures(&problem, plan, &load)).collect::<Result<_, _>>();
    Ok(run_in_thread("the estimator", replay).await??)
}

/// Why plans have no figures.
#[derive(Debug, thiserror::Error)]
pub enum FiguresError {
    /// The estimator refuses a plan.
    #[error(transparent)]
    Simulate(#[from] SimulateError),
    /// It broke down.
    #[error(transparent)]
    Solve(#[from] SolveError),
}
