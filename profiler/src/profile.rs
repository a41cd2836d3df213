//! How is a whole pipeline profiled? Every variant is loaded, every combination validated, every variant timed.

use crate::beside::{ShareError, profile_share};
use crate::bound::BoundThread;
use crate::described::{described, described_all, misfit};
use crate::error::ProfileError;
use crate::examples::{ExampleSet, read_examples};
use crate::files::{PipelineFiles, TaskFiles, Tree, ValidationFiles, VariantFile};
use crate::measure::{MeasureOptions, profile_variant};
use crate::memory::MemoryProbe;
use crate::mixture::{ShapePoints, of_all_shapes};
use crate::samples::{ShapedInputs, drawn_samples, recorded_samples};
use crate::score::Scorer;
use crate::validate::{MeasuredPath, Validation, Validator, distribution};
use crate::whole_queries::whole_queries;
use apportion_domain::{FanoutCounts, Share, VariantRuntime};
use apportion_executor::backend::{
    Backend, BackendError, ExecutionSettings, GluedBackend, OnnxBackend, PythonBackend, PythonSettings, Signature,
};
use apportion_executor::measuring::percentiles::percentile;
use apportion_executor::measuring::rows::cycle;
use apportion_executor::measuring::stats::ProfilePoint;
use apportion_executor::tensor::{Tensor, TensorSignature};
use apportion_executor::transforms::run_before;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

/// Loads a variant from its file.
pub type VariantLoader<'a> = dyn Fn(&VariantFile) -> Result<Box<dyn Backend>, BackendError> + 'a;

/// A loader of ONNX files with the library at `library`, for a device with the settings `here`, and of stages in Python.
/// Each variant runs as it asks.
pub fn file_loader(
    library: PathBuf,
    here: ExecutionSettings,
    python: PythonSettings,
) -> impl Fn(&VariantFile) -> Result<Box<dyn Backend>, BackendError> {
    move |variant| {
        let running = here.of_variant(variant.execution)?;
        match variant.runtime {
            VariantRuntime::Onnx => {
                OnnxBackend::load(&library, &variant.file, running).and_then(|model| whole_queries(model, &variant.file))
            }
            VariantRuntime::Python => {
                let settings = PythonSettings { threads: running.threads, ..python.clone() };
                PythonBackend::start(settings, &variant.file).map(|b| Box::new(b) as _)
            }
        }
    }
}

/// How often each variant is loaded. The median time counts.
const LOADS: usize = 3;

/// The progress of the work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfilingProgress {
    /// Steps done.
    pub done: usize,
    /// Steps in all.
    pub total: usize,
    /// The last step.
    pub what: String,
}

/// The measurements of a pipeline.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// In the files' order.
    pub tasks: Vec<TaskMeasurement>,
    /// Every combination of variants from the root to a sink.
    pub path_accuracy: Vec<MeasuredPath>,
    /// How many examples of the validation set were run.
    pub examples: usize,
}

/// The measurements of a task.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskMeasurement {
    /// Its name.
    pub name: String,
    /// Its inputs, before its transforms.
    pub inputs: Vec<TensorSignature>,
    /// Its outputs, after them.
    pub outputs: Vec<TensorSignature>,
    /// The tensors of the variants themselves, where transforms make other ones.
    pub model: Option<Signature>,
    /// In the files' order.
    pub variants: Vec<VariantMeasurement>,
}

/// The measurements of a variant.
#[derive(Clone, Debug, PartialEq)]
pub struct VariantMeasurement {
    /// Its name.
    pub name: String,
    /// Accuracy of the best path through it; `None` without a validation set.
    pub accuracy: Option<f64>,
    /// Mean rows per query: Loki's multiplicative factor (section 4.1). `None` without a validation set: drawn inputs say
    /// nothing about it.
    pub fanout: Option<f64>,
    /// By child task: distribution of the queries that one query makes there, over all queries that reached the variant.
    /// Empty without a validation set.
    pub fanout_counts: BTreeMap<String, FanoutCounts>,
    /// Median time to load it into memory, in a process with the runtime.
    pub load_ms: f64,
    /// Peak memory on its device, loaded and run with the largest batch; `None` if it cannot be measured.
    pub memory_mib: Option<f64>,
    /// Latency by batch size, never falling. With several shapes of the queries it is that of all together.
    pub rows: Vec<ProfilePoint>,
    /// The same for each shape of the queries; empty if they have one shape.
    pub by_shape: Vec<ShapePoints>,
    /// The latencies on the wanted shares of a device, in the order of the options.
    pub shares: Vec<ShareMeasurement>,
}

/// The latencies of a variant on a share of a device.
#[derive(Clone, Debug, PartialEq)]
pub struct ShareMeasurement {
    /// The share.
    pub share: Share,
    /// Latency by batch size beside neighbours, never falling. With several shapes of the queries it is that of all
    /// together.
    pub rows: Vec<ProfilePoint>,
    /// The same for each shape of the queries; empty if they have one shape.
    pub by_shape: Vec<ShapePoints>,
}

/// Counts the steps.
struct Steps<'a> {
    progress: ProfilingProgress,
    report: &'a mut dyn FnMut(&ProfilingProgress),
}

impl Steps<'_> {
    fn step(&mut self, what: String) {
        self.progress.done += 1;
        self.progress.what = what;
        (self.report)(&self.progress);
    }
}

/// Profiles a pipeline.
///
/// It loads every variant and holds all of them in memory. It runs the validation set through every combination of
/// variants. Then it times each variant alone on the queries that reached its task, and measures its memory. It also times
/// it beside copies of itself, for each wanted share of a device. Without a validation set it times them on inputs that are
/// drawn from the shapes.
///
/// # Errors
/// As [`ProfileError`] lists. There are no partial results.
pub fn profile_pipeline(
    files: &PipelineFiles,
    load: &VariantLoader<'_>,
    memory: &MemoryProbe<'_>,
    options: &MeasureOptions,
    report: &mut dyn FnMut(&ProfilingProgress),
) -> Result<Measured, ProfileError> {
    let tree = files.tree()?;
    let variants: usize = files.tasks.iter().map(|t| t.variants.len()).sum();
    let total = (2 + options.shares.len()) * variants + tree.runs;
    let progress = ProfilingProgress { done: 0, total, what: String::new() };
    let mut steps = Steps { progress, report };

    let LoadedVariants { mut backends, load_ms, models } = load_all(files, load, &mut steps)?;
    let signatures: Vec<Signature> = backends.iter().map(|b| b[0].signature().clone()).collect();
    check_maps(files, &tree, &signatures)?;
    let SampleRun { validation, samples, examples } = match &files.validation {
        Some(set) => {
            let examples = read_examples(set, &signatures[tree.root], options.examples_max)?;
            validate(files, &tree, set, examples, &mut backends, &mut steps)?
        }
        None => {
            let drawn = files.tasks.iter().zip(&signatures).map(|(task, of)| drawn_samples(task, of, options));
            SampleRun { validation: None, samples: drawn.collect::<Result<_, _>>()?, examples: 0 }
        }
    };

    let (tree, validated) = (&tree, validation.as_ref());
    let timing = Timing { files, tree, load, validation: validated, samples: &samples, models: &models, memory, options };
    let mut tasks = Vec::with_capacity(files.tasks.len());
    for (t, (signature, load_ms)) in signatures.into_iter().zip(&load_ms).enumerate() {
        let variants = timing.time_task(t, &mut backends[t], load_ms, &mut steps)?;
        let Signature { inputs, outputs } = signature;
        let model = (!files.tasks[t].glue.is_empty()).then(|| models[t].clone());
        tasks.push(TaskMeasurement { name: files.tasks[t].name.clone(), inputs, outputs, model, variants });
    }
    let path_accuracy = validation.map(|validation| validation.paths).unwrap_or_default();
    Ok(Measured { tasks, path_accuracy, examples })
}

/// The inputs for timing, and what the validation set says.
struct SampleRun {
    /// `None` without a validation set.
    validation: Option<Validation>,
    /// By task: the inputs for timing its variants, for each shape of its queries.
    samples: Vec<Vec<ShapedInputs>>,
    /// How many examples were run.
    examples: usize,
}

/// Runs the validation set through every combination of variants.
fn validate(
    files: &PipelineFiles,
    tree: &Tree,
    set: &ValidationFiles,
    ExampleSet { examples, labels }: ExampleSet,
    backends: &mut Backends,
    steps: &mut Steps<'_>,
) -> Result<SampleRun, ProfileError> {
    let mut after_run = |path: String| steps.step(format!("validated {path}"));
    let scorer = Scorer::new(&set.matching, &labels);
    let validator = Validator::new(files, tree, scorer, &mut after_run);
    let mut validation = validator.run(backends, examples)?;
    let reached = std::mem::take(&mut validation.samples);
    // Parents come first: a task below one without queries has none either.
    let mut samples = vec![Vec::new(); files.tasks.len()];
    for (task, of_task) in tree.order.iter().map(|&t| (t, reached[t].clone())) {
        samples[task] = recorded_samples(&files.tasks[task], of_task)?;
    }
    Ok(SampleRun { validation: Some(validation), samples, examples: labels.len() })
}

type Backends = Vec<Vec<Box<dyn Backend>>>;

/// All variants, loaded; both by task, then variant.
struct LoadedVariants {
    backends: Backends,
    /// The time that loading took, in milliseconds.
    load_ms: Vec<Vec<f64>>,
    /// By task: the tensors of its variants without transforms.
    models: Vec<Signature>,
}

fn load_all(
    files: &PipelineFiles,
    load: &VariantLoader<'_>,
    steps: &mut Steps<'_>,
) -> Result<LoadedVariants, ProfileError> {
    let (mut backends, mut load_ms, mut models) = (Backends::new(), Vec::new(), Vec::new());
    for (t, task) in files.tasks.iter().enumerate() {
        let (mut of_task, mut times) = (Vec::<Box<dyn Backend>>::new(), Vec::new());
        for (v, variant) in task.variants.iter().enumerate() {
            let fault = |source| variant_error(files, t, v, source);
            let LoadedVariant { backend, time_ms } = load_variant(variant, load).map_err(fault)?;
            if let Some(first) = of_task.first().filter(|b| b.signature() != backend.signature()) {
                let (mine, theirs) = (backend.signature(), first.signature());
                let (side, mine, theirs) = match mine.inputs == theirs.inputs {
                    false => ("inputs", described_all(&mine.inputs), described_all(&theirs.inputs)),
                    true => ("outputs", described_all(&mine.outputs), described_all(&theirs.outputs)),
                };
                let detail = format!(
                    "its {side} are {mine}, and those of {} are {theirs}; variants of a task stand in for each other, so \
                     export them with the same tensors, or make two tasks",
                    task.variants[0].name
                );
                return Err(ProfileError::Convention { task: task.name.clone(), variant: variant.name.clone(), detail });
            }
            of_task.push(backend);
            times.push(time_ms);
            steps.step(format!("loaded {}", variant.name));
        }
        models.push(of_task[0].signature().clone());
        backends.push(with_transforms(task, of_task)?);
        load_ms.push(times);
    }
    Ok(LoadedVariants { backends, load_ms, models })
}

/// The variants of a task with its transforms around them.
fn with_transforms(task: &TaskFiles, variants: Vec<Box<dyn Backend>>) -> Result<Vec<Box<dyn Backend>>, ProfileError> {
    if task.glue.is_empty() {
        return Ok(variants);
    }
    let glued = |variant| match GluedBackend::new(variant, task.glue.clone(), &task.inputs) {
        Ok(glued) => Ok(Box::new(glued) as Box<dyn Backend>),
        Err(error) => Err(ProfileError::Pipeline(format!("task {}, {error}", task.name))),
    };
    variants.into_iter().map(glued).collect()
}

/// A loaded variant.
struct LoadedVariant {
    backend: Box<dyn Backend>,
    /// The median of the times that loading took, in milliseconds.
    time_ms: f64,
}

/// Loads a variant several times.
fn load_variant(file: &VariantFile, load: &VariantLoader<'_>) -> Result<LoadedVariant, BackendError> {
    let mut times = Vec::with_capacity(LOADS);
    let mut backend = None;
    for _ in 0..LOADS {
        drop(backend.take()); // so that two never share the memory
        let before = Instant::now();
        backend = Some(load(file)?);
        times.push(before.elapsed().as_secs_f64() * 1e3);
    }
    Ok(LoadedVariant { backend: backend.expect("loaded at least once"), time_ms: percentile(&times, 0.5) })
}

fn variant_error(files: &PipelineFiles, task: usize, variant: usize, source: BackendError) -> ProfileError {
    let task = &files.tasks[task];
    ProfileError::Variant {
        task: task.name.clone(),
        variant: task.variants[variant].name.clone(),
        source: Box::new(source),
    }
}

/// Checks that every input of a child comes from a matching output of its parent, and that sinks have the outputs of the
/// labels.
fn check_maps(files: &PipelineFiles, tree: &Tree, signatures: &[Signature]) -> Result<(), ProfileError> {
    for (&from, edge) in tree.order.iter().flat_map(|t| tree.out_edges[*t].iter().map(move |e| (t, e))) {
        let (to, edge) = (tree.to[*edge], &files.edges[*edge]);
        check_map(&edge.map, &signatures[from], &signatures[to])
            .map_err(|detail| ProfileError::Pipeline(format!("edge {} -> {}: {detail}", edge.from, edge.to)))?;
    }
    check_inputs(files, tree, signatures)?;
    let Some(ValidationFiles { matching: rule, .. }) = &files.validation else { return Ok(()) };
    for sink in (0..files.tasks.len()).filter(|&t| tree.out_edges[t].is_empty()) {
        for name in rule.outputs() {
            if !signatures[sink].outputs.iter().any(|o| o.name == name) {
                let task = &files.tasks[sink].name;
                return Err(ProfileError::Pipeline(format!(
                    "task {task} has no output {name}, which the rule of the validation set reads"
                )));
            }
        }
    }
    Ok(())
}

/// Checks that the edges into a task bring all its inputs together. Those of the root come from outside.
fn check_inputs(files: &PipelineFiles, tree: &Tree, signatures: &[Signature]) -> Result<(), ProfileError> {
    for child in (0..files.tasks.len()).filter(|&task| task != tree.root) {
        let brought =
            |name: &String| files.edges.iter().zip(&tree.to).any(|(edge, &to)| to == child && edge.map.contains_key(name));
        if let Some(missing) = signatures[child].inputs.iter().find(|input| !brought(&input.name)) {
            return Err(ProfileError::Pipeline(format!(
                "task {}: no edge into it has input {} in its map: add `{}: OUTPUT`, with an output of the parent",
                files.tasks[child].name, missing.name, missing.name
            )));
        }
    }
    Ok(())
}

/// Why the map of an edge does not fit.
#[derive(Debug, thiserror::Error)]
enum MapError {
    #[error("input {0} is mapped to an output that is not there")]
    MissingOutput(String),
    #[error(
        "the output {output} does not fit the input {input}: {why}; map another output, or add a `transform` to the edge \
         that changes it"
    )]
    Mismatch { output: String, input: String, why: String },
    #[error("its map names input {0}, which is not there")]
    UnknownInput(String),
}

fn check_map(map: &BTreeMap<String, String>, parent: &Signature, child: &Signature) -> Result<(), MapError> {
    for input in &child.inputs {
        let Some(output) = map.get(&input.name) else { continue };
        let output = parent.outputs.iter().find(|o| o.name == *output);
        let output = output.ok_or_else(|| MapError::MissingOutput(input.name.clone()))?;
        if let Some(why) = misfit(output, input) {
            return Err(MapError::Mismatch { output: described(output), input: described(input), why });
        }
    }
    match map.keys().find(|name| !child.inputs.iter().any(|i| i.name == **name)) {
        Some(unknown) => Err(MapError::UnknownInput(unknown.clone())),
        None => Ok(()),
    }
}

/// The parts of the measurements that all tasks share.
struct Timing<'a> {
    files: &'a PipelineFiles,
    tree: &'a Tree,
    load: &'a VariantLoader<'a>,
    validation: Option<&'a Validation>,
    /// By task: the inputs of its variants, for each shape.
    samples: &'a [Vec<ShapedInputs>],
    models: &'a [Signature],
    memory: &'a MemoryProbe<'a>,
    options: &'a MeasureOptions,
}

impl Timing<'_> {
    /// Times every variant of a task, and measures its memory.
    fn time_task(
        &self,
        t: usize,
        backends: &mut [Box<dyn Backend>],
        load_ms: &[f64],
        steps: &mut Steps<'_>,
    ) -> Result<Vec<VariantMeasurement>, ProfileError> {
        let mut variants = Vec::with_capacity(backends.len());
        for (v, (backend, &load_ms)) in backends.iter_mut().zip(load_ms).enumerate() {
            let variant = self.time_variant(t, v, backend.as_mut(), load_ms);
            let variant = variant.map_err(|e| variant_error(self.files, t, v, e))?;
            steps.step(format!("timed {}", variant.name));
            let shares = self.time_shares(t, v, steps)?;
            variants.push(VariantMeasurement { shares, ..variant });
        }
        Ok(variants)
    }

    /// Times a variant on each wanted share of a device.
    fn time_shares(&self, t: usize, v: usize, steps: &mut Steps<'_>) -> Result<Vec<ShareMeasurement>, ProfileError> {
        let (task, file) = (&self.files.tasks[t], &self.files.tasks[t].variants[v]);
        let mut measured = Vec::with_capacity(self.options.shares.len());
        for &share in &self.options.shares {
            let fault = |source: ShareError| {
                let (task, variant, source) = (task.name.clone(), file.name.clone(), Box::new(source));
                ProfileError::Share { task, variant, share, source }
            };
            // The threads and processes that a copy starts stay on the same processors.
            let bound = self.options.processors.map(BoundThread::to_first).transpose();
            let _bound = bound.map_err(|error| fault(ShareError::Processors(error)))?;
            let copies = (0..Share::WHOLE.eighths() / share.eighths()).map(|_| (self.load)(file));
            let copies = copies.collect::<Result<Vec<_>, _>>().map_err(|error| fault(error.into()))?;
            let mut copies = with_transforms(task, copies)?;
            let timed = of_all_shapes(&self.samples[t], |inputs| profile_share(&mut copies, inputs, self.options));
            let (rows, by_shape) = timed.map_err(fault)?;
            measured.push(ShareMeasurement { share, rows, by_shape });
            steps.step(format!("timed {} beside {} copies of it", file.name, copies.len() - 1));
        }
        Ok(measured)
    }

    fn time_variant(
        &self,
        t: usize,
        v: usize,
        backend: &mut dyn Backend,
        load_ms: f64,
    ) -> Result<VariantMeasurement, BackendError> {
        let (task, samples) = (&self.files.tasks[t], &self.samples[t]);
        let name = &task.variants[v].name;
        let (rows, by_shape) = of_all_shapes(samples, |inputs| profile_variant(backend, inputs, self.options))?;
        let memory_mib = match task.variants[v].runtime {
            VariantRuntime::Onnx => self.memory_of(t, &task.variants[v], samples)?,
            // Its process is another one, and uses what the user's code takes.
            VariantRuntime::Python => None,
        };
        let through = |path: &&MeasuredPath| path.path.iter().any(|s| s.task == task.name && s.variant == *name);
        let best = |set: &Validation| set.paths.iter().filter(through).map(|p| p.accuracy).fold(0.0, f64::max);
        let counts = self.validation.map(|set| distribution(&set.counts[t][v]));
        let children = self.tree.out_edges[t].iter().map(|&e| &self.files.edges[e].to);
        Ok(VariantMeasurement {
            name: name.clone(),
            accuracy: self.validation.map(best),
            fanout: counts.as_ref().map(FanoutCounts::mean),
            fanout_counts: children.filter_map(|child| Some((child.clone(), counts.clone()?))).collect(),
            load_ms,
            memory_mib,
            rows,
            by_shape,
            shares: Vec::new(),
        })
    }

    /// The memory of a variant with the largest batch of its largest shape. The probe knows no transforms, so it gets what
    /// they make.
    fn memory_of(&self, t: usize, file: &VariantFile, samples: &[ShapedInputs]) -> Result<Option<f64>, BackendError> {
        let largest = self.options.batches.last().map_or(1, |&batch| batch as usize);
        let bytes = |of: &&ShapedInputs| of.tensors.iter().map(|s| s.data.len() / s.rows().max(1)).sum::<usize>();
        let tensors = samples.iter().max_by_key(bytes).map(|of| of.tensors.as_slice()).unwrap_or_default();
        let mut batch: Vec<Tensor> = tensors.iter().map(|s| cycle(s, 0, largest)).collect();
        let glue = &self.files.tasks[t].glue;
        if !glue.is_empty() {
            let taken = run_before(glue, &batch, &self.models[t].inputs);
            batch = taken.map_err(|fault| BackendError::Run(fault.to_string()))?;
        }
        (self.memory)(file, &batch)
    }
}
