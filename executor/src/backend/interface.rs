//! What does every way to run batches offer, and why can it fail?

use super::error::{BatchError, ExecutionError};
use apportion_node::layout::{LayoutGroup, LayoutTask};
use apportion_node::tensor::{Tensor, TensorSignature};
use std::path::PathBuf;

/// A variant that a replica needs.
#[derive(Clone, Debug)]
pub struct ReplicaVariant {
    /// Its model file; none for backends that need none (see [`super::BackendLoader::needs_file`]).
    pub file: Option<PathBuf>,
    /// The task that it does.
    pub task: LayoutTask,
    /// The variant, its batches and their latencies.
    pub group: LayoutGroup,
    /// The agent's device that it gets a share of.
    pub device: u32,
}

/// Inputs and outputs of a loaded variant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// What a batch must bring, in the file's order.
    pub inputs: Vec<TensorSignature>,
    /// What it makes.
    pub outputs: Vec<TensorSignature>,
}

/// Why a variant could not be loaded or run.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// The runtime's library is missing or too old.
    #[error("the runtime is not available: {0}")]
    Runtime(String),
    /// The file is no variant that this backend can run.
    #[error("{file}: {detail}")]
    Load {
        /// Which file.
        file: String,
        /// What is wrong with it.
        detail: String,
    },
    /// The variant does not run on the provider that was asked for.
    #[error(
        "{file}: {asked} was asked for and cannot be used: {detail}; this ONNX Runtime was built with: {offered}. Take a library \
         with that provider (`scripts/setup cuda`, ORT_DYLIB_PATH) on a machine with its device and CUDA's libraries, or ask for \
         --provider cpu"
    )]
    Provider {
        /// Which file.
        file: String,
        /// The provider and its device.
        asked: String,
        /// Why not.
        detail: String,
        /// What the library was built with.
        offered: String,
    },
    /// The variant asks for an execution that the device does not have.
    #[error(transparent)]
    Execution(#[from] ExecutionError),
    /// A replica's variant could not be loaded.
    #[error("variant {variant} of task {task}")]
    Variant {
        /// Its name.
        variant: String,
        /// Its task.
        task: String,
        /// Why.
        #[source]
        source: Box<BackendError>,
    },
    /// A batch does not fit the signature.
    #[error(transparent)]
    Input(#[from] BatchError),
    /// The run failed.
    #[error("the batch failed: {0}")]
    Run(String),
    /// Nothing can be run at present, whatever the batch.
    #[error("nothing can be run there at present: {0}")]
    Away(String),
}

impl BackendError {
    /// Whether another batch might have done well at this moment.
    #[must_use]
    pub const fn is_of_batch(&self) -> bool {
        matches!(self, Self::Input(_) | Self::Run(_))
    }
}

/// A loaded variant on one device. One thread at a time uses it.
pub trait Backend: Send {
    /// What it takes and makes.
    fn signature(&self) -> &Signature;

    /// Runs one batch: `inputs` in any order, each with the same number of rows; the outputs in the signature's order.
    ///
    /// # Errors
    /// [`BackendError::Input`] if the batch does not fit, [`BackendError::Run`] if the runtime fails,
    /// [`BackendError::Away`] if it cannot be reached.
    fn run(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError>;

    /// Its steps, if it makes its answers step by step.
    fn stepping(&mut self) -> Option<&mut dyn Stepping> {
        None
    }
}

/// A query that is between two steps.
#[derive(Debug)]
pub struct SteppedQuery {
    /// Its slot.
    pub slot: u32,
    /// Its inputs and its state, one row of each.
    pub tensors: Vec<Tensor>,
    /// The steps that it has made.
    pub steps: u32,
}

/// A query that has made its last step.
#[derive(Debug)]
pub struct EndedQuery {
    /// Its slot.
    pub slot: u32,
    /// Its outputs, one row of each, or why it has none.
    pub result: Result<Vec<Tensor>, BackendError>,
}

/// A variant whose queries join and leave between two steps.
pub trait Stepping {
    /// A query that has made no step, with one row of each input.
    ///
    /// # Errors
    /// [`BackendError::Input`] if its inputs do not fit.
    fn begin(&self, slot: u32, inputs: &[Tensor]) -> Result<SteppedQuery, BackendError>;

    /// Runs one step of all these queries. Takes out and returns those that have ended.
    fn step(&mut self, running: &mut Vec<SteppedQuery>) -> Vec<EndedQuery>;
}
