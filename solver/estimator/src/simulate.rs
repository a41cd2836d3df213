//! How does a whole run go? Problem and plan are compiled, events follow each other, and the results are summed up.

use crate::accounts::{self, ApartRun};
use crate::change::{ChangeResult, Changes, PolicySource};
use crate::compile::CompiledPlan;
use crate::error::SimulateError;
use crate::input::options::SimulateOptions;
use crate::input::workload::{Arrivals, Workload};
use crate::result::{Replay, Simulation};
use crate::run::SimulationRun;
use crate::scenario::Scenario;
use crate::state::bounds::CutReason;
use crate::state::statistics::Statistics;
use apportion_domain::{Plan, Problem};
use apportion_serving::LateQueries;

/// Replays `workload` through `plan`. All replicas of the plan are warm and idle at the start. The run ends when the last
/// request has an outcome. The same arguments give the same result.
///
/// # Errors
/// If the plan or the workload does not fit the problem, or asks for a feature that is not simulated; if the run
/// is too large, or cut short.
pub fn simulate(
    problem: &Problem,
    plan: &Plan,
    workload: &Workload,
    options: &SimulateOptions,
) -> Result<Simulation, SimulateError> {
    Ok(statistics_of(problem, plan, workload, options)?.result(problem, plan, workload.seed))
}

/// The counts of a run without changes.
pub fn statistics_of(
    problem: &Problem,
    plan: &Plan,
    workload: &Workload,
    options: &SimulateOptions,
) -> Result<Statistics, SimulateError> {
    if accounts::keeps_accounts_apart(problem, plan, workload, options) {
        match accounts::play_apart(problem, plan, workload, options)? {
            ApartRun::Done(statistics) => return Ok(*statistics),
            ApartRun::Stopped => return Err(CutReason::Stopped.into()),
            ApartRun::GivenUp => {}
        }
    }
    let state = CompiledPlan::new(problem, plan, workload, options)?.into_state(options);
    let mut run = SimulationRun::new(state, Arrivals::of(problem, workload), None);
    run.run();
    match run.state.cut() {
        Some(cut) => Err(cut.into()),
        None => Ok(run.state.statistics),
    }
}

/// As [`simulate`], with changes: replicas come after their loading time, leave, die and slow down, and plans change, as
/// the scenario and its controllers say.
///
/// # Errors
/// As [`simulate`], and if a change names a group that the plan does not assign.
pub fn replay(
    problem: &Problem,
    plan: &Plan,
    workload: &Workload,
    options: &SimulateOptions,
    scenario: Scenario<'_>,
) -> Result<Replay, SimulateError> {
    let mut compiled = CompiledPlan::new(problem, plan, workload, options)?;
    let keeps_modules = scenario.modules;
    let policies = if options.serving.is_some() { PolicySource::Caller } else { PolicySource::Plan };
    let mut changes = Changes::new(problem, &mut compiled, scenario, policies)?;
    let mut state = compiled.into_state(options);
    state.has_changes = true;
    changes.prepare(&mut state)?;
    if keeps_modules {
        state.modules.keep_measurements(&mut state.serving);
    }
    let mut run = SimulationRun::new(state, Arrivals::of(problem, workload), Some(changes));
    run.run();
    if let Some(cut) = run.state.cut() {
        return Err(cut.into());
    }
    let mut changes = run.changes.expect("the changes of this run");
    if let Some(error) = changes.failed.take() {
        return Err(error);
    }
    let mut state = run.state;
    let ChangeResult { windows, cost, served_ms, counts } = changes.finish(&state);
    let mut late = LateQueries::default();
    state.serving.routers.iter().flatten().for_each(|router| late += router.late());
    state.statistics.fail_unfinished();
    let hours = state.now.as_millis() / 3_600_000.0;
    let busy_ms = state.statistics.sums().busy.as_millis();
    Ok(Replay {
        windows,
        cost,
        cost_per_hour: if hours > 0.0 { cost / hours } else { 0.0 },
        utilisation: if served_ms > 0.0 { busy_ms / served_ms } else { 0.0 },
        invalid_rate: state.statistics.invalid_rate(),
        late,
        changes: counts.replicas,
        plans: counts.plans,
        steerings: counts.steerings,
        modules: state.modules.into_kept(),
        simulation: state.statistics.result(problem, plan, workload.seed),
    })
}
