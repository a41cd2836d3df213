//! What does the estimator say of a load that was played?

use super::figures::Figures;
use super::idle_start::{IdleStart, LEAD, RUNS};
use anyhow::{Context, Result, ensure};
use apportion_domain::{ArrivalTrace, PipelineIndex, Plan, Problem};
use apportion_estimator::{ArrivalProcess, Arrivals, IngressSettings, Scenario, ScenarioEvent, SimulateOptions, replay};
use apportion_serving::headroom_controller::{HeadroomController, PROMISE};
use apportion_serving::ladder::Headroom;
use std::time::Duration;

/// Arrivals at these rates, one rate for each second, Poisson within a second.
pub fn poisson_arrivals(rates: Vec<(u64, f64)>, seed: u64) -> Result<Vec<Duration>> {
    let trace = ArrivalTrace::rates(rates)?;
    let drawn = Arrivals::new(&trace, ArrivalProcess::Poisson, seed, "demo");
    Ok(drawn.map(|at| Duration::from_nanos(at.as_nanos())).collect())
}

/// A plan that came into force.
#[derive(Clone)]
pub struct PlanStart {
    /// Its first moment, from the start of the load.
    pub at: Duration,
    /// The plan.
    pub plan: Plan,
}

/// A load that was played, as the estimator replays it.
pub struct PlayedLoad<'a> {
    /// The pipelines and the hardware.
    pub problem: &'a Problem,
    /// The pipeline that gets the load.
    pub index: PipelineIndex,
    /// The plans in force. The first plan is in force before the load.
    pub plans: &'a [PlanStart],
    /// The load.
    pub arrivals: &'a [Duration],
    /// The moments when the rate changes.
    pub steps: &'a [Duration],
    /// Times of a hop in ms, at least one. Runs take them in turns.
    pub hops_ms: &'a [f64],
    /// Ingresses that clients use in turn.
    pub ingresses: u32,
}

impl PlayedLoad<'_> {
    /// Replays the arrivals through the plans. A plan begins at the moment when it came into force, with all queued queries
    /// and all replicas that load or unload. Between plans, stewards add replicas on spare devices, as the stewards of
    /// agents do. The misses move the headroom of ladders, as in agents by default. Runs differ in the children of queries
    /// and in the time of a hop.
    ///
    /// # Errors
    /// If a plan does not fit the problem.
    pub fn estimate_runs(&self) -> Result<Vec<Figures>> {
        let (first, later) = self.plans.split_first().context("no plan was in force")?;
        let ingresses = IngressSettings::in_turn(self.ingresses);
        let options = SimulateOptions { requests: true, ingresses, ..SimulateOptions::default() };
        let with_hop = |hop_ms: &f64| {
            let hardware = &self.problem.hardware;
            self.problem.changed(|draft| {
                let at = self.index.get();
                if let Ok(pipeline) = draft.pipelines[at].changed(hardware, |of| of.network_ms = *hop_ms) {
                    draft.pipelines[at] = pipeline;
                }
            })
        };
        let problems = self.hops_ms.iter().map(with_hop).collect::<Result<Vec<_>, _>>()?;
        ensure!(!problems.is_empty(), "a hop takes a time");
        let run = |seed: u64| -> Result<Figures> {
            let problem = &problems[seed as usize % problems.len()];
            let begin = IdleStart::of_run(LEAD, seed);
            let workload = begin.workload(problem, self.index, self.arrivals)?;
            let event = |start: &PlanStart| (begin.moment(start.at), ScenarioEvent::Plan { plan: start.plan.clone() });
            let events = later.iter().map(event).collect();
            let headroom = Headroom::Feedback(Box::new(HeadroomController::new(PROMISE)));
            let as_agents = Scenario { steward: true, ladders: true, tuners: true, gives_up: true, ..Scenario::default() };
            let scenario = Scenario { events, headroom, ..as_agents };
            let run = replay(problem, &first.plan, &workload, &options, scenario)?;
            Ok(Figures::of(&begin.results(&run.simulation, problem, self.index), self.steps))
        };
        (1..=RUNS).map(run).collect()
    }
}
