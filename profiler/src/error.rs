//! Why can a pipeline not be profiled?

use crate::beside::ShareError;
use crate::labels::LabelsError;
use crate::npy::NpyError;
use crate::shapes::ShapesError;
use apportion_domain::Share;
use apportion_executor::backend::BackendError;
use apportion_executor::measuring::drawn::DrawError;

/// Why a pipeline could not be profiled.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// A variant could not be loaded or run.
    #[error("variant {variant} of task {task}")]
    Variant {
        /// Its task.
        task: String,
        /// Its name.
        variant: String,
        /// The error of the backend.
        #[source]
        source: Box<BackendError>,
    },
    /// A variant could not be measured on a share of a device.
    #[error("variant {variant} of task {task} on a share of {share} of a device")]
    Share {
        /// Its task.
        task: String,
        /// Its name.
        variant: String,
        /// The share.
        share: Share,
        /// Why not.
        #[source]
        source: Box<ShareError>,
    },
    /// The outputs of a variant do not fit the pipeline's edges or the convention.
    #[error("variant {variant} of task {task}: {detail}")]
    Convention {
        /// Its task.
        task: String,
        /// Its name.
        variant: String,
        /// What is wrong, and what would be right.
        detail: String,
    },
    /// The tasks and edges are not a tree with one root, or a map does not fit.
    #[error("{0}")]
    Pipeline(String),
    /// An array of the validation set cannot be read.
    #[error("{file}")]
    Array {
        /// The file.
        file: String,
        /// Why.
        #[source]
        source: NpyError,
    },
    /// The labels cannot be read.
    #[error("{file}")]
    Labels {
        /// The file.
        file: String,
        /// Why.
        #[source]
        source: LabelsError,
    },
    /// Labels do not fit the inputs, or an array does not fit its input.
    #[error("{file}: {detail}")]
    ExamplesMismatch {
        /// The file.
        file: String,
        /// What is wrong, and what would be right.
        detail: String,
    },
    /// No inputs can be made for a task.
    #[error("the variants of task {task}")]
    Inputs {
        /// The task.
        task: String,
        /// Why not.
        #[source]
        source: DrawError,
    },
    /// The queries of a task have shapes that cannot be measured.
    #[error("the queries of task {task}")]
    Shapes {
        /// The task.
        task: String,
        /// Why not.
        #[source]
        source: ShapesError,
    },
    /// No query of the validation set reaches a task, so it has no inputs for timing.
    #[error("no query of the validation set reaches task {0}, so its variants cannot be timed")]
    Unreached(String),
}
