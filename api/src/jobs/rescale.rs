//! How are the scaling actions of a pipeline found, from the replicas that run?

use super::solve::{PlanOptions, SolveError, SolvedPlan, check_outcome, run_planner, workload};
use crate::documents;
use apportion_domain::Problem;
use apportion_planning::scaling::rescale::{RescaleSettings, rescale as plan_actions, servable};
use apportion_planning::{Planner, PlanningOptions};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// A problem of one pipeline whose deployed groups are to be scaled.
pub struct RescaleRequest {
    /// The problem.
    pub problem: Problem,
    /// The options; a ladder is not made.
    pub options: PlanOptions,
    /// The settings of the actions.
    pub settings: RescaleSettings,
    /// Seconds of Poisson arrivals on which the plan must hold.
    pub trace_s: u64,
    /// Ends the search without a plan when it is set.
    pub cancel: Arc<AtomicBool>,
}

/// A plan by scaling actions.
pub struct RescaledPlan {
    /// The result of the planner.
    pub solved: SolvedPlan,
    /// The problem that the plan is made for: at the highest part of the demand that the devices can serve.
    pub problem: Problem,
}

/// Finds scaling actions in a thread of its own, and checks their plan with the checker. If the future is dropped, the
/// search stops.
///
/// # Errors
/// If the planner panicked, or its plan breaks a rule.
pub async fn rescale(request: RescaleRequest) -> Result<RescaledPlan, SolveError> {
    run_planner(request.cancel.clone(), move || find_actions(request)).await
}

fn find_actions(request: RescaleRequest) -> Result<RescaledPlan, SolveError> {
    let RescaleRequest { problem, options, settings, trace_s, cancel } = request;
    let begin = Instant::now();
    let options = PlanningOptions {
        planner: Planner::from_name(&options.planner).unwrap_or_default(),
        time_limit: Some(options.time_limit()),
        cancel,
        ..PlanningOptions::new(Arc::new(move || begin.elapsed()))
    };
    let problem = servable(&problem, &options, &settings);
    let traces = problem.pipelines.iter().map(|p| documents::steady(p.demand_qps, trace_s)).collect();
    let options = PlanningOptions { trace: Some(workload(traces)), ..options };
    let (outcome, report) = plan_actions(&problem, &options, &settings);
    Ok(RescaledPlan { solved: check_outcome(&problem, outcome, &report)?, problem })
}
