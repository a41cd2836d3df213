//! What changes while a run goes on: which replicas serve, and under which plan?
//!
//! Example: a plan comes at 40 s, its replicas load until 55 s, and the former plan's replicas then finish their queries.
//! [`Changes`] takes the changes that are due and hands them on. [`lifecycle`] lets replicas begin, leave and fail,
//! [`plan`] brings another plan into force, [`stewards`] and [`controllers`] carry reports and decisions, [`give_up`]
//! ends requests that have waited too long, [`time_series`] notes the results over time.

mod controllers;
mod deployment;
mod give_up;
mod lifecycle;
mod plan;
mod policies;
mod reconcile;
mod replicas;
mod routers;
mod schedule;
mod stations;
mod steward_state;
mod stewards;
mod time_series;

use crate::compile::CompiledPlan;
use crate::error::SimulateError;
use crate::result::Window;
use crate::scenario::{Scenario, ScenarioEvent};
use crate::state::bounds::CutReason;
use crate::state::requests::RequestKey;
use crate::state::{RunState, SlowReplica};
use apportion_domain::{GroupName, Moment, Problem, TimeSpan};
use apportion_serving::patience::patience;
use controllers::Controllers;
pub use deployment::PolicySource;
use deployment::{ChangeCounts, Deployment};
use give_up::GiveUps;
use lifecycle::Lifecycle;
use plan::PlanSwitch;
use replicas::{ReplicaLocation, Replicas};
use schedule::{ChangeEvent, Schedule};
use stewards::Stewardship;
use time_series::TimeSeries;

/// A run whose replicas change gives up the requests in flight when nothing else has happened for this long.
const STALL_MAX: TimeSpan = TimeSpan::from_nanos(3_600_000_000_000);

/// The changes of one run.
#[derive(Debug)]
pub struct Changes<'a> {
    deployment: Deployment<'a>,
    controllers: Controllers<'a>,
    series: TimeSeries,
    /// `None` if requests wait for ever.
    give_ups: Option<GiveUps>,
    /// When queries last waited for something other than a change.
    last_work: Moment,
    /// Why the run cannot go on.
    pub failed: Option<SimulateError>,
}

impl<'a> Changes<'a> {
    /// Before the first event of a run that starts with this plan.
    ///
    /// # Errors
    /// If an event names a group that no plan assigns.
    pub fn new(
        problem: &Problem,
        compiled: &mut CompiledPlan<'a>,
        mut scenario: Scenario<'a>,
        policies: PolicySource,
    ) -> Result<Self, SimulateError> {
        let replicas = Replicas::new(problem, compiled);
        let plans = std::mem::take(&mut compiled.compilers);
        let events = std::mem::take(&mut scenario.events);
        refuse_unknown_groups(&replicas, &events)?;
        let controllers = std::mem::take(&mut scenario.controllers);
        let controllers = Controllers::new(controllers, plans.len(), replicas.groups.len());
        let series = TimeSeries::new(TimeSpan::from_nanos(scenario.window.as_nanos().max(1)));
        let give_ups = scenario.gives_up.then(GiveUps::default);
        let mut schedule = Schedule::default();
        events.into_iter().for_each(|(at, event)| schedule.push(at, ChangeEvent::Event(event)));
        for at in 0..controllers.count() {
            schedule.push(Moment::ZERO + controllers.period(at), ChangeEvent::ControllerPeriod(at));
        }
        schedule.push(series.window_end(), ChangeEvent::WindowEnd);
        let (stewards, counts) = (Vec::new(), ChangeCounts::default());
        let deployment = Deployment { replicas, plans, stewards, schedule, scenario, policies, counts };
        Ok(Self { deployment, controllers, series, give_ups, last_work: Moment::ZERO, failed: None })
    }

    /// Prepares the run: routers get the plan of the start, and stewards begin.
    ///
    /// # Errors
    /// If a steward cannot serve its pipeline.
    pub fn prepare(&mut self, run: &mut RunState) -> Result<(), SimulateError> {
        self.deployment.routers(run).plan_all();
        Stewardship { run, deployment: &mut self.deployment }.start_all()
    }

    /// When the next change happens. If nothing else is left in the run, only while `in_flight` requests may hope for it.
    pub fn next(&mut self, work: Moment, now: Moment, in_flight: usize) -> Moment {
        if work != Moment::NEVER {
            self.last_work = now;
        }
        let next = self.deployment.schedule.next().min(self.deployment.replicas.next_ready());
        let next = self.give_ups.as_ref().map_or(next, |give_ups| next.min(give_ups.next()));
        let is_idle = work == Moment::NEVER && (in_flight == 0 || next.since(self.last_work) > STALL_MAX);
        if is_idle { Moment::NEVER } else { next }
    }

    /// Whether some replica finishes its queries before it leaves.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.deployment.replicas.is_draining()
    }

    /// A request was offered.
    pub fn count_arrival(&mut self, pipeline: usize, now: Moment) {
        if let Some(Some(steward)) = self.deployment.stewards.get_mut(pipeline) {
            steward.count_arrival(now);
        }
        self.controllers.count_arrival(pipeline, now);
    }

    /// A request has come that waits so long for its answer, if requests are given up.
    #[inline]
    pub fn watch(&mut self, request: RequestKey, now: Moment, slo: TimeSpan) {
        if let Some(give_ups) = &mut self.give_ups {
            give_ups.watch(request.pipeline as usize, now + patience(slo), request);
        }
    }

    /// Carries out all changes that are due.
    #[cold]
    pub fn carry_out(&mut self, run: &mut RunState) {
        self.deployment.replicas.add_costs(run.now);
        if let Some(give_ups) = &mut self.give_ups {
            give_ups.act(run);
        }
        while let Some(event) = self.deployment.schedule.pop(run.now) {
            if let Err(error) = self.carry_out_one(run, event) {
                self.failed.get_or_insert(error);
            }
        }
        Lifecycle { run, deployment: &mut self.deployment }.reconcile();
        run.serving.count_new();
    }

    fn carry_out_one(&mut self, run: &mut RunState, event: ChangeEvent) -> Result<(), SimulateError> {
        let deployment = &mut self.deployment;
        match event {
            ChangeEvent::Event(event) => return self.apply_event(run, &event),
            ChangeEvent::ControllerPeriod(controller) => self.controllers.end_period(controller, run, deployment),
            ChangeEvent::ControllerReport(controller, seen) => {
                return self.controllers.take_report(controller, run.now, &seen, deployment);
            }
            ChangeEvent::FailureNoticed { group, replica } => Lifecycle { run, deployment }.notice_failure(group, replica),
            ChangeEvent::StewardPeriod => Stewardship { run, deployment }.send_reports(),
            ChangeEvent::StewardReport(report) => Stewardship { run, deployment }.take_report(*report),
            ChangeEvent::Steering(command) => Stewardship { run, deployment }.apply(*command),
            ChangeEvent::InTransitArrived => {}
            ChangeEvent::WindowEnd => {
                self.series.close_window(run.now, &mut deployment.replicas, &run.statistics);
                deployment.schedule.push(self.series.window_end(), ChangeEvent::WindowEnd);
                if deployment.scenario.cost_max.is_some_and(|most| deployment.replicas.cost > most) {
                    run.serving.bounds.cut_short(CutReason::Cost);
                }
            }
        }
        Ok(())
    }

    fn apply_event(&mut self, run: &mut RunState, event: &ScenarioEvent) -> Result<(), SimulateError> {
        let deployment = &mut self.deployment;
        if let ScenarioEvent::Plan { plan } = event {
            return PlanSwitch { run, deployment }.switch_to(plan);
        }
        let found = event.group().and_then(|(pipeline, group)| deployment.replicas.find(pipeline, group));
        let Some(at) = found else { return Ok(()) };
        let group = &mut deployment.replicas.groups[at];
        let nth_ready = |number: u32| -> Option<ReplicaLocation> {
            group.ready.get(number.checked_rem(group.ready.len() as u32)? as usize).copied()
        };
        match *event {
            ScenarioEvent::Plan { .. } => {}
            // A command that was given before the plan changed may name a group that the plan does not have.
            ScenarioEvent::Replicas { .. } if !group.is_planned => {}
            ScenarioEvent::Replicas { replicas, .. } => {
                deployment.counts.replicas += u64::from(group.wanted != replicas.max(1));
                group.wanted = replicas.max(1);
            }
            ScenarioEvent::Slow { replica, factor, until, .. } => {
                if let Some(replica) = nth_ready(replica) {
                    let (station, servers) = (replica.station, group.servers(replica));
                    run.slow.add(run.now, SlowReplica { station, servers, factor, until });
                }
            }
            ScenarioEvent::Fail { replica, .. } => {
                if let Some(replica) = nth_ready(replica) {
                    Lifecycle { run, deployment }.fail(at, replica);
                }
            }
        }
        Ok(())
    }

    /// The time series and the sums of the changes, at the end of the run.
    pub fn finish(mut self, run: &RunState) -> ChangeResult {
        let windows = self.series.finish(run.now, &mut self.deployment.replicas, &run.statistics);
        let Replicas { cost, served_ms, .. } = self.deployment.replicas;
        ChangeResult { windows, cost, served_ms, counts: self.deployment.counts }
    }
}

/// The results of the changes of a run.
#[derive(Debug)]
pub struct ChangeResult {
    /// The time series.
    pub windows: Vec<Window>,
    /// The cost of all devices, from start to end.
    pub cost: f64,
    /// Replica-milliseconds served.
    pub served_ms: f64,
    /// Changes that were carried out.
    pub counts: ChangeCounts,
}

/// Refuses events about groups that no plan of the scenario assigns.
fn refuse_unknown_groups(replicas: &Replicas, events: &[(Moment, ScenarioEvent)]) -> Result<(), SimulateError> {
    let is_planned = |pipeline: &str, group: &GroupName| {
        let plans = events.iter().filter_map(|(_, e)| if let ScenarioEvent::Plan { plan } = e { Some(plan) } else { None });
        let mut parts = plans.filter_map(|plan| plan.pipeline(pipeline));
        parts.any(|part| part.assignments.iter().any(|a| a.group == *group))
    };
    for (pipeline, group) in events.iter().filter_map(|(_, event)| event.group()) {
        if replicas.find(pipeline, group).is_none() && !is_planned(pipeline, group) {
            return Err(SimulateError::unknown_group(pipeline, group));
        }
    }
    Ok(())
}
