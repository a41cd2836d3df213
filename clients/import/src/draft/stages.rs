//! Which files are variants of one task?

use super::state_names::{inputs_of_queries, makes_steps, outputs_of_queries};
use crate::graph::{GraphHeader, GraphTensor};
use apportion_wire::BadInput;
use std::path::Path;

/// An ONNX file of a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphFile {
    /// Its path, as the pipeline file shall name it.
    pub path: String,
    /// Its task, if the command line names it.
    pub task: Option<String>,
    /// Its tensors.
    pub header: GraphHeader,
}

impl GraphFile {
    /// The name of the variant: that of the file. Names of pipelines have no `>` and `:`, which separate names in paths.
    pub(super) fn variant(&self) -> String {
        let stem = Path::new(&self.path).file_stem();
        stem.map_or_else(|| self.path.clone(), |stem| stem.to_string_lossy().into_owned()).replace(['>', ':'], "-")
    }
}

/// A task with its variants, at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DraftStage<'a> {
    pub name: String,
    pub files: Vec<&'a GraphFile>,
    /// What queries bring.
    pub inputs: Vec<GraphTensor>,
    /// What it makes of them.
    pub outputs: Vec<GraphTensor>,
    /// Whether each query makes steps in a slot, until it has ended.
    pub is_continuous: bool,
}

impl<'a> DraftStage<'a> {
    /// The task whose first variant is in this file.
    fn of(file: &'a GraphFile) -> Self {
        let header = &file.header;
        let is_continuous = makes_steps(header);
        let (inputs, outputs) = match is_continuous {
            true => (inputs_of_queries(header), outputs_of_queries(header)),
            false => (header.inputs.clone(), header.outputs.clone()),
        };
        Self { name: file.task.clone().unwrap_or_default(), files: vec![file], inputs, outputs, is_continuous }
    }
}

/// The tasks of these files, in their order.
pub(super) fn stages_of(files: &[GraphFile]) -> Result<Vec<DraftStage<'_>>, BadInput> {
    let mut stages: Vec<DraftStage<'_>> = Vec::new();
    for file in files {
        let belongs = |stage: &&mut DraftStage<'_>| match (&file.task, &stage.files[0].task) {
            (Some(task), Some(other)) => task == other,
            (None, None) => same_tensors(&file.header, &stage.files[0].header),
            _ => false,
        };
        match stages.iter_mut().find(belongs) {
            Some(stage) => stage.files.push(file),
            None => stages.push(DraftStage::of(file)),
        }
    }
    for at in 0..stages.len() {
        if stages[at].name.is_empty() {
            stages[at].name = free_name(&stages, &stages[at]);
        }
        let mut variants: Vec<String> = stages[at].files.iter().map(|f| f.variant()).collect();
        variants.sort();
        if let Some(twice) = variants.windows(2).find(|pair| pair[0] == pair[1]) {
            let found = format!("two files with the name {:?} in task {}", twice[0], stages[at].name);
            return Err(BadInput::one("init", "", found, "files with names of their own: they name the variants"));
        }
    }
    Ok(stages)
}

/// Whether two graphs have tensors of the same names, kinds and numbers of axes.
fn same_tensors(one: &GraphHeader, other: &GraphHeader) -> bool {
    let rank = |t: &GraphTensor| t.shape.as_ref().map(Vec::len);
    let same = |a: &[GraphTensor], b: &[GraphTensor]| {
        a.len() == b.len()
            && a.iter().all(|t| b.iter().any(|o| o.name == t.name && o.datatype == t.datatype && rank(o) == rank(t)))
    };
    same(&one.inputs, &other.inputs) && same(&one.outputs, &other.outputs)
}

/// The beginning that the files of a task have in common, or a number.
fn free_name(stages: &[DraftStage<'_>], stage: &DraftStage<'_>) -> String {
    let names: Vec<String> = stage.files.iter().map(|f| f.variant()).collect();
    let common = names.iter().skip(1).fold(names[0].clone(), |common, name| {
        let pairs = common.chars().zip(name.chars());
        pairs.take_while(|(a, b)| a == b).map(|(a, _)| a).collect()
    });
    let common = if names.len() > 1 { common.trim_end_matches(['-', '_', '.', ' ']).to_owned() } else { common };
    let is_free = |name: &str| !name.is_empty() && stages.iter().all(|s| s.name != name);
    let numbered = (1..).map(|n| format!("task{n}"));
    std::iter::once(common).chain(numbered).find(|name| is_free(name)).expect("there are more numbers than tasks")
}
