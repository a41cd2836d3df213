//! How fast, how accurate and how large is each variant of a pipeline?
//!
//! The profiler measures the time of a batch of each variant, the number of queries that it makes, and the accuracy of each
//! path through the pipeline. Planners need these figures.
//!
//! The method is InferLine's profiler (section 4.1). Sample queries run through the pipeline once; this gives each task
//! inputs for timing, and the number of queries that reach it. Loki adds the accuracy of every path, INFaaS the load time
//! and the memory.
//!
//! What belongs here: running single variants through the executor's [`Backend`], here or on another server ([`served`]).
//! Timing them with the executor's code, alone and beside neighbours on a share of a device ([`beside`]). Sending a
//! validation set through every combination of variants. One rule judges the answers ([`matching`],
//! [`mod@average_precision`]). What never does: reading problem or pipeline files, planning, agents, anything about one
//! particular pipeline.
//!
//! The commonest addition is a statistic of a variant. Measure it in [`mod@profile`] and put it into
//! [`VariantMeasurement`].

pub mod average_precision;
pub mod beside;
mod bound;
mod cosine;
pub mod described;
mod error;
mod examples;
pub mod files;
mod judge;
pub mod labels;
pub mod matching;
pub mod measure;
pub mod memory;
pub mod mixture;
pub mod npy;
pub mod profile;
mod rows;
mod samples;
mod score;
pub mod served;
pub mod shapes;
pub mod validate;
mod whole_queries;

pub use apportion_executor::backend::{
    Backend, BackendError, BackendLoader, ExecutionSettings, OnnxBackend, Provider, PythonSettings, STAGE_TIMEOUT_DEFAULT,
    Signature, THREADS_DEFAULT, find_library,
};
pub use apportion_executor::measuring::noise::NOISE_MAX;
pub use apportion_executor::measuring::point::{Clock, PointRule};
pub use apportion_executor::measuring::processor;
pub use apportion_executor::measuring::provenance::{DeviceProvenance, VERSION};
pub use apportion_executor::measuring::stats::ProfilePoint;
pub use apportion_executor::tensor::{Datatype, Tensor, TensorSignature};
pub use beside::ShareError;
pub use error::ProfileError;
pub use files::{
    BoxRule, CommandRule, EdgeFiles, MatchRule, PipelineFiles, TaskFiles, ValidationFiles, ValueRule, VariantFile,
};
pub use measure::MeasureOptions;
pub use memory::peak_memory_mib;
pub use mixture::ShapePoints;
pub use profile::{Measured, ProfilingProgress, ShareMeasurement, VariantMeasurement, file_loader, profile_pipeline};
pub use rows::json_elements;
pub use served::{Doubts, ServedError, ServedPoint, ServedVariant, profile_served};
pub use shapes::{AxisSizes, GivenShape, ShapesError};
