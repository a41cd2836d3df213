//! Which descriptions of pipelines of other systems are read?
//!
//! Each becomes a draft of a pipeline file. A description says which models follow each other. It has no latencies, no
//! accuracies and no objective: comments of the draft mark these choices.

mod flow;
mod kserve;
mod seldon;
mod text_proto;
mod tree;
mod triton;

use apportion_wire::BadInput;

pub use flow::ImportedPipeline;
pub use triton::RepositoryModel;

/// The pipeline of an `InferenceGraph` of KServe, in YAML or JSON.
///
/// # Errors
/// Syntax, a missing key, an unknown node or a graph that is no pipeline, with its place.
pub fn pipeline_of_kserve_graph(file: &str, text: &str) -> Result<ImportedPipeline, BadInput> {
    kserve::read(file, text)
}

/// The pipeline of a `Pipeline` of Seldon Core 2, in YAML or JSON.
///
/// # Errors
/// As of [`pipeline_of_kserve_graph`].
pub fn pipeline_of_seldon(file: &str, text: &str) -> Result<ImportedPipeline, BadInput> {
    seldon::read(file, text)
}

/// The pipeline of a model repository of Triton: of its ensemble, or of its only model. `model` chooses among several.
///
/// # Errors
/// Syntax of a `config.pbtxt`, an ensemble with an unknown model or tensor, or a graph that is no pipeline, with its place.
pub fn pipeline_of_triton_repository(
    folder: &str,
    models: &[RepositoryModel],
    model: Option<&str>,
) -> Result<ImportedPipeline, BadInput> {
    triton::read(folder, models, model)
}
