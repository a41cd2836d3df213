//! Which files does a profiled pipeline have?

use crate::error::ProfileError;
use apportion_domain::transform::TaskGlue;
use apportion_domain::{VariantExecution, VariantRuntime};
use apportion_executor::tensor::TensorSignature;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Most combinations of variants along the paths of a pipeline. Each runs over the validation set.
pub const PATHS_MAX: usize = 4_096;

/// A pipeline whose variants lie in files.
#[derive(Clone, Debug, PartialEq)]
pub struct PipelineFiles {
    /// At least one.
    pub tasks: Vec<TaskFiles>,
    /// A tree with one root. Without a validation set, tasks may have several parents.
    pub edges: Vec<EdgeFiles>,
    /// Examples; `None`: inputs are drawn from the shapes, and accuracy and fan-out are not measured.
    pub validation: Option<ValidationFiles>,
}

/// One task.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskFiles {
    /// Unique.
    pub name: String,
    /// The inputs that queries bring; empty: those of the variants.
    pub inputs: Vec<TensorSignature>,
    /// The transforms around its variants.
    pub glue: Arc<TaskGlue>,
    /// At least one. All have the same input and output tensors.
    pub variants: Vec<VariantFile>,
}

/// One variant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VariantFile {
    /// Unique in its task.
    pub name: String,
    /// Its model file.
    pub file: PathBuf,
    /// What runs the file.
    pub runtime: VariantRuntime,
    /// What it asks of its execution.
    pub execution: VariantExecution,
}

/// Queries of `from` make queries of `to`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdgeFiles {
    /// Parent task.
    pub from: String,
    /// Child task.
    pub to: String,
    /// Child's input name to the name under which the parent hands out its output. All edges into a child have every input
    /// of it.
    pub map: BTreeMap<String, String>,
}

/// Examples for measuring accuracy and fan-out.
#[derive(Clone, Debug, PartialEq)]
pub struct ValidationFiles {
    /// By input of the root: an array file whose first dimension counts the examples, or a folder with array files. Those
    /// of a folder follow each other by their names, and may have several shapes.
    pub inputs: BTreeMap<String, PathBuf>,
    /// A JSON or CSV file with the labels of the examples; `None` if the rule needs none.
    pub labels: Option<PathBuf>,
    /// How outputs are judged.
    pub matching: MatchRule,
}

/// How the outputs of the sinks are judged.
#[derive(Clone, Debug, PartialEq)]
pub enum MatchRule {
    /// The share of labels that are found.
    Value(ValueRule),
    /// The mean average precision of boxes.
    Boxes(BoxRule),
    /// The cosine of the angle between this output and that of the largest variants. It needs no labels.
    Cosine(String),
    /// A number that a program of the user prints.
    Command(CommandRule),
}

/// Which values count as found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ValueRule {
    /// Output that must equal a label's `value`: one element per row, or the scores of all classes.
    pub value: String,
    /// Output that must be near a label's `at`, by Euclidean distance; `None` if the value alone decides.
    pub at: Option<String>,
    /// How near, in the unit of the positions; `None` is at any distance.
    pub within: Option<f64>,
    /// The label is one of so many classes with the highest scores; `None`: the highest alone, if there are scores.
    pub top: Option<u32>,
}

/// Which outputs are boxes with scores.
#[derive(Clone, Debug, PartialEq)]
pub struct BoxRule {
    /// Corners: left, top, right, bottom.
    pub boxes: String,
    /// One score for each box.
    pub scores: String,
    /// One class for each box; `None` if all boxes are of one class.
    pub classes: Option<String>,
    /// Smallest overlap of a box that finds a label: intersection over union.
    pub iou: f64,
}

/// A program that judges answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandRule {
    /// The program and its arguments, at least the program.
    pub command: Vec<String>,
    /// The outputs that it gets, at least one.
    pub outputs: Vec<String>,
    /// Its working folder.
    pub folder: PathBuf,
    /// Longest time that it may take for one combination of variants.
    pub time_max: Duration,
}

impl MatchRule {
    /// Names of the outputs that are read.
    #[must_use]
    pub fn outputs(&self) -> Vec<&str> {
        match self {
            Self::Value(rule) => std::iter::once(rule.value.as_str()).chain(rule.at.as_deref()).collect(),
            Self::Boxes(rule) => [&rule.boxes, &rule.scores].into_iter().chain(&rule.classes).map(String::as_str).collect(),
            Self::Cosine(output) => vec![output],
            Self::Command(rule) => rule.outputs.iter().map(String::as_str).collect(),
        }
    }
}

/// The tasks as a tree of indices; a child may have several parents where no validation set runs along it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tree {
    /// The task without a parent.
    pub root: usize,
    /// Edge indices out of each task, in the files' order.
    pub out_edges: Vec<Vec<usize>>,
    /// The child of each edge.
    pub to: Vec<usize>,
    /// All tasks, parents first.
    pub order: Vec<usize>,
    /// Runs of the validation set: one for each variant and combination of variants above it. 0 without one.
    pub runs: usize,
}

/// The edges of a pipeline, with tasks as indices.
struct Edges {
    out_edges: Vec<Vec<usize>>,
    to: Vec<usize>,
    /// The number of parents of each task.
    parents: Vec<usize>,
}

impl PipelineFiles {
    /// Resolves the names, and checks that the tasks are a tree, or have one root and no cycle without a validation set.
    pub(crate) fn tree(&self) -> Result<Tree, ProfileError> {
        let fail = |detail: String| Err(ProfileError::Pipeline(detail));
        let index: BTreeMap<&str, usize> = self.tasks.iter().enumerate().map(|(i, t)| (t.name.as_str(), i)).collect();
        if index.len() != self.tasks.len() || self.tasks.is_empty() {
            return fail("a pipeline has at least one task, and each name once".to_owned());
        }
        for task in &self.tasks {
            let names: BTreeSet<&str> = task.variants.iter().map(|v| v.name.as_str()).collect();
            if names.len() != task.variants.len() || names.is_empty() {
                return fail(format!("task {} has at least one variant, and each name once", task.name));
            }
        }
        let Edges { out_edges, to, parents } = self.edges_by_index(&index)?;
        if let Some(join) = parents.iter().position(|&p| p > 1).filter(|_| self.validation.is_some()) {
            return fail(format!(
                "task {} has several parents, and a validation set runs along trees only: leave it out, and give `accuracy` \
                 and `fanout` of the variants",
                self.tasks[join].name
            ));
        }
        let roots: Vec<usize> = (0..parents.len()).filter(|&t| parents[t] == 0).collect();
        let [root] = roots[..] else {
            return fail(format!("a pipeline has one task without a parent, this one has {}", roots.len()));
        };
        let order = parents_first(root, &out_edges, &to, &parents);
        if order.len() != self.tasks.len() {
            return fail("some tasks are on a cycle, or behind one".to_owned());
        }
        let runs = if self.validation.is_some() { self.runs(&order, &out_edges, &to)? } else { 0 };
        Ok(Tree { root, out_edges, to, order, runs })
    }

    fn edges_by_index(&self, index: &BTreeMap<&str, usize>) -> Result<Edges, ProfileError> {
        let mut out_edges = vec![Vec::new(); self.tasks.len()];
        let mut to = Vec::new();
        let mut parents = vec![0_usize; self.tasks.len()];
        for (e, edge) in self.edges.iter().enumerate() {
            let (Some(&from), Some(&child)) = (index.get(edge.from.as_str()), index.get(edge.to.as_str())) else {
                let detail = format!("edge {} -> {} names an unknown task", edge.from, edge.to);
                return Err(ProfileError::Pipeline(detail));
            };
            out_edges[from].push(e);
            to.push(child);
            parents[child] += 1;
        }
        Ok(Edges { out_edges, to, parents })
    }

    /// The number of combinations of variants to run, at most [`PATHS_MAX`].
    fn runs(&self, order: &[usize], out_edges: &[Vec<usize>], to: &[usize]) -> Result<usize, ProfileError> {
        let mut prefixes = vec![1_usize; self.tasks.len()];
        let mut total = 0_usize;
        for &task in order {
            prefixes[task] = prefixes[task].saturating_mul(self.tasks[task].variants.len());
            total = total.saturating_add(prefixes[task]);
            for &edge in &out_edges[task] {
                prefixes[to[edge]] = prefixes[task];
            }
        }
        if total > PATHS_MAX {
            let detail = format!("{total} combinations of variants would have to be run; at most {PATHS_MAX} are");
            return Err(ProfileError::Pipeline(detail));
        }
        Ok(total)
    }
}

/// The tasks to which the root leads without a cycle, each once and behind all its parents.
fn parents_first(root: usize, out_edges: &[Vec<usize>], to: &[usize], parents: &[usize]) -> Vec<usize> {
    let (mut missing, mut order) = (parents.to_vec(), vec![root]);
    let mut next = 0;
    while next < order.len() {
        for &edge in &out_edges[order[next]] {
            let child = to[edge];
            missing[child] -= 1;
            if missing[child] == 0 {
                order.push(child);
            }
        }
        next += 1;
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tasks `a b c ..` with two variants each and the edges given as `ab` for a -> b.
    fn pipeline(tasks: &str, edges: &[&str]) -> PipelineFiles {
        let variant = |name: &str| VariantFile {
            name: name.to_owned(),
            file: PathBuf::new(),
            runtime: VariantRuntime::Onnx,
            execution: VariantExecution::default(),
        };
        let task = |name: char| TaskFiles {
            name: name.to_string(),
            variants: vec![variant("x"), variant("y")],
            ..TaskFiles::default()
        };
        let edge = |e: &&str| EdgeFiles { from: e[..1].to_owned(), to: e[1..].to_owned(), map: BTreeMap::new() };
        let matching = MatchRule::Cosine("v".to_owned());
        let validation = Some(ValidationFiles { inputs: BTreeMap::new(), labels: None, matching });
        PipelineFiles { tasks: tasks.chars().map(task).collect(), edges: edges.iter().map(edge).collect(), validation }
    }

    #[test]
    fn parents_come_first() {
        let tree = pipeline("cba", &["ab", "bc"]).tree().expect("a chain");
        assert_eq!((tree.root, tree.order), (2, vec![2, 1, 0]));
    }

    #[test]
    fn joins_come_behind_all_their_parents() {
        let join = pipeline("dcba", &["ad", "ab", "bc", "bd", "cd"]);
        assert!(join.tree().expect_err("with examples").to_string().contains("task d has several parents"));
        let drawn = PipelineFiles { validation: None, ..join };
        let tree = drawn.tree().expect("one root");
        assert_eq!((tree.root, tree.order), (3, vec![3, 2, 1, 0]));
        let cycle = PipelineFiles { validation: None, ..pipeline("abc", &["ab", "bc", "cb"]) };
        assert!(cycle.tree().expect_err("a cycle").to_string().contains("on a cycle"));
    }

    #[test]
    fn pipelines_that_are_no_tree_are_refused() {
        let cases: [(&str, &[&str], &str); 7] = [
            ("", &[], "at least one task"),
            ("aa", &["aa"], "each name once"),
            ("ab", &["ac"], "unknown task"),
            ("abc", &["ab", "ac", "bc"], "several parents"),
            ("ab", &[], "this one has 2"),
            ("ab", &["ab", "ba"], "this one has 0"),
            ("abc", &["bc", "cb"], "cycle"),
        ];
        for (tasks, edges, said) in cases {
            let error = pipeline(tasks, edges).tree().expect_err(said).to_string();
            assert!(error.contains(said), "{error} should say {said:?}");
        }
    }

    #[test]
    fn too_many_combinations_are_refused() {
        assert!(pipeline("abcdefghijk", &["ab", "bc", "cd", "de", "ef", "fg", "gh", "hi", "ij", "jk"]).tree().is_ok());
        let twelve = pipeline("abcdefghijkl", &["ab", "bc", "cd", "de", "ef", "fg", "gh", "hi", "ij", "jk", "kl"]);
        assert!(twelve.tree().expect_err("2 + 4 + .. + 4096").to_string().contains("8190 combinations"));
        let drawn = PipelineFiles { validation: None, ..twelve };
        assert_eq!(drawn.tree().map(|tree| tree.runs).ok(), Some(0), "no combination runs without examples");
    }
}
