//! What a run came to, in memory that does not grow with the trace.

use crate::fleet::{Fleet, Query};
use crate::histogram::Histogram;
use crate::requests::Request;
use crate::{RequestRecord, SimulateOptions};
use apportion_domain::{Estimate, EstimateMethod, Moment, PipelineIndex, Plan, Problem, Span, TaskIndex, TaskWaiting};
use apportion_serving::{Outcome, Waiting};

/// Requests of one pipeline, or of several.
#[derive(Clone, Debug, Default)]
struct OfRequests {
    arrived: u64,
    counts: [u64; 4],
    latency: Histogram,
    accuracy_sum: f64,
}

/// Queries of one task.
#[derive(Clone, Debug, Default)]
struct OfTask {
    waiting: Histogram,
    batches: u64,
    service_ns: u128,
    batch_wait_ns: u128,
}

/// The counts of a run.
#[derive(Debug)]
pub struct Collect {
    lines: Vec<OfRequests>,
    tasks: Vec<OfTask>,
    task_names: Vec<(u32, String)>,
    /// Busy time of each server, and the task that it serves.
    busy: Vec<(Span, u32)>,
    records: Option<Vec<RequestRecord>>,
    /// Device time of all batches, and that of requests that were not answered in time.
    spent: (Span, Span),
    misses: u64,
    misses_max: u64,
    first: Moment,
    last: Moment,
}

impl Collect {
    /// Nothing yet.
    #[must_use]
    pub fn new(fleet: &Fleet<'_>, options: &SimulateOptions) -> Self {
        Self {
            lines: vec![OfRequests::default(); fleet.lines.len()],
            tasks: vec![OfTask::default(); fleet.tasks.len()],
            task_names: fleet.tasks.clone(),
            busy: vec![(Span::ZERO, 0); fleet.servers as usize],
            records: options.requests.then(Vec::new),
            spent: (Span::ZERO, Span::ZERO),
            misses: 0,
            misses_max: options.misses_max.unwrap_or(u64::MAX),
            first: Moment::NEVER,
            last: Moment::ZERO,
        }
    }

    /// A request of this pipeline arrived; its number among those of the pipeline, from 0.
    #[inline]
    pub fn arrived(&mut self, pipeline: usize, now: Moment) -> u64 {
        self.first = self.first.min(now);
        let line = &mut self.lines[pipeline];
        line.arrived += 1;
        line.arrived - 1
    }

    /// A server started a batch.
    #[inline]
    pub fn started(
        &mut self,
        (task, server): (u32, u32),
        now: Moment,
        (service, batch_wait): (Span, Span),
        members: &[Waiting<Query>],
    ) {
        let (busy, serves) = &mut self.busy[server as usize];
        *busy = *busy + service;
        *serves = task;
        self.last = self.last.max(now + service);
        let of_task = &mut self.tasks[task as usize];
        of_task.batches += 1;
        of_task.batch_wait_ns += u128::from(batch_wait.as_nanos());
        of_task.service_ns += members.len() as u128 * u128::from(service.as_nanos());
        of_task.waiting.add_all(members.iter().map(|m| gone_since(m.arrived, now)));
    }

    /// A request has its outcome.
    #[inline]
    pub fn completed(&mut self, request: &Request, partial: bool, accuracy: Option<f64>) {
        let outcome = request.progress.outcome(request.deadline, partial);
        let line = &mut self.lines[request.pipeline as usize];
        line.counts[outcome as usize] += 1;
        if outcome != Outcome::Ok {
            self.misses += 1;
            self.spent.1 = self.spent.1 + request.spent;
        }
        let finish = request.progress.end();
        if outcome.is_answered() {
            line.latency.add(finish.since(request.arrival));
            line.accuracy_sum += accuracy.unwrap_or(0.0);
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

    /// Whether requests are counted and nothing is noted of each.
    #[inline]
    pub fn keeps_sums_only(&self) -> bool {
        self.records.is_none()
    }

    /// Requests of one pipeline of which nothing was dropped have their last answer `now`: by arrival, deadline and accuracy.
    #[inline(always)]
    pub fn answered(
        &mut self,
        pipeline: usize,
        now: Moment,
        answers: impl ExactSizeIterator<Item = (Moment, Moment, f64)>,
    ) {
        let line = &mut self.lines[pipeline];
        let (all, mut ok, mut accuracy_sum) = (answers.len() as u64, 0, line.accuracy_sum);
        line.latency.add_all(answers.map(|(arrival, deadline, accuracy)| {
            ok += u64::from(now <= deadline);
            accuracy_sum += accuracy;
            gone_since(arrival, now)
        }));
        line.accuracy_sum = accuracy_sum;
        line.counts[Outcome::Ok as usize] += ok;
        line.counts[Outcome::Late as usize] += all - ok;
        self.misses += all - ok;
    }

    /// Device time was spent on a batch; only runs with changes say so.
    pub fn spent(&mut self, service: Span) {
        self.spent.0 = self.spent.0 + service;
    }

    /// Device time spent on requests that were not answered in time, over all that was spent.
    pub fn invalid_rate(&self) -> f64 {
        let (all, invalid) = (self.spent.0.as_nanos(), self.spent.1.as_nanos());
        if all == 0 { 0.0 } else { invalid as f64 / all as f64 }
    }

    /// Requests that arrived, requests by outcome, device time spent: so far.
    pub fn sums(&self) -> (u64, [u64; 4], Span) {
        let mut counts = [0; 4];
        self.lines.iter().for_each(|line| counts.iter_mut().zip(line.counts).for_each(|(a, b)| *a += b));
        (self.lines.iter().map(|l| l.arrived).sum(), counts, self.spent.0)
    }

    /// Requests that never got an outcome, because no replica was left for them, have failed.
    pub fn give_up_rest(&mut self) {
        for line in &mut self.lines {
            let ended: u64 = line.counts.iter().sum();
            line.counts[Outcome::Failed as usize] += line.arrived - ended;
        }
    }

    /// Busy time of these servers.
    pub fn busy(&self, servers: impl Iterator<Item = u32>) -> Span {
        servers.fold(Span::ZERO, |sum, server| sum + self.busy[server as usize].0)
    }

    /// Numbers for `count` servers, the first `old_count` of which were numbered from `old` on. Returns the first number.
    pub fn more_servers(&mut self, old: u32, old_count: u32, count: u32) -> u32 {
        let first = self.busy.len();
        for at in 0..count {
            let moved = if at < old_count { std::mem::take(&mut self.busy[(old + at) as usize]) } else { (Span::ZERO, 0) };
            self.busy.push(moved);
        }
        first as u32
    }

    /// How many requests have missed, if these are more than the caller cares for.
    #[must_use]
    pub fn too_many_missed(&self) -> Option<u64> {
        self.is_enough().then_some(self.misses)
    }

    /// Whether more requests have missed than the caller cares for.
    #[inline]
    #[must_use]
    pub fn is_enough(&self) -> bool {
        self.misses > self.misses_max
    }

    /// The estimates by pipeline, over all of them, and the records by pipeline and arrival.
    #[must_use]
    pub fn result(self, problem: &Problem, plan: &Plan, seed: u64) -> (Vec<Estimate>, Estimate, Vec<RequestRecord>) {
        let waiting = self.waiting(problem);
        let mut total = OfRequests::default();
        let mut estimates = Vec::with_capacity(self.lines.len());
        for (line, p) in self.lines.iter().zip(&problem.pipelines) {
            total.merge(line);
            let of_line = waiting.iter().filter(|w| w.pipeline == p.name).cloned().collect();
            let cost = if plan.pipelines.len() == 1 { plan.cost_per_hour } else { cost_per_hour(problem, plan, &p.name) };
            estimates.push(line.estimate(seed, cost, of_line));
        }
        let mut records = self.records.unwrap_or_default();
        records.sort_unstable_by_key(|r| (r.pipeline, r.request));
        (estimates, total.estimate(seed, plan.cost_per_hour, waiting), records)
    }

    fn waiting(&self, problem: &Problem) -> Vec<TaskWaiting> {
        let length = self.last.since(self.first.min(self.last)).as_nanos().max(1) as f64;
        let mut busiest = vec![Span::ZERO; self.tasks.len()];
        for &(busy, task) in &self.busy {
            busiest[task as usize] = busiest[task as usize].max(busy);
        }
        let mean = |sum: f64, n: u64| if n == 0 { 0.0 } else { sum / n as f64 };
        let of_task = |(t, (line, name)): (usize, &(u32, String))| {
            let task = &self.tasks[t];
            let queries = task.waiting.total();
            TaskWaiting {
                pipeline: problem.pipelines[*line as usize].name.clone(),
                task: name.clone(),
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

/// From what was before, which spares the check.
#[inline(always)]
fn gone_since(then: Moment, now: Moment) -> Span {
    debug_assert!(then <= now, "{then} is after {now}");
    Span::from_nanos(now.as_nanos().wrapping_sub(then.as_nanos()))
}

/// Price of the shares of devices that one pipeline has.
fn cost_per_hour(problem: &Problem, plan: &Plan, pipeline: &str) -> f64 {
    let assignments = plan.pipeline(pipeline).into_iter().flat_map(|p| &p.assignments);
    let price = |name: &str| problem.hardware_named(name).map_or(0.0, |h| problem.hardware_at(h).price_per_hour);
    assignments.map(|a| price(&a.group.hardware) * a.group.share.value() * f64::from(a.replicas)).sum()
}

impl OfRequests {
    fn merge(&mut self, other: &Self) {
        self.arrived += other.arrived;
        self.counts.iter_mut().zip(other.counts).for_each(|(a, b)| *a += b);
        self.latency.merge(&other.latency);
        self.accuracy_sum += other.accuracy_sum;
    }

    fn estimate(&self, seed: u64, cost_per_hour: f64, waiting: Vec<TaskWaiting>) -> Estimate {
        let ok = self.counts[Outcome::Ok as usize];
        let answered = self.latency.total();
        Estimate {
            method: EstimateMethod::Simulation,
            seed,
            requests: self.arrived,
            ok,
            late: self.counts[Outcome::Late as usize],
            dropped: self.counts[Outcome::Dropped as usize],
            failed: self.counts[Outcome::Failed as usize],
            attainment: if self.arrived == 0 { 1.0 } else { ok as f64 / self.arrived as f64 },
            p50_ms: self.latency.percentile_ms(0.5),
            p99_ms: self.latency.percentile_ms(0.99),
            accuracy: if answered == 0 { 0.0 } else { self.accuracy_sum / answered as f64 },
            cost_per_hour,
            waiting,
        }
    }
}
