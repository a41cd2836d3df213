//! How do reports, traces and model files of other tools become profiles, traces, problems and pipelines?
//!
//! What belongs here: readers of foreign formats, one file each, as functions from text to `domain` and `wire` types; the
//! problem that profiles and a few numbers make. What never does: reading files from disk, printing, planning.
//!
//! The commonest addition is a format: a file in [`profile`], [`pipeline`] or [`trace`] with the source of the format in
//! its first lines, and its name in the list of that folder.

pub mod draft;
pub mod gathered;
pub mod graph;
pub mod pipeline;
pub mod problem;
pub mod profile;
mod table;
pub mod trace;

pub use draft::{DraftedPipeline, GraphFile, GraphRemark, draft_of, scalar as yaml_scalar};
pub use gathered::{GatheredProfile, GivenNames};
pub use graph::{GraphHeader, GraphTensor, read_graph, read_metadata};
pub use pipeline::{
    ImportedPipeline, RepositoryModel, pipeline_of_kserve_graph, pipeline_of_seldon, pipeline_of_triton_repository,
};
pub use problem::{
    ProblemRequest, SLO_FACTOR, default_slo_ms, hardware_offers, level_accuracies, levelled_note, problem_of,
};
pub use profile::{ProfileFormat, add_profile};
pub use trace::{TimeUnit, TraceChoice, TraceFormat, import_trace};
