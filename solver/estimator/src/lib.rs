//! Replays a workload through a plan and estimates latency, drops, accuracy and cost: a seeded simulation of discrete
//! events.
//!
//! What belongs here: the agenda, arrivals, devices that take their profiled time, the network that takes its delay, and
//! the statistics. What never does: a serving policy. The machines of the crate `serving` decide about queues, batches,
//! drops and routes. The agents run the same machines, so a plan is checked against the code that will serve it.
//!
//! The rooms: `input` (which requests come, and when?), `compile` (problem and plan as numbers), `state` (everything that a
//! run holds at one moment), `run` (which event is next?), `change` (which replicas and plans change during a run?) and
//! [`controllers`] (policies that scale replicas between plans, as baselines). `docs/glossary.md` says each noun in one
//! line.
//!
//! The commonest addition is a policy: write it in `serving`, and construct it in `compile`.

pub mod analytic;
pub mod bench;
mod change;
mod compile;
pub mod controllers;
mod input;
mod random;
mod run;
pub mod scenario;
mod state;

use apportion_domain::{Estimate, Moment, PipelineIndex, Plan, Problem, ServingPolicy, TaskIndex};
pub use apportion_serving::modules::Foresight;
pub use apportion_serving::monitor::{Entry, Kept};
pub use apportion_serving::{DropReason, Late, Outcome};
pub use compile::size::{expected_requests, expected_visits};
pub use input::workload::{ArrivalProcess, Arrivals, DEFAULT_SECONDS, DEFAULT_SEED, Workload, draw};
pub use scenario::{Controller, Event, GroupSeen, ModulePeriod, Observation, OnFailure, Replay, Scenario, Window};

pub use state::bounds::{Cut, Stop};
pub use state::durations::ServiceTimes;

/// The bounds of a run.
pub mod bounds {
    pub use crate::compile::size::{PLACES_MAX, check_places, expected_requests, expected_visits};
    pub use crate::state::bounds::{BYTES_MAX, Cut, LOOK_EVERY, Stop};
}

use change::Changes;
use compile::CompiledPlan;
use run::Run;

/// Why a run has no result.
#[derive(Debug, thiserror::Error)]
pub enum SimulateError {
    /// The plan does not fit the problem.
    #[error("{0}")]
    Plan(String),
    /// There is not one trace for each pipeline.
    #[error("{traces} traces for {pipelines} pipelines")]
    Workload {
        /// Traces of the workload.
        traces: usize,
        /// Pipelines of the problem.
        pipelines: usize,
    },
    /// The pipeline or its policies need a feature that is not simulated.
    #[error("pipeline {pipeline:?}: {what} cannot be simulated yet")]
    Unsupported {
        /// The pipeline.
        pipeline: String,
        /// The feature.
        what: String,
    },
    /// The run would be too large.
    #[error("{found:.0} {what} are more than {most:.0}")]
    TooLarge {
        /// What there is too much of.
        what: &'static str,
        /// How much there is.
        found: f64,
        /// How much may be.
        most: f64,
    },
    /// The run ended before each of its requests had an outcome, so it has no estimate.
    #[error("the run was cut short: {0}")]
    Cut(#[from] Cut),
}

/// One request and its outcome.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestRecord {
    /// Its pipeline.
    pub pipeline: PipelineIndex,
    /// Its number in the pipeline, from 0, in the order of arrival.
    pub request: u64,
    /// When it arrived, before the hop into the root.
    pub arrival: Moment,
    /// When its last leaf ended; `None` unless it was answered.
    pub finish: Option<Moment>,
    /// Its outcome.
    pub outcome: Outcome,
    /// Where its first dropped query was dropped.
    pub drop_task: Option<TaskIndex>,
    /// Why it was dropped.
    pub reason: Option<DropReason>,
    /// Accuracy of its answer; 0 unless it was answered.
    pub accuracy: f64,
}

/// Options of a run.
#[derive(Clone, Debug, Default)]
pub struct SimulateOptions {
    /// Keep one record per request.
    pub requests: bool,
    /// Serving policy of all pipelines instead of the plan's.
    pub serving: Option<ServingPolicy>,
    /// Where the times of batches come from.
    pub service: ServiceTimes,
    /// How PARD looks ahead.
    pub foresight: Foresight,
    /// End with [`Cut::Missed`] once more requests than this have missed (late, dropped or failed).
    pub misses_max: Option<u64>,
    /// End with [`Cut::Visits`] once more queries than this have been made, over all tasks. A run that is expected to make
    /// more ([`expected_visits`]) does not begin.
    pub visits_max: Option<u64>,
    /// End with [`Cut::Stopped`] once it says so.
    pub stop: Stop,
}

/// Result of a run.
#[derive(Clone, Debug)]
pub struct Simulation {
    /// One per pipeline, in the problem's order.
    pub pipelines: Vec<Estimate>,
    /// Over all pipelines.
    pub total: Estimate,
    /// By pipeline, then by arrival; empty unless asked for.
    pub requests: Vec<RequestRecord>,
    /// Queries whose batch started, over all tasks.
    pub visits: u64,
}

/// Replays `workload` through `plan`. All replicas of the plan are warm and idle at the start. The run ends when the last
/// request has an outcome. The same arguments give the same result.
///
/// # Errors
/// If the plan or the workload does not fit the problem, or asks for what is not simulated; if the run is too large, or cut
/// short.
pub fn simulate(
    problem: &Problem,
    plan: &Plan,
    workload: &Workload,
    options: &SimulateOptions,
) -> Result<Simulation, SimulateError> {
    let state = CompiledPlan::new(problem, plan, workload, options)?.into_state(options);
    let mut run = Run::new(state, arrivals(problem, workload), None);
    run.run();
    if let Some(cut) = run.state.cut() {
        return Err(cut.into());
    }
    Ok(run.state.statistics.result(problem, plan, workload.seed))
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
    let mut changes = Changes::new(problem, &mut compiled, scenario, options.serving.is_some())?;
    let mut state = compiled.into_state(options);
    state.has_changes = true;
    changes.prepare(&mut state)?;
    if keeps_modules {
        state.modules.keep_measurements(&mut state.serving);
    }
    let mut run = Run::new(state, arrivals(problem, workload), Some(changes));
    run.run();
    if let Some(cut) = run.state.cut() {
        return Err(cut.into());
    }
    let mut changes = run.changes.expect("the changes of this run");
    if let Some(error) = changes.failed.take() {
        return Err(error);
    }
    let mut state = run.state;
    let change::ChangeResult { windows, cost, served_ms, counts } = changes.finish(&state);
    let mut late = Late::default();
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

/// The arrivals of each pipeline.
fn arrivals<'a>(problem: &Problem, workload: &'a Workload) -> Vec<Arrivals<'a>> {
    let traces = problem.pipelines.iter().zip(&workload.traces);
    traces.map(|(p, trace)| Arrivals::new(trace, workload.arrivals, workload.seed, &p.name)).collect()
}
