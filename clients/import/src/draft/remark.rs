//! What does a draft say about a graph that will not work, or that its owner should know?

use super::stages::GraphFile;
use crate::graph::GraphTensor;
use std::fmt;

/// Something about a graph that its owner should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphRemark {
    /// File and tensor, or task.
    pub place: String,
    /// What is so.
    pub found: String,
    /// What to do.
    pub cure: String,
    /// Whether the pipeline works as it is.
    pub works: bool,
}

impl GraphRemark {
    /// A tensor of a file will not work. `side` says whether it is an input or an output.
    pub(super) fn tensor(file: &GraphFile, side: &str, tensor: &GraphTensor, found: String, cure: String) -> Self {
        Self { place: format!("{}, {side} {tensor}", file.path), found, cure, works: false }
    }

    /// A file will not work.
    pub(super) fn file(file: &GraphFile, found: &str, cure: &str) -> Self {
        Self { place: file.path.clone(), found: found.to_owned(), cure: cure.to_owned(), works: false }
    }
}

impl fmt::Display for GraphRemark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.works { "note" } else { "will not work" };
        write!(f, "{kind}: {}: {}. {}", self.place, self.found, self.cure)
    }
}
