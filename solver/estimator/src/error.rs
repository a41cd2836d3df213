//! Why does a run have no result?

use crate::state::bounds::CutReason;
use apportion_domain::GroupName;

/// Why a run has no result.
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
    /// The pipeline or its policies need a feature that is not simulated.
    #[error("pipeline {pipeline:?}: {what} cannot be simulated yet")]
    Unsupported {
        /// The pipeline.
        pipeline: String,
        /// The feature.
        what: String,
    },
    /// The run would be too large.
    #[error("{found:.0} {what} are more than {most:.0}")]
    TooLarge {
        /// The things of which there are too many.
        what: &'static str,
        /// How much there is.
        found: f64,
        /// How much may be.
        most: f64,
    },
    /// The run ended before each of its requests had an outcome, so it has no estimate.
    #[error("the run was cut short: {0}")]
    Cut(#[from] CutReason),
}

impl SimulateError {
    /// A change of a group that the plan does not have.
    pub(crate) fn unknown_group(pipeline: &str, group: &GroupName) -> Self {
        Self::Plan(format!("a change names {group} of pipeline {pipeline:?}, which the plan does not assign"))
    }

    /// A plan that changes the slots of a serving replica.
    pub(crate) fn changed_slots(pipeline: &str, task: &str, before: u32, after: u32) -> Self {
        let what = format!("a change of the slots of the continuous task {task:?} from {before} to {after} during a run");
        Self::Unsupported { pipeline: pipeline.to_owned(), what }
    }
}
