//! What did a side's replicas cost, and how did they serve the load?
//!
//! The requests are replayed by the estimator through the replicas that were ready, at the moments at which the Kubernetes
//! API said so. Both sides get the same requests and the same serving policies.

use super::fleet_log::PodRecord;
use super::groups::BenchGroup;
use super::load::OfferedTrace;
use super::syncs::ComparedSpan;
use anyhow::{Context, Result, ensure};
use apportion_domain::{ArrivalTrace, Moment, Plan, Problem};
use apportion_estimator::{ArrivalProcess, Scenario, ScenarioEvent, SimulateOptions, Workload, replay};
use serde::Serialize;
use std::time::Duration;

const SECONDS_PER_HOUR: f64 = 3_600.0;

/// How a side served, and for how much.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ServedLoad {
    /// Seconds of all Pods, from creation to end, whether they were ready or not.
    pub replica_seconds: f64,
    /// Their price.
    pub cost: f64,
    /// Share of the requests that were answered within the SLO.
    pub attainment: f64,
    /// Median latency of answered requests.
    pub p50_ms: f64,
    /// 99th percentile of these latencies.
    pub p99_ms: f64,
}

/// The replicas of a group that were ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadyHistory {
    /// At the start of the load.
    pub at_start: u32,
    /// From these moments on, from the start of the load.
    pub later: Vec<ReadyReplicas>,
}

/// Ready replicas from one moment on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadyReplicas {
    /// The moment.
    pub at: Duration,
    /// How many.
    pub ready: u32,
}

impl ReadyHistory {
    /// Of these Pods, in this span.
    pub fn of(pods: &[&PodRecord], span: ComparedSpan) -> Self {
        let ready_at = |at: Duration| {
            let serves = |pod: &&&PodRecord| pod.ready.is_some_and(|r| r <= at) && pod.gone.is_none_or(|gone| gone > at);
            pods.iter().filter(serves).count() as u32
        };
        let mut moments: Vec<Duration> = pods.iter().flat_map(|pod| [pod.ready, pod.gone]).flatten().collect();
        moments.retain(|at| *at > span.from && *at < span.until);
        moments.sort_unstable();
        moments.dedup();
        let count = |at: Duration| ReadyReplicas { at: at.saturating_sub(span.from), ready: ready_at(at) };
        let mut later: Vec<ReadyReplicas> = moments.into_iter().map(count).collect();
        let at_start = ready_at(span.from);
        let mut before = at_start;
        later.retain(|count| std::mem::replace(&mut before, count.ready) != count.ready);
        Self { at_start, later }
    }
}

/// What both sides are judged on.
pub struct SideJudge<'a> {
    /// The problem, with the time that replicas take to load.
    pub problem: &'a Problem,
    /// A plan with the groups, whatever their replicas.
    pub plan: &'a Plan,
    /// The groups.
    pub groups: &'a [BenchGroup],
    /// The requests.
    pub trace: &'a OfferedTrace,
    /// The span of the load.
    pub span: ComparedSpan,
    /// Seed of the replay.
    pub seed: u64,
}

impl SideJudge<'_> {
    /// Judges the Pods of one side.
    ///
    /// # Errors
    /// If a group had no ready replica at the start, or the replay fails.
    pub fn judge(&self, pods: &[&PodRecord]) -> Result<ServedLoad> {
        let seconds = |pod: &PodRecord| pod.seconds(self.span.from, self.span.until);
        let (mut replica_seconds, mut cost) = (0.0, 0.0);
        let (mut plan, mut events) = (self.plan.clone(), Vec::new());
        for group in self.groups {
            let is_of_group = |pod: &&PodRecord| pod.workload.name == group.autoscaler.workload;
            let pods: Vec<&PodRecord> = pods.iter().copied().filter(is_of_group).collect();
            let held: f64 = pods.iter().map(|pod| seconds(pod)).sum();
            replica_seconds += held;
            cost += held * group.price_per_hour / SECONDS_PER_HOUR;
            let history = ReadyHistory::of(&pods, self.span);
            ensure!(history.at_start > 0, "{}: no replica was ready at the start of the load", group.name);
            let mut assignments = plan.pipelines[0].assignments.iter_mut();
            let planned = assignments.find(|a| a.group == group.name).context("the plan lacks a group")?;
            planned.replicas = history.at_start;
            events.extend(history.later.iter().map(|count| self.event(group, *count)));
        }
        let problem = without_loading(self.problem)?;
        let traces = vec![ArrivalTrace::arrivals(self.trace.moments())?];
        let workload = Workload { traces, arrivals: ArrivalProcess::Poisson, seed: self.seed };
        let scenario = Scenario { events, ..Scenario::default() };
        let run = replay(&problem, &plan, &workload, &SimulateOptions::default(), scenario)?;
        let estimate = &run.simulation.pipelines[0];
        let (attainment, p50_ms, p99_ms) = (estimate.attainment, estimate.p50_ms, estimate.p99_ms);
        Ok(ServedLoad { replica_seconds, cost, attainment, p50_ms, p99_ms })
    }

    fn event(&self, group: &BenchGroup, count: ReadyReplicas) -> (Moment, ScenarioEvent) {
        let pipeline = self.problem.pipelines[0].name.clone();
        let at = Moment::from_nanos(count.at.as_nanos() as u64);
        (at, ScenarioEvent::Replicas { pipeline, group: group.name.clone(), replicas: count.ready })
    }
}

/// The problem with replicas that serve at once: the log says when they were ready.
fn without_loading(problem: &Problem) -> Result<Problem> {
    let pipeline = problem.pipelines[0].changed(&problem.hardware, |draft| {
        draft.tasks.iter_mut().flat_map(|task| &mut task.variants).for_each(|variant| variant.load_ms = 0.0);
    })?;
    Ok(problem.changed(|draft| draft.pipelines = vec![pipeline])?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hpa::workload::{BenchWorkload, ScalingSide};

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn pod(created: u64, gone: Option<u64>) -> PodRecord {
        PodRecord {
            workload: BenchWorkload { side: ScalingSide::Service, name: "find-l".into() },
            name: "a".into(),
            created: s(created),
            ready: Some(s(created + 5)),
            gone: gone.map(s),
        }
    }

    #[test]
    fn ready_replicas_are_counted_from_the_load() {
        let served = [pod(10, None), pod(20, Some(130)), pod(110, None), pod(190, None)];
        let mut never_ready = pod(120, Some(122));
        never_ready.ready = None;
        let pods: Vec<&PodRecord> = served.iter().chain([&never_ready]).collect();
        let found = ReadyHistory::of(&pods, ComparedSpan { from: s(100), until: s(190) });
        let count = |at: u64, ready| ReadyReplicas { at: s(at), ready };
        assert_eq!(found, ReadyHistory { at_start: 2, later: vec![count(15, 3), count(30, 2)] });
    }

    #[test]
    fn a_replacement_in_the_same_moment_is_no_change() {
        let pods = [pod(10, Some(125)), pod(120, None)];
        let found = ReadyHistory::of(&pods.iter().collect::<Vec<_>>(), ComparedSpan { from: s(100), until: s(190) });
        assert_eq!(found, ReadyHistory { at_start: 1, later: Vec::new() });
    }
}
