//! What is exported, and which files result?

use crate::settings::ExportSettings;
use apportion_domain::{Plan, Problem};
use apportion_wire::TensorSpec;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A model file of a variant.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelFile {
    /// Where it lies.
    pub path: PathBuf,
    /// Its input tensors.
    pub inputs: Vec<TensorSpec>,
    /// Its output tensors.
    pub outputs: Vec<TensorSpec>,
}

impl ModelFile {
    /// Whether it is a model of Triton's Python backend (`.py`). Other files are graphs in ONNX format.
    #[must_use]
    pub fn is_python(&self) -> bool {
        self.path.extension().is_some_and(|extension| extension == "py")
    }
}

/// What is exported.
#[derive(Clone, Copy, Debug)]
pub struct ExportRequest<'a> {
    /// The problem of the plan.
    pub problem: &'a Problem,
    /// The plan.
    pub plan: &'a Plan,
    /// Name of the plan's file in errors.
    pub plan_file: &'a str,
    /// The text of the plan's file.
    pub plan_text: &'a str,
    /// Choices that the plan does not make.
    pub settings: &'a ExportSettings,
    /// Model files by pipeline, task and variant.
    pub models: &'a BTreeMap<(String, String, String), ModelFile>,
}

/// The content of an exported file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExportContent {
    /// A text.
    Text(String),
    /// A shell script, which may be executed.
    Script(String),
    /// A copy of this file.
    CopyOf(PathBuf),
}

/// The files that a target needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Export {
    /// Files by their path below the output folder. The parts of a path are safe names.
    pub files: BTreeMap<String, ExportContent>,
    /// What the target cannot express, and what the user must do, one sentence each.
    pub notes: Vec<String>,
}

impl Export {
    /// Adds a text.
    pub(crate) fn text(&mut self, path: impl Into<String>, text: String) {
        self.files.insert(path.into(), ExportContent::Text(text));
    }

    /// Adds a note, once.
    pub(crate) fn note(&mut self, note: impl Into<String>) {
        let note = note.into();
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }
}
