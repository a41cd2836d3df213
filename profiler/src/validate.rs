//! Which fan-out and which accuracy does every combination of variants have on the validation set?

use crate::error::ProfileError;
use crate::files::{MatchRule, PipelineFiles, TaskFiles, Tree};
use crate::samples::row_count;
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
    /// By task, then shape: the inputs for timing its variants, which are the most queries that reached it by one
    /// combination of variants.
    pub samples: Vec<Vec<Vec<Tensor>>>,
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

/// Tensors of one shape with a row for each query at a task, or for each answer.
struct ExampleTensors {
    tensors: Vec<Tensor>,
    /// The example of each row.
    examples: Vec<usize>,
}

/// The answers of a variant to queries of one shape.
struct Answers {
    /// By batch: the outputs that are read.
    batches: Vec<ExampleTensors>,
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

    /// Runs the examples through every combination: by array file, all inputs of the root, together with a row for each
    /// example of the scorer.
    pub(crate) fn run(
        mut self,
        backends: &mut [Vec<Box<dyn Backend>>],
        examples: Vec<Vec<Tensor>>,
    ) -> Result<Validation, ProfileError> {
        let (mut begin, files, all) = (0, examples.len(), self.scorer.examples());
        let queries = examples.into_iter().map(|tensors| {
            // A root without inputs has no rows to count.
            let end = if files == 1 { all } else { begin + row_count(&tensors) };
            let of_file = ExampleTensors { tensors, examples: (begin..end).collect() };
            begin = end;
            of_file
        });
        let queries = by_shape(queries.collect()).map_err(|e| ProfileError::Pipeline(e.to_string()))?;
        self.visit(backends, self.tree.root, &queries)?;
        Ok(self.found)
    }

    /// Runs every variant of a task on the queries that the variants on `self.path` made, by shape. Then it runs the tasks
    /// below.
    fn visit(
        &mut self,
        backends: &mut [Vec<Box<dyn Backend>>],
        task: usize,
        queries: &[ExampleTensors],
    ) -> Result<(), ProfileError> {
        let reached: usize = queries.iter().map(|of| row_count(&of.tensors)).sum();
        if reached > self.found.samples[task].iter().map(|tensors| row_count(tensors)).sum::<usize>() {
            let with_rows = queries.iter().filter(|of| row_count(&of.tensors) > 0);
            self.found.samples[task] = with_rows.map(|of| of.tensors.clone()).collect();
        }
        for variant in self.order[task].clone() {
            let place = Place { task, variant };
            let mut batches = Vec::new();
            for of_shape in queries {
                let answers = self.answer(backends[task][variant].as_mut(), place, of_shape)?;
                self.count(task, variant, of_shape.examples.len(), &answers.parents);
                batches.extend(answers.batches);
            }
            self.path.push(place);
            if self.tree.out_edges[task].is_empty() {
                let path = self.score(&batches)?;
                self.found.paths.push(path);
            }
            let key = self.key();
            (self.after_run)(key);
            for &edge in &self.tree.out_edges[task] {
                let made = made_queries(&self.files.edges[edge].map, &batches);
                let made = by_shape(made).map_err(|e| self.fault(task, variant, e.to_string()))?;
                self.visit(backends, self.tree.to[edge], &made)?;
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
        queries: &ExampleTensors,
    ) -> Result<Answers, ProfileError> {
        let read = self.outputs_read(task);
        let names: Vec<String> = backend.signature().outputs.iter().map(|o| o.name.clone()).collect();
        let (mut batches, mut parents) = (Vec::new(), Vec::new());
        let count = queries.examples.len();
        // Without queries one empty batch runs, so that the outputs have their shapes.
        for start in (0..count.max(1)).step_by(BATCH) {
            let size = BATCH.min(count - start);
            let inputs: Vec<Tensor> = queries.tensors.iter().map(|i| i.slice(start, size)).collect();
            let outputs = backend.run(&inputs).map_err(|e| self.failed(task, variant, e))?;
            let fault = |detail: String| self.fault(task, variant, detail);
            let batch = match names.iter().position(|n| n == PARENT) {
                Some(p) => parents_of(&outputs[p], size).map_err(|e| fault(e.to_string()))?,
                None => (0..size).collect(),
            };
            let tensors: Vec<Tensor> = outputs.into_iter().filter(|o| read.contains(o.name.as_str())).collect();
            if let Some(odd) = tensors.iter().find(|output| output.rows() != batch.len()) {
                let (name, rows) = (&odd.name, odd.rows());
                return Err(fault(format!("output {name} has {rows} rows where {} are queries' answers", batch.len())));
            }
            let examples = batch.iter().map(|&query| queries.examples[start + query]).collect();
            batches.push(ExampleTensors { tensors, examples });
            parents.extend(batch.into_iter().map(|p| start + p));
        }
        Ok(Answers { batches, parents })
    }

    /// Adds to the distribution of rows per query.
    fn count(&mut self, task: usize, variant: usize, queries: usize, parents: &[usize]) {
        let mut made = vec![0_u32; queries];
        for &query in parents {
            made[query] += 1;
        }
        for rows in made {
            *self.found.counts[task][variant].entry(rows).or_default() += 1;
        }
    }

    /// Accuracy of the combination on `self.path`, which ends in a sink. Rows of an example whose queries had several
    /// shapes are in the order of the shapes.
    fn score(&mut self, batches: &[ExampleTensors]) -> Result<MeasuredPath, ProfileError> {
        let &place = self.path.last().expect("a path to a sink");
        let copied = batches.iter().map(|of| ExampleTensors { tensors: of.tensors.clone(), examples: of.examples.clone() });
        let fault = |e: SeveralShapes| self.fault(place.task, place.variant, e.to_string());
        let answers = by_shape(copied.collect()).map_err(fault)?;
        let [ExampleTensors { tensors, examples }] = &answers[..] else {
            let name = answers.first().and_then(|of| of.tensors.first()).map(|tensor| tensor.name.clone());
            return Err(fault(SeveralShapes(name.unwrap_or_default())));
        };
        let outputs = tensors.iter().map(|tensor| (tensor.name.clone(), tensor.clone())).collect();
        let mut measured = MeasuredPath { path: self.stages(), accuracy: 0.0 };
        let path = measured.key();
        let answers = SinkAnswers { sink: place.task, path: &path, outputs: &outputs, examples };
        let score = self.scorer.score(&answers);
        measured.accuracy = score.map_err(|e| self.fault(place.task, place.variant, e.to_string()))?;
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

/// The queries that the answers of a task make along an edge with this map, by batch.
fn made_queries(map: &BTreeMap<String, String>, batches: &[ExampleTensors]) -> Vec<ExampleTensors> {
    let of_batch = |batch: &ExampleTensors| {
        let input = |(input, output): (&String, &String)| {
            let made = batch.tensors.iter().find(|tensor| tensor.name == *output);
            made.map(|tensor| Tensor { name: input.clone(), ..tensor.clone() })
        };
        ExampleTensors { tensors: map.iter().filter_map(input).collect(), examples: batch.examples.clone() }
    };
    batches.iter().map(of_batch).collect()
}

/// The rows of a tensor do not fit together.
#[derive(Debug, thiserror::Error)]
#[error("output {0} has rows of several shapes: expected one shape for all batches")]
struct SeveralShapes(String);

/// The rows of all batches, those of one shape under each other in the order of the batches; at least one. Batches without
/// rows count only if there are no others.
fn by_shape(batches: Vec<ExampleTensors>) -> Result<Vec<ExampleTensors>, SeveralShapes> {
    let has_rows = batches.iter().any(|batch| !batch.examples.is_empty());
    let mut shapes: BTreeMap<Vec<Vec<usize>>, Vec<ExampleTensors>> = BTreeMap::new();
    for batch in batches.into_iter().filter(|batch| !has_rows || !batch.examples.is_empty()) {
        let shape = batch.tensors.iter().map(|tensor| tensor.shape.iter().skip(1).copied().collect()).collect();
        shapes.entry(shape).or_default().push(batch);
    }
    shapes.into_values().map(|batches| joined(&batches)).collect()
}

/// The rows of batches of one shape under each other.
fn joined(batches: &[ExampleTensors]) -> Result<ExampleTensors, SeveralShapes> {
    let first = batches.first().map(|batch| batch.tensors.as_slice()).unwrap_or_default();
    let mut tensors = Vec::with_capacity(first.len());
    for (position, tensor) in first.iter().enumerate() {
        let parts: Vec<&Tensor> = batches.iter().filter_map(|batch| batch.tensors.get(position)).collect();
        tensors.push(concatenate(&parts).ok_or_else(|| SeveralShapes(tensor.name.clone()))?);
    }
    let examples = batches.iter().flat_map(|batch| batch.examples.iter().copied()).collect();
    Ok(ExampleTensors { tensors, examples })
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
