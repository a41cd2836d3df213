//! What is a plan predicted to do?

use crate::serving::named;

named! {
    /// How an estimate was made.
    EstimateMethod default Simulation {
        /// By replaying a trace in the estimator.
        Simulation = "simulation",
    }
}

/// How long queries spent at one task in a run: queueing, batch wait and execution.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskWaiting {
    /// The pipeline's name.
    pub pipeline: String,
    /// The task's name.
    pub task: String,
    /// Queries that reached the task.
    pub queries: u64,
    /// Mean time from joining the queue to the start of the batch.
    pub mean_ms: f64,
    /// 99th percentile of the same.
    pub p99_ms: f64,
    /// Mean part of it from joining the queue to entering a batch.
    pub queueing_ms: f64,
    /// Mean part of it from entering the batch to its start: 0 unless batches form while the one before runs.
    pub batch_wait_ms: f64,
    /// Mean time of the batches, by query: their execution.
    pub service_ms: f64,
    /// Mean size of the batches.
    pub batch: f64,
    /// Largest share of the time that any of its replicas was busy.
    pub utilisation: f64,
}

/// Predicted attainment, latency and accuracy of a plan on a trace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Estimate {
    /// How it was made.
    pub method: EstimateMethod,
    /// Root seed of the run.
    pub seed: u64,
    /// Requests that arrived.
    pub requests: u64,
    /// Requests whose last leaf ended within the SLO.
    pub ok: u64,
    /// Requests that ended after the SLO.
    pub late: u64,
    /// Requests dropped.
    pub dropped: u64,
    /// Requests that failed.
    pub failed: u64,
    /// `ok / requests`; 1 without requests.
    pub attainment: f64,
    /// Median latency of answered requests.
    pub p50_ms: f64,
    /// 99th percentile of the latency of answered requests.
    pub p99_ms: f64,
    /// Mean accuracy over answered requests.
    pub accuracy: f64,
    /// Cost of the plan's devices.
    pub cost_per_hour: f64,
    /// Waiting by task.
    pub waiting: Vec<TaskWaiting>,
}
