//! Replays a workload through a plan and says how it fares: a seeded simulation of discrete events.
//!
//! What belongs here: the agenda, arrivals, the device that takes its profiled time, the network that takes its delay, and
//! the counting of what came out. What never does: a serving policy. Queues, batches, drops and routes are decided by the
//! machines of the crate `serving`, the same that the agents run, so that a plan is proven against what will serve it.
//!
//! The commonest addition is a policy: write it in `serving`, construct it in `fleet`, and lift its refusal there.

mod adopt;
mod agenda;
pub mod analytic;
mod blueprint;
pub mod bounds;
mod changes;
mod children;
mod collect;
pub mod controllers;
mod crews;
mod driver;
mod durations;
mod ends;
mod fanout;
mod fleet;
mod floor;
mod histogram;
mod joins;
mod paths;
mod policies;
mod random;
mod reconcile;
mod requests;
mod routes;
pub mod scenario;
mod staff;
mod steering;
mod stewards;
mod workload;

use apportion_domain::{Estimate, Moment, PipelineIndex, Plan, Problem, ServingPolicy, TaskIndex};
pub use apportion_serving::modules::Foresight;
pub use apportion_serving::monitor::{Entry, Kept};
pub use apportion_serving::{DropReason, Late, Outcome};
pub use bounds::{Cut, Stop, expected_requests, expected_visits};
pub use durations::ServiceTimes;
pub use scenario::{Controller, Event, GroupSeen, ModulePeriod, Observation, OnFailure, Replay, Scenario, Window};
pub use workload::{ArrivalProcess, Arrivals, DEFAULT_SECONDS, DEFAULT_SEED, Workload, draw};

/// Why there is no result of a run.
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
    /// The pipeline or its policies ask for what is not simulated.
    #[error("pipeline {pipeline:?}: {what} cannot be simulated yet")]
    Unsupported {
        /// The pipeline.
        pipeline: String,
        /// What of it.
        what: String,
    },
    /// The run would be larger than what is simulated.
    #[error("{found:.0} {what} are more than {most:.0}")]
    TooLarge {
        /// What there is too much of.
        what: &'static str,
        /// How much there is.
        found: f64,
        /// How much may be.
        most: f64,
    },
    /// The run ended before each of its requests had an outcome, so there is nothing to tell.
    #[error("the run was cut short: {0}")]
    Cut(#[from] Cut),
}

/// What happened to one request.
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
    /// What it came to.
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
    /// What the times of batches are taken from.
    pub service: ServiceTimes,
    /// How PARD looks ahead.
    pub foresight: Foresight,
    /// End with [`Cut::Missed`] once more requests than this have missed (late, dropped or failed).
    pub misses_max: Option<u64>,
    /// End with [`Cut::Visits`] once more queries than this have been made, over all tasks. A run that is expected to make more
    /// ([`expected_visits`]) does not begin.
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

/// Replays `workload` through `plan`: every replica of the plan is warm and idle at the start, and the run ends when the last
/// request has an outcome. The same arguments give the same result.
///
/// # Errors
/// If the plan or the workload does not fit the problem, or asks for what is not simulated; if the run is too large, or cut short.
pub fn simulate(
    problem: &Problem,
    plan: &Plan,
    workload: &Workload,
    options: &SimulateOptions,
) -> Result<Simulation, SimulateError> {
    let fleet = fleet::Fleet::new(problem, plan, workload, options)?;
    let arrivals = problem.pipelines.iter().zip(&workload.traces);
    let arrivals = arrivals.map(|(p, trace)| Arrivals::new(trace, workload.arrivals, workload.seed, &p.name)).collect();
    let collect = driver::Run::new(fleet, arrivals, options).finish()?;
    let (pipelines, total, requests) = collect.result(problem, plan, workload.seed);
    let visits = total.waiting.iter().map(|w| w.queries).sum();
    Ok(Simulation { pipelines, total, requests, visits })
}

/// The same with changes: replicas come after their loading time, go, die and slow down as the scenario and its controllers have it.
/// The run starts with every replica of the plan warm.
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
    let mut fleet = fleet::Fleet::new(problem, plan, workload, options)?;
    let crews = crews::Crews::new(problem, &fleet);
    let keeps_modules = scenario.modules;
    let mut changes = changes::Changes::new(crews, scenario, std::mem::take(&mut fleet.blueprints))?;
    changes.is_served_as_asked = options.serving.is_some();
    let arrivals = problem.pipelines.iter().zip(&workload.traces);
    let arrivals = arrivals.map(|(p, trace)| Arrivals::new(trace, workload.arrivals, workload.seed, &p.name)).collect();
    let mut run = driver::Run::new(fleet, arrivals, options).with_changes(changes)?;
    if keeps_modules {
        run.steering.keep(&mut run.floor);
    }
    run.run();
    if let Some(cut) = run.cut() {
        return Err(cut.into());
    }
    let mut late = Late::default();
    run.floor.routers.iter().flatten().for_each(|router| late += router.late());
    let (mut collect, now, modules) = (run.collect, run.now, run.steering.kept());
    let mut changes = run.changes.expect("a run gives its changes back");
    if let Some(error) = changes.failed.take() {
        return Err(error);
    }
    let windows = changes.windows(now, &collect);
    collect.give_up_rest();
    let hours = now.as_millis() / 3_600_000.0;
    let (cost, served_ms) = (changes.crews.cost, changes.crews.served_ms);
    let busy_ms = collect.sums().2.as_millis();
    let invalid_rate = collect.invalid_rate();
    let (pipelines, total, requests) = collect.result(problem, plan, workload.seed);
    let visits = total.waiting.iter().map(|w| w.queries).sum();
    Ok(Replay {
        simulation: Simulation { pipelines, total, requests, visits },
        windows,
        cost,
        cost_per_hour: if hours > 0.0 { cost / hours } else { 0.0 },
        utilisation: if served_ms > 0.0 { busy_ms / served_ms } else { 0.0 },
        invalid_rate,
        late,
        changes: changes.changed,
        plans: changes.plans,
        steerings: changes.steerings,
        modules,
    })
}
