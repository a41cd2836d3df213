//! Which pipeline do ONNX files make, and which of their properties will not work?
//!
//! Files with the same names and kinds of tensors are variants of one task. The tasks are a chain in the order of the
//! files: each takes its inputs from the earlier task whose outputs fit the most of them. A graph with state that makes its
//! answer step by step is a continuous task.

mod caller_state;
mod edges;
mod faults;
mod open_axes;
mod remark;
mod sizes;
mod stages;
mod state_names;
mod stepping;
mod yaml;

use self::stages::stages_of;
use apportion_wire::BadInput;

pub(crate) use yaml::comment;

pub use remark::GraphRemark;
pub use stages::GraphFile;
pub use yaml::scalar;

/// A pipeline file in YAML, and the remarks about its graphs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DraftedPipeline {
    /// The file. It is valid, and its comments say what its reader has to decide.
    pub yaml: String,
    /// What will not work, and what a reader should know.
    pub remarks: Vec<GraphRemark>,
}

/// The draft of a pipeline with this name.
///
/// # Errors
/// If there is no file, or two files of a task have one name.
pub fn draft_of(name: &str, files: &[GraphFile]) -> Result<DraftedPipeline, BadInput> {
    let stages = stages_of(files)?;
    let edges = edges::edges_of(&stages);
    let remarks = faults::remarks_of(&stages, &edges);
    Ok(DraftedPipeline { yaml: yaml::write(name, &stages, &edges), remarks })
}
