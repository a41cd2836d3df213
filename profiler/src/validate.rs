//! Which fan-out and which accuracy does every combination of variants have on the validation set?

use crate::error::ProfileError;
use crate::files::{MatchRule, PipelineFiles, TaskFiles, Tree};
use crate::score::{Scorer, SinkAnswers};
use apportion_domain::FanoutCounts;
use apportion_domain::transform::PARENT;
use apportion_executor::backend::Backend;
use apportion_executor::tensor::{Datatype, Tensor, concatenate};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Queries of a batch during validation. The answers do not depend on it.
const BATCH: usize = 8;

/// A variant of a task, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathStage {
    /// The task.
    pub task: String,
    /// The variant.
    pub variant: String,
}

/// Accuracy of one combination of variants from the root to a sink.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredPath {
    /// Its stages, the root first.
    pub path: Vec<PathStage>,
    /// From 0 to 1: the share of the labels that were found, or what another rule says.
    pub accuracy: f64,
}

impl MeasuredPath {
    /// Its key in problem files: `task:variant>task:variant`.
    #[must_use]
    pub fn key(&self) -> String {
        self.path.iter().map(|s| format!("{}:{}", s.task, s.variant)).collect::<Vec<_>>().join(">")
    }
}

/// The results on the validation set.
pub(crate) struct Validation {
    /// By task, then variant: the number of queries by the number of rows that they made.
    pub counts: Vec<Vec<BTreeMap<u32, u64>>>,
    /// Every path to a sink.
    pub paths: Vec<MeasuredPath>,
    /// By task: the inputs for timing its variants, which are the most queries that reached it by one combination of
    /// variants.
    pub samples: Vec<Vec<Tensor>>,
}

/// A run of the validation set over all combinations of variants.
pub(crate) struct Validator<'a> {
    files: &'a PipelineFiles,
    tree: &'a Tree,
    scorer: Scorer<'a>,
    /// By task: its variants in the order of their runs.
    order: Vec<Vec<usize>>,
    found: Validation,
    path: Vec<Place>,
    after_run: &'a mut dyn FnMut(String),
}

/// A variant of a task, by index.
#[derive(Clone, Copy)]
struct Place {
    task: usize,
    variant: usize,
}

/// Queries at one task.
struct Queries {
    inputs: Vec<Tensor>,
    /// The example of each query.
    examples: Vec<usize>,
}

/// The answers of a variant.
struct Answers {
    /// The outputs that are read, by name, each with as many rows as `parents`.
    outputs: BTreeMap<String, Tensor>,
    /// The query that each row came from.
    parents: Vec<usize>,
}

impl<'a> Validator<'a> {
    pub(crate) fn new(
        files: &'a PipelineFiles,
        tree: &'a Tree,
        scorer: Scorer<'a>,
        after_run: &'a mut dyn FnMut(String),
    ) -> Self {
        let counts = files.tasks.iter().map(|t| vec![BTreeMap::new(); t.variants.len()]).collect();
        let found = Validation { counts, paths: Vec::new(), samples: vec![Vec::new(); files.tasks.len()] };
        let order = files.tasks.iter().map(|task| order_of_runs(task, scorer.rule())).collect();
        Self { files, tree, scorer, order, found, path: Vec::new(), after_run }
    }

    /// Runs the examples (all inputs of the root, a row for each example of the scorer) through every combination.
    pub(crate) fn run(
        mut self,
        backends: &mut [Vec<Box<dyn Backend>>],
        examples: Vec<Tensor>,
    ) -> Result<Validation, ProfileError> {
        let queries = Queries { inputs: examples, examples: (0..self.scorer.examples()).collect() };
        self.visit(backends, self.tree.root, &queries)?;
        Ok(self.found)
    }

    /// Runs every variant of a task on the queries that the variants on `self.path` made, then the tasks below it.
    fn visit(
        &mut self,
        backends: &mut [Vec<Box<dyn Backend>>],
        task: usize,
        queries: &Queries,
    ) -> Result<(), ProfileError> {
        let rows = |inputs: &[Tensor]| inputs.first().map_or(0, Tensor::rows);
        if rows(&queries.inputs) > rows(&self.found.samples[task]) {
            self.found.samples[task].clone_from(&queries.inputs);
        }
        for variant in self.order[task].clone() {
            let answers = self.answer(backends[task][variant].as_mut(), Place { task, variant }, queries)?;
            self.count(task, variant, queries.examples.len(), &answers);
            self.path.push(Place { task, variant });
            if self.tree.out_edges[task].is_empty() {
                let path = self.score(queries, &answers)?;
                self.found.paths.push(path);
            }
            let key = self.key();
            (self.after_run)(key);
            for &edge in &self.tree.out_edges[task] {
                let map = &self.files.edges[edge].map;
                let rename =
                    |(input, output): (&String, &String)| Tensor { name: input.clone(), ..answers.outputs[output].clone() };
                let inputs = map.iter().map(rename).collect();
                let examples = answers.parents.iter().map(|&query| queries.examples[query]).collect();
                self.visit(backends, self.tree.to[edge], &Queries { inputs, examples })?;
            }
            self.path.pop();
        }
        Ok(())
    }

    /// Names of the outputs of a task that its children or the matching read.
    fn outputs_read(&self, task: usize) -> BTreeSet<&str> {
        let edges = self.tree.out_edges[task].iter().map(|&e| &self.files.edges[e]);
        let mapped: BTreeSet<&str> = edges.flat_map(|e| e.map.values().map(String::as_str)).collect();
        if !self.tree.out_edges[task].is_empty() {
            return mapped;
        }
        self.scorer.rule().outputs().into_iter().collect()
    }

    fn answer(
        &self,
        backend: &mut dyn Backend,
        Place { task, variant }: Place,
        queries: &Queries,
    ) -> Result<Answers, ProfileError> {
        let read = self.outputs_read(task);
        let names: Vec<String> = backend.signature().outputs.iter().map(|o| o.name.clone()).collect();
        let mut parts: BTreeMap<String, Vec<Tensor>> = BTreeMap::new();
        let mut parents = Vec::new();
        let count = queries.examples.len();
        // Without queries one empty batch runs, so that the outputs have their shapes.
        for start in (0..count.max(1)).step_by(BATCH) {
            let size = BATCH.min(count - start);
            let inputs: Vec<Tensor> = queries.inputs.iter().map(|i| i.slice(start, size)).collect();
            let outputs = backend.run(&inputs).map_err(|e| self.failed(task, variant, e))?;
            let fault = |detail: String| self.fault(task, variant, detail);
            let batch = match names.iter().position(|n| n == PARENT) {
                Some(p) => parents_of(&outputs[p], size).map_err(|e| fault(e.to_string()))?,
                None => (0..size).collect(),
            };
            for output in outputs.into_iter().filter(|o| read.contains(o.name.as_str())) {
                if output.rows() != batch.len() {
                    let (name, rows) = (&output.name, output.rows());
                    let detail = format!("output {name} has {rows} rows where {} are queries' answers", batch.len());
                    return Err(self.fault(task, variant, detail));
                }
                parts.entry(output.name.clone()).or_default().push(output);
            }
            parents.extend(batch.into_iter().map(|p| start + p));
        }
        let joined = parts.into_iter().map(|(name, parts)| {
            let all: Vec<&Tensor> = parts.iter().collect();
            let several = || format!("output {name} has rows of several shapes: expected one shape for all batches");
            let whole = concatenate(&all).ok_or_else(|| self.fault(task, variant, several()))?;
            Ok((name, whole))
        });
        Ok(Answers { outputs: joined.collect::<Result<_, ProfileError>>()?, parents })
    }

    /// Adds to the distribution of rows per query.
    fn count(&mut self, task: usize, variant: usize, queries: usize, answers: &Answers) {
        let mut made = vec![0_u32; queries];
        for &query in &answers.parents {
            made[query] += 1;
        }
        for rows in made {
            *self.found.counts[task][variant].entry(rows).or_default() += 1;
        }
    }

    /// Accuracy of the combination on `self.path`, which ends in a sink.
    fn score(&mut self, queries: &Queries, answers: &Answers) -> Result<MeasuredPath, ProfileError> {
        let &Place { task, variant } = self.path.last().expect("a path to a sink");
        let mut measured = MeasuredPath { path: self.stages(), accuracy: 0.0 };
        let examples: Vec<usize> = answers.parents.iter().map(|&query| queries.examples[query]).collect();
        let path = measured.key();
        let answers = SinkAnswers { sink: task, path: &path, outputs: &answers.outputs, examples: &examples };
        measured.accuracy = self.scorer.score(&answers).map_err(|e| self.fault(task, variant, e.to_string()))?;
        Ok(measured)
    }

    /// The stages of `self.path`.
    fn stages(&self) -> Vec<PathStage> {
        let stage = |place: &Place| {
            let task = &self.files.tasks[place.task];
            PathStage { task: task.name.clone(), variant: task.variants[place.variant].name.clone() }
        };
        self.path.iter().map(stage).collect()
    }

    fn key(&self) -> String {
        self.stages().into_iter().map(|stage| stage.variant).collect::<Vec<_>>().join(" > ")
    }

    fn failed(&self, task: usize, variant: usize, source: apportion_executor::backend::BackendError) -> ProfileError {
        let task = &self.files.tasks[task];
        ProfileError::Variant {
            task: task.name.clone(),
            variant: task.variants[variant].name.clone(),
            source: Box::new(source),
        }
    }

    fn fault(&self, task: usize, variant: usize, detail: String) -> ProfileError {
        let task = &self.files.tasks[task];
        ProfileError::Convention { task: task.name.clone(), variant: task.variants[variant].name.clone(), detail }
    }
}

/// The variants of a task in the order of their runs: as the files have them. For a cosine the variant with the largest
/// file comes first, so the first answers of each sink are those of the largest variants.
fn order_of_runs(task: &TaskFiles, rule: &MatchRule) -> Vec<usize> {
    let mut order: Vec<usize> = (0..task.variants.len()).collect();
    if matches!(rule, MatchRule::Cosine(_)) {
        let size = |v: usize| std::fs::metadata(&task.variants[v].file).map_or(0, |file| file.len());
        order.sort_by_cached_key(|&v| Reverse(size(v)));
    }
    order
}

/// Why an output `parent` is refused.
#[derive(Debug, thiserror::Error)]
enum ParentError {
    #[error("output {PARENT} is not an INT64 for each row")]
    Type,
    #[error("output {PARENT} is {index} in a batch of {queries}")]
    OutOfRange { index: i64, queries: usize },
}

/// The query of each row, by the output `parent`.
fn parents_of(parent: &Tensor, queries: usize) -> Result<Vec<usize>, ParentError> {
    if parent.datatype != Datatype::Int64 || parent.shape.len() != 1 {
        return Err(ParentError::Type);
    }
    let (chunks, _) = parent.data.as_chunks::<8>();
    let index = |chunk: &[u8; 8]| {
        let parent = i64::from_le_bytes(*chunk);
        let index = usize::try_from(parent).ok().filter(|&p| p < queries);
        index.ok_or(ParentError::OutOfRange { index: parent, queries })
    };
    chunks.iter().map(index).collect()
}

/// A histogram as a distribution.
pub(crate) fn distribution(counts: &BTreeMap<u32, u64>) -> FanoutCounts {
    let total: u64 = counts.values().sum();
    FanoutCounts(counts.iter().map(|(&count, &times)| (count, times as f64 / total as f64)).collect())
}
