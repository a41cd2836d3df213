//! Measures what a planner must know of a pipeline: how long a batch of each variant takes, how many queries it makes, how
//! accurate each path through the pipeline is.
//!
//! What belongs here: running variants alone through the executor's [`Backend`], timing them, sending a labelled validation
//! set through every combination of variants, and the statistics of all that, which are pure ([`stats`], [`matching`]).
//! What never does: reading problem or pipeline files, planning, talking to agents, anything about one pipeline in
//! particular.
//!
//! The method is the profiler of InferLine (section 4.1): the sample queries run through the pipeline once, which gives each
//! task inputs to be timed with and the number of queries that reach it. To it come Loki's profiled accuracy of every path,
//! and load time and memory as INFaaS records them.
//!
//! The commonest addition is a statistic of a variant: measure it in [`mod@profile`], put it into [`MeasuredVariant`].

pub mod error;
pub mod files;
pub mod labels;
pub mod matching;
pub mod measure;
pub mod memory;
pub mod npy;
pub mod processor;
pub mod profile;
mod rows;
pub mod stats;
pub mod validate;

pub use apportion_executor::backend::{
    Backend, BackendError, OnnxBackend, Provider, Running, Signature, THREADS_DEFAULT, find_library,
};
pub use apportion_executor::tensor::{Datatype, Tensor, TensorSpec};
pub use error::ProfileError;
pub use files::{EdgeFiles, MatchRule, PipelineFiles, TaskFiles, ValidationFiles, VariantFile};
pub use measure::{Clock, MeasureOptions, profile_variant};
pub use memory::{MemoryProbe, peak_memory_mib};
pub use profile::{Loader, Measured, MeasuredTask, MeasuredVariant, Progress, onnx_loader, profile_pipeline};
pub use stats::{ProfilePoint, fit};
pub use validate::MeasuredPath;
