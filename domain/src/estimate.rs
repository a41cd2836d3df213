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

named! {
    /// Whether a plan meets its percentile on fresh samples of a load.
    JudgedVerdict default Undecided {
        /// The lower end of the interval reaches the percentile.
        Holds = "holds",
        /// The upper end of the interval is below the percentile.
        Misses = "misses",
        /// The percentile lies inside the interval of all samples that were allowed.
        Undecided = "undecided",
    }
}

named! {
    /// Where the fresh samples of a load come from.
    JudgedLoad default Redrawn {
        /// The same rates, with arrivals drawn by other seeds.
        Redrawn = "redrawn",
        /// Arrivals drawn from the rates and the variation of a recording.
        FromRecording = "from_recording",
    }
}

/// The attainment of one pipeline over fresh samples.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JudgedPipeline {
    /// The pipeline's name.
    pub pipeline: String,
    /// The share of requests that must be in time, 0 to 100.
    pub percentile: f64,
    /// Requests over all samples.
    pub requests: u64,
    /// Share of them within the SLO; 1 without requests.
    pub attainment: f64,
    /// Lower end of the 95 % interval of the attainment.
    pub attainment_low: f64,
    /// Upper end of the 95 % interval of the attainment.
    pub attainment_high: f64,
    /// The answer for this pipeline.
    pub verdict: JudgedVerdict,
}

/// On which samples an estimate was made, and what they show. A planner does not see these samples while it searches.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JudgedOn {
    /// `holds` if every pipeline holds, `misses` if one misses.
    pub verdict: JudgedVerdict,
    /// How the samples were drawn.
    pub load: JudgedLoad,
    /// Number of independent samples.
    pub samples: u64,
    /// Seed of the first sample. The seeds of the others follow it.
    pub first_seed: u64,
    /// One for each pipeline.
    pub pipelines: Vec<JudgedPipeline>,
}

/// Predicted attainment, latency and accuracy of a plan on a load.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Estimate {
    /// How it was made.
    pub method: EstimateMethod,
    /// Root seed of the run; of the first one if there are several.
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
    /// The fresh samples of which this estimate is the sum; `None` for a single run.
    pub judged_on: Option<JudgedOn>,
}
