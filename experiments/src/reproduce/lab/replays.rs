//! How does a plan fare on a load?

use apportion_domain::{Dropping, Plan, Problem, ServingPolicy};
use apportion_estimator::{
    CutReason, Replay, Scenario, SimulateError, SimulateOptions, Simulation, StatePlannerSettings, Workload,
    expected_requests, simulate,
};
use apportion_support::exit::Failure;

/// Share of missed requests at which a run is given up.
const HOPELESS: f64 = 0.25;

/// Replays a plan under a dropping policy. `None` if the run is given up because a quarter of the requests has missed.
///
/// #
/// Errors If the plan does not fit the problem.
pub fn replay_unless_hopeless(
    problem: &Problem,
    plan: &Plan,
    workload: &Workload,
    dropping: Dropping,
) -> Result<Option<Simulation>, Failure> {
    let expected: f64 = workload.traces.iter().map(expected_requests).sum();
    let misses_max = (HOPELESS * expected) as u64;
    let planned = plan.pipelines.first().map(|p| p.serving).unwrap_or_default();
    let serving = Some(ServingPolicy { dropping, ..planned });
    let options = SimulateOptions { misses_max: Some(misses_max), serving, ..SimulateOptions::default() };
    match simulate(problem, plan, workload, &options) {
        Ok(run) => Ok(Some(run)),
        Err(SimulateError::Cut(CutReason::Missed { .. })) => Ok(None),
        Err(error) => Err(anyhow::Error::new(error).into()),
    }
}

/// Whether a replay keeps a record of every request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Records {
    /// Keep them.
    Keep,
    /// Count only.
    Skip,
}

/// Replays a plan under a policy.
pub fn replay(
    problem: &Problem,
    plan: &Plan,
    workload: &Workload,
    dropping: Dropping,
    records: Records,
) -> Result<Simulation, Failure> {
    replay_with(
        problem,
        plan,
        workload,
        dropping,
        SimulateOptions { requests: records == Records::Keep, ..SimulateOptions::default() },
    )
}

/// Replays a plan under PARD with these settings of its estimate.
///
/// # Errors
/// If the plan does not fit the problem.
pub fn replay_foreseeing(
    problem: &Problem,
    plan: &Plan,
    workload: &Workload,
    foresight: StatePlannerSettings,
) -> Result<Simulation, Failure> {
    let options = SimulateOptions { requests: true, foresight, ..SimulateOptions::default() };
    replay_with(problem, plan, workload, Dropping::Pard, options)
}

/// Replays a plan under a dropping policy with a scenario of changes, and records requests.
///
/// # Errors
/// If the plan does not fit the problem.
pub fn replay_with_scenario(
    problem: &Problem,
    plan: &Plan,
    workload: &Workload,
    dropping: Dropping,
    scenario: Scenario<'_>,
) -> Result<Replay, Failure> {
    let planned = plan.pipelines.first().map(|p| p.serving).unwrap_or_default();
    let serving = Some(ServingPolicy { dropping, ..planned });
    let options = SimulateOptions { requests: true, serving, ..SimulateOptions::default() };
    Ok(apportion_estimator::replay(problem, plan, workload, &options, scenario).map_err(anyhow::Error::new)?)
}

fn replay_with(
    problem: &Problem,
    plan: &Plan,
    workload: &Workload,
    dropping: Dropping,
    options: SimulateOptions,
) -> Result<Simulation, Failure> {
    let planned = plan.pipelines.first().map(|p| p.serving).unwrap_or_default();
    let options = SimulateOptions { serving: Some(ServingPolicy { dropping, ..planned }), ..options };
    Ok(simulate(problem, plan, workload, &options).map_err(anyhow::Error::new)?)
}
