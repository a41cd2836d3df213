//! The results of a run, in memory that does not grow with the trace.

use super::classes::ClassSeries;
use super::histogram::Histogram;
use super::journal::Journal;
use super::query::SimulatedQuery;
use super::requests::ClosedRequest;
use crate::result::{RequestRecord, Simulation};
use apportion_domain::{
    Estimate, EstimateMethod, Moment, Partial, PipelineIndex, Plan, Problem, TaskIndex, TaskWaiting, TimeSpan,
};
use apportion_serving::error_budget::OutcomeCount;
use apportion_serving::{RequestOutcome, Waiting};
use std::ops::Range;

/// Requests of one pipeline, or of several.
#[derive(Clone, Debug, Default)]
struct RequestStatistics {
    arrived: u64,
    counts: [u64; 4],
    latency: Histogram,
    accuracy_sum: f64,
}

/// Queries of one task.
#[derive(Clone, Debug, Default)]
struct TaskStatistics {
    waiting: Histogram,
    batches: u64,
    service_ns: u128,
    batch_wait_ns: u128,
}

/// A task of the problem, by name.
#[derive(Clone, Debug)]
pub struct TaskName {
    /// The number of its pipeline.
    pub pipeline: u32,
    /// Its name there.
    pub task: String,
}

/// The use of one server.
#[derive(Clone, Copy, Debug, Default)]
struct ServerUse {
    busy: TimeSpan,
    /// The task that it serves.
    task: u32,
}

/// Device time of a run with changes.
#[derive(Clone, Copy, Debug, Default)]
struct DeviceTime {
    /// Of all batches.
    all: TimeSpan,
    /// Of requests that were not answered in time.
    invalid: TimeSpan,
}

/// A request that has its last answer, and of which nothing was dropped.
#[derive(Clone, Copy, Debug)]
pub struct AnsweredRequest {
    /// When it arrived.
    pub arrival: Moment,
    /// When it should be answered.
    pub deadline: Moment,
    /// The accuracy of its answer.
    pub accuracy: f64,
}

/// A batch that starts.
#[derive(Clone, Copy, Debug)]
pub struct StartedBatch {
    /// Its task, among all tasks of the problem.
    pub task: u32,
    /// Its server, among all servers.
    pub server: u32,
    /// The present.
    pub now: Moment,
    /// How long it runs.
    pub service: TimeSpan,
    /// PARD's batch wait, summed over its members.
    pub batch_wait: TimeSpan,
}

/// Sums of a run so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunSums {
    /// Requests that arrived.
    pub arrived: u64,
    /// Requests by outcome.
    pub counts: [u64; 4],
    /// Device time spent on batches; 0 in runs without changes.
    pub busy: TimeSpan,
}

/// The choices of a caller that concern results.
#[derive(Clone, Copy, Debug)]
pub struct KeptResults {
    /// Whether one record per request is kept.
    pub has_requests: bool,
    /// The length of the windows in which requests are counted by class; `None`: they are not.
    pub class_window: Option<TimeSpan>,
    /// Requests that may miss before the run ends; `None` for any number.
    pub misses_max: Option<u64>,
}

/// The counts of a run.
#[derive(Clone, Debug)]
pub struct Statistics {
    pipelines: Vec<RequestStatistics>,
    tasks: Vec<TaskStatistics>,
    task_names: Vec<TaskName>,
    servers: Vec<ServerUse>,
    records: Option<Vec<RequestRecord>>,
    classes: Option<ClassSeries>,
    spent: DeviceTime,
    misses: u64,
    misses_max: u64,
    first: Moment,
    last: Moment,
    /// The length of runs that were merged into this one.
    merged: TimeSpan,
}

impl Statistics {
    /// Nothing yet.
    #[must_use]
    pub fn new(pipelines: usize, tasks: Vec<TaskName>, servers: u32, kept: KeptResults) -> Self {
        Self {
            pipelines: vec![RequestStatistics::default(); pipelines],
            tasks: vec![TaskStatistics::default(); tasks.len()],
            task_names: tasks,
            servers: vec![ServerUse::default(); servers as usize],
            records: kept.has_requests.then(Vec::new),
            classes: kept.class_window.map(|window| ClassSeries::new(pipelines, window)),
            spent: DeviceTime::default(),
            misses: 0,
            misses_max: kept.misses_max.unwrap_or(u64::MAX),
            first: Moment::NEVER,
            last: Moment::ZERO,
            merged: TimeSpan::ZERO,
        }
    }

    /// Adds another run of the same plan, or the accounts that another thread kept of this one. Both have no changes, no
    /// records and no classes over time.
    pub fn merge(&mut self, other: &Self) {
        debug_assert_eq!(self.servers.len(), other.servers.len(), "runs of the same plan without changes");
        self.pipelines.iter_mut().zip(&other.pipelines).for_each(|(own, more)| own.merge(more));
        self.tasks.iter_mut().zip(&other.tasks).for_each(|(own, more)| own.merge(more));
        for (own, more) in self.servers.iter_mut().zip(&other.servers) {
            own.busy = own.busy + more.busy;
            // a server without a batch does not know its task
            own.task = own.task.max(more.task);
        }
        self.merged = self.merged + other.length();
    }

    /// From the first arrival to the end of the last batch, over all merged runs.
    fn length(&self) -> TimeSpan {
        self.merged + self.last.since(self.first.min(self.last))
    }

    /// The requests of a pipeline that have an outcome so far.
    pub fn outcomes(&self, pipeline: usize) -> OutcomeCount {
        let counts = &self.pipelines[pipeline].counts;
        let in_time = counts[RequestOutcome::Ok as usize];
        OutcomeCount { in_time, missed: counts.iter().sum::<u64>() - in_time }
    }

    /// By pipeline, the requests that arrived, and those answered within the SLO.
    pub fn requests(&self) -> impl ExactSizeIterator<Item = (u64, u64)> + '_ {
        self.pipelines.iter().map(|p| (p.arrived, p.counts[RequestOutcome::Ok as usize]))
    }

    /// A request of this pipeline arrived. Returns its number among the requests of the pipeline, from 0.
    #[inline]
    pub fn count_arrival(&mut self, pipeline: usize, now: Moment) -> u64 {
        self.first = self.first.min(now);
        if let Some(classes) = &mut self.classes {
            classes.count_arrival(pipeline, now);
        }
        let of_pipeline = &mut self.pipelines[pipeline];
        of_pipeline.arrived += 1;
        of_pipeline.arrived - 1
    }

    /// A server started a batch. The waits of its members go into the journal, if there is one.
    #[inline]
    pub fn count_start(&mut self, batch: StartedBatch, members: &[Waiting<SimulatedQuery>], journal: Option<&mut Journal>) {
        let StartedBatch { task, server, now, service, batch_wait } = batch;
        let of_server = &mut self.servers[server as usize];
        of_server.busy = of_server.busy + service;
        of_server.task = task;
        self.last = self.last.max(now + service);
        let of_task = &mut self.tasks[task as usize];
        of_task.batches += 1;
        of_task.batch_wait_ns += u128::from(batch_wait.as_nanos());
        of_task.service_ns += members.len() as u128 * u128::from(service.as_nanos());
        let waits = members.iter().map(|m| elapsed(m.arrived, now));
        match journal {
            None => of_task.waiting.add_all(waits),
            Some(journal) => journal.note_start(task, waits),
        }
    }

    /// Queries of this task have waited for so long.
    pub fn count_waits(&mut self, task: u32, waits: impl ExactSizeIterator<Item = TimeSpan>) {
        self.tasks[task as usize].waiting.add_all(waits);
    }

    /// The query of a slot has left before its end: its server is free for the rest of its time.
    #[cold]
    pub fn count_left(&mut self, server: u32, rest: TimeSpan) {
        let busy = &mut self.servers[server as usize].busy;
        *busy = TimeSpan::from_nanos(busy.as_nanos().saturating_sub(rest.as_nanos()));
    }

    /// A request has its outcome.
    #[inline]
    pub fn count_outcome(&mut self, closed: ClosedRequest<'_>, partial: Partial) {
        let ClosedRequest { request, accuracy } = closed;
        let outcome = request.progress.outcome(request.deadline, partial);
        let of_pipeline = &mut self.pipelines[request.pipeline as usize];
        of_pipeline.counts[outcome as usize] += 1;
        if outcome != RequestOutcome::Ok {
            self.misses += 1;
            self.spent.invalid = self.spent.invalid + request.spent;
        }
        if let Some(classes) = &mut self.classes {
            classes.count_outcome(request, outcome);
        }
        let finish = request.progress.end();
        if outcome.is_answered() {
            of_pipeline.latency.add(finish.since(request.arrival));
            of_pipeline.accuracy_sum += accuracy.unwrap_or(0.0);
        }
        if let Some(records) = &mut self.records {
            records.push(RequestRecord {
                pipeline: PipelineIndex(request.pipeline as usize),
                request: request.number,
                arrival: request.arrival,
                finish: outcome.is_answered().then_some(finish),
                outcome,
                drop_task: request.drop_task.map(|t| TaskIndex(t as usize)),
                reason: request.progress.drop_reason(),
                accuracy: accuracy.filter(|_| outcome.is_answered()).unwrap_or(0.0),
            });
        }
    }

    /// Whether only sums are kept, without a record of each request and without classes over time.
    #[inline]
    pub fn keeps_sums_only(&self) -> bool {
        self.records.is_none() && self.classes.is_none()
    }

    /// Whether requests are counted by class.
    #[inline]
    pub fn keeps_classes(&self) -> bool {
        self.classes.is_some()
    }

    /// Requests of one pipeline have their last answer `now`.
    #[inline(always)]
    pub fn count_answers(&mut self, pipeline: usize, now: Moment, answers: impl ExactSizeIterator<Item = AnsweredRequest>) {
        let of_pipeline = &mut self.pipelines[pipeline];
        let (all, mut ok, mut accuracy_sum) = (answers.len() as u64, 0, of_pipeline.accuracy_sum);
        of_pipeline.latency.add_all(answers.map(|AnsweredRequest { arrival, deadline, accuracy }| {
            ok += u64::from(now <= deadline);
            accuracy_sum += accuracy;
            elapsed(arrival, now)
        }));
        of_pipeline.accuracy_sum = accuracy_sum;
        of_pipeline.counts[RequestOutcome::Ok as usize] += ok;
        of_pipeline.counts[RequestOutcome::Late as usize] += all - ok;
        self.misses += all - ok;
    }

    /// Device time was spent on a batch. Only runs with changes count it.
    pub fn count_device_time(&mut self, service: TimeSpan) {
        self.spent.all = self.spent.all + service;
    }

    /// Device time spent on requests that were not answered in time, over all that was spent.
    pub fn invalid_rate(&self) -> f64 {
        let (all, invalid) = (self.spent.all.as_nanos(), self.spent.invalid.as_nanos());
        if all == 0 { 0.0 } else { invalid as f64 / all as f64 }
    }

    /// Requests that arrived, requests by outcome, device time spent: so far.
    pub fn sums(&self) -> RunSums {
        let mut counts = [0; 4];
        self.pipelines.iter().for_each(|p| counts.iter_mut().zip(p.counts).for_each(|(a, b)| *a += b));
        RunSums { arrived: self.pipelines.iter().map(|p| p.arrived).sum(), counts, busy: self.spent.all }
    }

    /// Requests that never got an outcome, because no replica was left for them, have failed.
    pub fn fail_unfinished(&mut self) {
        for of_pipeline in &mut self.pipelines {
            let ended: u64 = of_pipeline.counts.iter().sum();
            of_pipeline.counts[RequestOutcome::Failed as usize] += of_pipeline.arrived - ended;
        }
        if let Some(classes) = &mut self.classes {
            classes.fail_unfinished();
        }
    }

    /// Busy time of these servers.
    pub fn busy(&self, servers: impl Iterator<Item = u32>) -> TimeSpan {
        servers.fold(TimeSpan::ZERO, |sum, server| sum + self.servers[server as usize].busy)
    }

    /// Numbers for `count` servers, of which the first ones had the numbers `old`. Returns the first number.
    pub fn add_servers(&mut self, old: Range<u32>, count: u32) -> u32 {
        let first = self.servers.len();
        for at in 0..count {
            let before = old.start + at;
            let is_old = old.contains(&before);
            let moved = if is_old { std::mem::take(&mut self.servers[before as usize]) } else { ServerUse::default() };
            self.servers.push(moved);
        }
        first as u32
    }

    /// How many requests have missed their SLO, if these are more than the caller's bound.
    #[must_use]
    pub fn too_many_missed(&self) -> Option<u64> {
        self.has_too_many_misses().then_some(self.misses)
    }

    /// Whether more requests have missed their SLO than the caller's bound.
    #[inline]
    #[must_use]
    pub fn has_too_many_misses(&self) -> bool {
        self.misses > self.misses_max
    }

    /// The estimates by pipeline and over all pipelines, and the records by pipeline and arrival.
    #[must_use]
    pub fn result(self, problem: &Problem, plan: &Plan, seed: u64) -> Simulation {
        let waiting = self.waiting(problem);
        let mut total = RequestStatistics::default();
        let mut estimates = Vec::with_capacity(self.pipelines.len());
        for (of_pipeline, p) in self.pipelines.iter().zip(&problem.pipelines) {
            total.merge(of_pipeline);
            let tasks = waiting.iter().filter(|w| w.pipeline == p.name).cloned().collect();
            let cost = if plan.pipelines.len() == 1 { plan.cost_per_hour } else { cost_per_hour(problem, plan, &p.name) };
            estimates.push(of_pipeline.estimate(seed, cost, tasks));
        }
        let mut records = self.records.unwrap_or_default();
        records.sort_unstable_by_key(|r| (r.pipeline, r.request));
        let total = total.estimate(seed, plan.cost_per_hour, waiting);
        let visits = total.waiting.iter().map(|w| w.queries).sum();
        let classes = self.classes.map(ClassSeries::finish).unwrap_or_default();
        Simulation { pipelines: estimates, total, requests: records, classes, visits }
    }

    fn waiting(&self, problem: &Problem) -> Vec<TaskWaiting> {
        let length = self.length().as_nanos().max(1) as f64;
        let mut busiest = vec![TimeSpan::ZERO; self.tasks.len()];
        for &ServerUse { busy, task } in &self.servers {
            busiest[task as usize] = busiest[task as usize].max(busy);
        }
        let mean = |sum: f64, n: u64| if n == 0 { 0.0 } else { sum / n as f64 };
        let of_task = |(t, name): (usize, &TaskName)| {
            let task = &self.tasks[t];
            let queries = task.waiting.total();
            TaskWaiting {
                pipeline: problem.pipelines[name.pipeline as usize].name.clone(),
                task: name.task.clone(),
                queries,
                mean_ms: task.waiting.mean_ms(),
                p99_ms: task.waiting.percentile_ms(0.99),
                queueing_ms: task.waiting.mean_ms() - mean(task.batch_wait_ns as f64 / 1e6, queries),
                batch_wait_ms: mean(task.batch_wait_ns as f64 / 1e6, queries),
                service_ms: mean(task.service_ns as f64 / 1e6, queries),
                batch: mean(queries as f64, task.batches),
                utilisation: busiest[t].as_nanos() as f64 / length,
            }
        };
        self.task_names.iter().enumerate().map(of_task).collect()
    }
}

/// The time since an earlier moment, without a check.
#[inline(always)]
fn elapsed(then: Moment, now: Moment) -> TimeSpan {
    debug_assert!(then <= now, "{then} is after {now}");
    TimeSpan::from_nanos(now.as_nanos().wrapping_sub(then.as_nanos()))
}

/// Price of the shares of devices that one pipeline has.
fn cost_per_hour(problem: &Problem, plan: &Plan, pipeline: &str) -> f64 {
    let assignments = plan.pipeline(pipeline).into_iter().flat_map(|p| &p.assignments);
    let price = |name: &str| problem.hardware_named(name).map_or(0.0, |h| problem.hardware_at(h).price_per_hour);
    assignments.map(|a| price(&a.group.hardware) * a.group.share.value() * f64::from(a.replicas)).sum()
}

impl TaskStatistics {
    fn merge(&mut self, other: &Self) {
        self.waiting.merge(&other.waiting);
        self.batches += other.batches;
        self.service_ns += other.service_ns;
        self.batch_wait_ns += other.batch_wait_ns;
    }
}

impl RequestStatistics {
    fn merge(&mut self, other: &Self) {
        self.arrived += other.arrived;
        self.counts.iter_mut().zip(other.counts).for_each(|(a, b)| *a += b);
        self.latency.merge(&other.latency);
        self.accuracy_sum += other.accuracy_sum;
    }

    fn estimate(&self, seed: u64, cost_per_hour: f64, waiting: Vec<TaskWaiting>) -> Estimate {
        let ok = self.counts[RequestOutcome::Ok as usize];
        let answered = self.latency.total();
        Estimate {
            method: EstimateMethod::Simulation,
            seed,
            requests: self.arrived,
            ok,
            late: self.counts[RequestOutcome::Late as usize],
            dropped: self.counts[RequestOutcome::Dropped as usize],
            failed: self.counts[RequestOutcome::Failed as usize],
            attainment: if self.arrived == 0 { 1.0 } else { ok as f64 / self.arrived as f64 },
            p50_ms: self.latency.percentile_ms(0.5),
            p99_ms: self.latency.percentile_ms(0.99),
            accuracy: if answered == 0 { 0.0 } else { self.accuracy_sum / answered as f64 },
            cost_per_hour,
            waiting,
            judged_on: None,
        }
    }
}
