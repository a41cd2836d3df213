//! The controllers of a scenario: their periods, their reports, and their commands on the way back.

use super::deployment::Deployment;
use super::schedule::ChangeEvent;
use crate::error::SimulateError;
use crate::scenario::{BinCount, Controller, GroupObservation, Observation};
use crate::state::RunState;
use apportion_domain::{Moment, TimeSpan};
use apportion_serving::scaling::tuner::BIN_MIN;

/// Resolution of the arrivals in the reports of controllers.
const BIN: TimeSpan = BIN_MIN;

/// Counts since a controller's last report.
#[derive(Default)]
struct SinceReport {
    /// Offered requests, by pipeline and bin.
    arrivals: Vec<Vec<BinCount>>,
    /// What each group had done up to the last report.
    groups: Vec<GroupSums>,
}

/// What a group has done so far.
#[derive(Clone, Copy, Debug, Default)]
struct GroupSums {
    /// Busy time of its servers.
    busy: TimeSpan,
    /// Queries that joined its queues.
    joined: u64,
}

/// All controllers of one run.
pub struct Controllers<'a> {
    controllers: Vec<Box<dyn Controller + 'a>>,
    since: Vec<SinceReport>,
}

impl std::fmt::Debug for Controllers<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Controllers").field("count", &self.since.len()).finish_non_exhaustive()
    }
}

impl<'a> Controllers<'a> {
    /// Of a run with this many pipelines.
    pub fn new(controllers: Vec<Box<dyn Controller + 'a>>, pipelines: usize, groups: usize) -> Self {
        let since = |_| SinceReport { arrivals: vec![Vec::new(); pipelines], groups: vec![GroupSums::default(); groups] };
        Self { since: (0..controllers.len()).map(since).collect(), controllers }
    }

    /// How many controllers there are.
    pub fn count(&self) -> usize {
        self.controllers.len()
    }

    /// How often a controller gets a report.
    pub fn period(&self, controller: usize) -> TimeSpan {
        TimeSpan::from_nanos(self.controllers[controller].period().as_nanos().max(BIN.as_nanos()))
    }

    /// A request was offered.
    pub fn count_arrival(&mut self, pipeline: usize, now: Moment) {
        let bin = Moment::from_nanos(now.as_nanos() / BIN.as_nanos() * BIN.as_nanos());
        for since in &mut self.since {
            BinCount::add_one(&mut since.arrivals[pipeline], bin);
        }
    }

    /// A controller's period ends: its report sets out, and the next period begins.
    pub fn end_period(&mut self, controller: usize, run: &RunState, deployment: &mut Deployment<'a>) {
        let (now, period) = (run.now, self.period(controller));
        let since = &mut self.since[controller];
        let mut groups = Vec::with_capacity(deployment.replicas.groups.len());
        since.groups.resize(deployment.replicas.groups.len(), GroupSums::default());
        for (group, before) in deployment.replicas.groups.iter().zip(&mut since.groups) {
            let stations = || group.stations.iter().map(|&s| &run.serving.stations[s as usize]);
            let servers = |&s: &u32| {
                let first = run.serving.infos[s as usize].server;
                first..first + if group.is_central { group.numbered } else { group.slots }
            };
            let busy = run.statistics.busy(group.stations.iter().flat_map(servers));
            let joined = group.stations.iter().map(|&s| run.serving.infos[s as usize].joined).sum();
            let spent = busy.as_nanos().saturating_sub(before.busy.as_nanos()) as f64;
            let arrived = joined - std::mem::replace(before, GroupSums { busy, joined }).joined;
            groups.push(GroupObservation {
                pipeline: group.pipeline_name.clone(),
                group: group.name.clone(),
                ready: group.ready.len() as u32,
                loading: group.loading.len() as u32,
                queued: stations().map(|s| s.queued() as u64).sum(),
                running: stations().map(|s| s.running() as u64).sum(),
                arrived,
                utilisation: spent / (group.ready.len().max(1) as f64 * f64::from(group.slots) * period.as_nanos() as f64),
            });
        }
        let arrivals: Vec<_> = since.arrivals.iter_mut().map(std::mem::take).collect();
        let headroom = |pipeline: usize| deployment.stewards.get(pipeline).and_then(|s| s.as_ref()?.steward.headroom());
        let headrooms = (0..since.arrivals.len()).map(|pipeline| headroom(pipeline).unwrap_or(1.0)).collect();
        let outcomes = (0..arrivals.len()).map(|pipeline| run.statistics.outcomes(pipeline)).collect();
        let seen = Observation { at: now, arrivals, headrooms, outcomes, groups };
        let report = ChangeEvent::ControllerReport(controller, seen);
        deployment.schedule.push(now + deployment.scenario.report_delay, report);
        deployment.schedule.push(now + period, ChangeEvent::ControllerPeriod(controller));
    }

    /// A report has arrived: the controller's commands set out.
    ///
    /// # Errors
    /// If a command names a group that the plan does not have.
    pub fn take_report(
        &mut self,
        controller: usize,
        now: Moment,
        seen: &Observation,
        deployment: &mut Deployment<'a>,
    ) -> Result<(), SimulateError> {
        for (delay, event) in self.controllers[controller].observe(seen) {
            if let Some((pipeline, group)) = event.group()
                && deployment.replicas.find(pipeline, group).is_none()
            {
                return Err(SimulateError::unknown_group(pipeline, group));
            }
            let at = now + delay + deployment.scenario.command_delay;
            deployment.schedule.push(at, ChangeEvent::Event(event));
        }
        Ok(())
    }
}
