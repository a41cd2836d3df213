//! What does a run find out?

use apportion_domain::{Estimate, Moment, PipelineIndex, TaskIndex, TimeSpan};
use apportion_serving::monitor::QueryRecords;
use apportion_serving::{DropReason, LateQueries, Priority, RequestOutcome};

/// Windows of one time series.
pub const WINDOWS_MAX: usize = 8_192;

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
    pub outcome: RequestOutcome,
    /// Where its first dropped query was dropped.
    pub drop_task: Option<TaskIndex>,
    /// Why it was dropped.
    pub reason: Option<DropReason>,
    /// Accuracy of its answer; 0 unless it was answered.
    pub accuracy: f64,
}

/// Requests of one pipeline that arrived in one window, by class. `ok`, `late`, `dropped` and `failed` add up to `arrived`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestClasses {
    /// All of them.
    pub arrived: u64,
    /// Those answered within the SLO.
    pub ok: u64,
    /// Those of `ok` with a query that was served by a variant for which its task has a more accurate one.
    pub fallback: u64,
    /// Those answered after the SLO.
    pub late: u64,
    /// Those dropped.
    pub dropped: u64,
    /// Those failed.
    pub failed: u64,
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
    /// By pipeline, in the problem's order, then by window of arrival, as far as requests arrived; empty unless asked for
    /// ([`SimulateOptions::class_window`](crate::SimulateOptions::class_window)).
    pub classes: Vec<Vec<RequestClasses>>,
    /// Queries whose batch started, over all tasks.
    pub visits: u64,
}

/// One window of a run, over all pipelines.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Window {
    /// When it starts.
    pub start: Moment,
    /// How long it is.
    pub length: TimeSpan,
    /// Requests that arrived in it.
    pub arrived: u64,
    /// Requests that were answered in it, within the SLO.
    pub ok: u64,
    /// Requests that were answered in it, after the SLO.
    pub late: u64,
    /// Requests that were dropped in it.
    pub dropped: u64,
    /// Requests that failed in it.
    pub failed: u64,
    /// Replicas that served, over time.
    pub replicas: f64,
    /// The cost of the devices. Replicas that load or finish their queries count.
    pub cost: f64,
    /// Busy time over the time of the replicas that served.
    pub utilisation: f64,
}

impl Window {
    /// `ok` over all requests that had their outcome in it; 1 without any.
    #[must_use]
    pub fn attainment(&self) -> f64 {
        let ended = self.ok + self.late + self.dropped + self.failed;
        if ended == 0 { 1.0 } else { self.ok as f64 / ended as f64 }
    }

    /// Requests answered in time per second.
    #[must_use]
    pub fn goodput_qps(&self) -> f64 {
        self.ok as f64 * 1e3 / self.length.as_millis().max(1e-6)
    }

    /// This window and the next in one.
    #[must_use]
    pub fn with(&self, next: &Self) -> Self {
        let (a, b) = (self.length.as_millis(), next.length.as_millis());
        let mean = |x: f64, y: f64| (x * a + y * b) / (a + b).max(1e-9);
        let busy = self.utilisation * self.replicas * a + next.utilisation * next.replicas * b;
        let served = self.replicas * a + next.replicas * b;
        Self {
            start: self.start,
            length: self.length + next.length,
            arrived: self.arrived + next.arrived,
            ok: self.ok + next.ok,
            late: self.late + next.late,
            dropped: self.dropped + next.dropped,
            failed: self.failed + next.failed,
            replicas: mean(self.replicas, next.replicas),
            cost: self.cost + next.cost,
            utilisation: if served > 0.0 { busy / served } else { 0.0 },
        }
    }
}

/// The measurements of all stations of one task in one period of PARD's states, and which end of their queues comes first
/// in the next period.
#[derive(Clone, Debug, PartialEq)]
pub struct ModulePeriod {
    /// The end of the period.
    pub at: Moment,
    /// The pipeline.
    pub pipeline: PipelineIndex,
    /// The task.
    pub task: TaskIndex,
    /// Queries that arrived, refused queries included.
    pub arrived: u64,
    /// Every query that entered a batch or whose batch started.
    pub queries: QueryRecords,
    /// The priority that the task's stations get at the end of the period.
    pub priority: Priority,
}

impl ModulePeriod {
    pub(crate) fn new(at: Moment, pipeline: PipelineIndex, task: TaskIndex) -> Self {
        Self { at, pipeline, task, arrived: 0, queries: QueryRecords::default(), priority: Priority::default() }
    }

    /// One station more.
    pub(crate) fn add(&mut self, arrived: u64, queries: QueryRecords) {
        self.arrived += arrived;
        self.queries.entries.extend(queries.entries);
        self.queries.waits.extend(queries.waits);
        self.queries.executions.extend(queries.executions);
    }
}

/// The results of a run with changes.
#[derive(Clone, Debug)]
pub struct Replay {
    /// The results that a plain run has too. Its `cost_per_hour` is the first plan's.
    pub simulation: Simulation,
    /// The time series.
    pub windows: Vec<Window>,
    /// The cost of all devices from the start to the end of the run, by share. Replicas that load or finish their queries
    /// count.
    pub cost: f64,
    /// The same per hour.
    pub cost_per_hour: f64,
    /// Busy time over the time of the replicas that served.
    pub utilisation: f64,
    /// Device time spent on requests that were not answered in time, over all device time spent.
    pub invalid_rate: f64,
    /// Queries that were behind when they left a task, and how many of them were rerouted. Only policies with task budgets
    /// count them.
    pub late: LateQueries,
    /// Changes of replica counts that were carried out.
    pub changes: u64,
    /// Plans that came into force during the run.
    pub plans: u64,
    /// Tables of stewards that came into force during the run.
    pub steerings: u64,
    /// By period, then by pipeline and task; empty unless asked for ([`Scenario::modules`](crate::Scenario::modules)).
    pub modules: Vec<ModulePeriod>,
}
