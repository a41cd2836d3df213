//! How does `apportion profile` measure a pipeline's variants and paths: on this machine, on a server, or on agents?
//!
//! Its commands `get`, `apply` and `delete` are about the measurements that a service has.

mod backend;
mod device;
mod files;
mod job;
mod memory;
mod problem;
mod register;
mod rows;
mod served;
mod settings;
mod texts;

pub use memory::{COMMAND as MEMORY_COMMAND, MemoryArgs, run as run_memory};

use self::backend::{InputShape, ProfiledBackend, device_share, distinct_shares};
use self::files::{check_accuracies, profiled_files};
use self::register::Registry;
use self::rows::{MeasuredPlace, NoiseRule, check_noise, measured_row, shapes_table, tensor_specs};
use crate::resources::ResourceCommand;
use crate::resources::kinds::ProfileResource;
use crate::service::{ServerArgs, authorization, converse};
use anyhow::{Context, Result};
use apportion_domain::{Share, TaskKind, VARIANT_THREADS_MAX, VariantRuntime};
use apportion_profiler::{
    BackendLoader, Clock, DeviceProvenance, ExecutionSettings, MeasureOptions, Measured, PipelineFiles, PointRule,
    Provider, PythonSettings, STAGE_TIMEOUT_DEFAULT, TaskFiles, Tensor, VariantFile, file_loader, find_library,
    profile_pipeline,
};
use apportion_support::exit::{CommandResult, Exit, Failure};
use apportion_support::input;
use apportion_support::output::{self, TextTable, number};
use apportion_support::progress::spinner;
use apportion_wire::{
    BadInput, MeasuredTask, MeasuredVariant, PipelineSpec, ProfileSet, parse_tree, pipeline_spec_from_tree,
};
use clap::Args;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::num::NonZero;
use std::path::{Path, PathBuf};

/// Arguments of `apportion profile`.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct ProfileArgs {
    #[command(subcommand)]
    resource: Option<ResourceCommand<ProfileResource>>,
    /// Pipeline file, JSON or YAML, with a `model` for each variant. With a `validation` set accuracy and fan-out are
    /// measured too; without one inputs are drawn from the shapes. With `--server`, the name of a registered pipeline.
    #[arg(required = true)]
    pipeline: Option<String>,
    /// Name of the hardware type that this machine is, or the server with `--backend remote` [default: cpu]. With
    /// `--server`, types separated by commas [default: those of all live agents].
    #[arg(long)]
    hardware: Option<String>,
    /// Have the agents of this service measure, on devices without replicas, and wait for it.
    #[arg(long, value_name = "URL", value_parser = crate::args::service_url,
        conflicts_with_all = ["backend", "multiple", "clock", "register", "out", "provider", "threads", "device",
            "onnxruntime", "share"])]
    server: Option<String>,
    /// With `--server`: only this variant, or all of a task; may be repeated.
    #[arg(long, value_name = "TASK[/VARIANT]", requires = "server")]
    variant: Vec<String>,
    /// With `--server`: the job ends after this time, in seconds [default: 3600].
    #[arg(long, value_name = "SECONDS", requires = "server")]
    time_max: Option<f64>,
    /// With `--server`: file with the token that the service asks for [default: APPORTION_API_TOKEN_FILE, else the text of
    /// APPORTION_API_TOKEN].
    #[arg(long, value_name = "FILE", requires = "server")]
    api_token_file: Option<String>,
    /// What runs the variants: `onnx`, this machine with their model files; or `remote=http://host:port`, a server of the
    /// Open Inference Protocol that has them under their names, for example Triton. A server's latencies are measured.
    /// Accuracies and fan-outs are those of the file.
    #[arg(long, default_value = "onnx")]
    backend: ProfiledBackend,
    /// With `--backend remote` or `--server`, or without a validation set: the sizes of an input's axes but the first,
    /// where the variant leaves one open. May be repeated: an input with several sizes has several shapes, at most 16. Each
    /// is measured, with its share of the queries [default: equal shares]. With `--server` there is one.
    #[arg(long, value_name = "INPUT=SIZExSIZE[,INPUT=..][@SHARE]")]
    shape: Vec<InputShape>,
    /// Also measure these shares of a device, of 0.5, 0.25 and 0.125, with commas between them. A share is measured beside
    /// copies of the variant, which have the rest of the device and work all the time.
    #[arg(long, value_name = "SHARE,SHARE..", value_delimiter = ',', value_parser = device_share)]
    share: Vec<Share>,
    /// Factor on all latencies, for devices that hold their slots for a multiple of the measured time.
    #[arg(long, default_value_t = 1.0)]
    multiple: f64,
    /// Source of times: the `wall` clock, or the `processor` time of the thread. Other work on this machine does not
    /// lengthen processor time. It is for emulated devices, and only if variants run on processors.
    #[arg(long, default_value = "wall", value_parser = ["wall", "processor"])]
    clock: String,
    /// Largest batch size; measured are the powers of two up to it.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1024))]
    batch_max: u32,
    /// Register the pipeline, its model files and the profile with the service at this address. Settings that the file
    /// leaves out, and profiles of other hardware types, stay as they are registered.
    #[arg(long)]
    register: Option<String>,
    /// File with the authorities of that service's certificate, as PEM [default: the authorities of this machine].
    #[arg(long, value_name = "FILE", env = "APPORTION_CACERT")]
    cacert: Option<PathBuf>,
    /// Also write a problem file here, for `plan`. If it is there with this pipeline, its settings and other hardware types
    /// stay.
    #[arg(long)]
    out: Option<String>,
    /// Provider of this device: `cpu`, `cuda` or `tensorrt`. It is an error if variants cannot run there. Variants that ask
    /// for a provider with other devices are left out.
    #[arg(long, default_value = "cpu")]
    provider: Provider,
    /// Threads of a device, with `--provider cpu`; agents of this hardware type need the same number [default: the most
    /// that a variant asks for, else 1].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=i64::from(VARIANT_THREADS_MAX)))]
    threads: Option<u32>,
    /// Refuse measurements of a noisy machine: nothing is written or registered then.
    #[arg(long)]
    strict: bool,
    /// CUDA's number of the device, with `--provider cuda`.
    #[arg(long, default_value_t = 0)]
    device: u32,
    /// The Python 3 with NumPy that runs stages in Python.
    #[arg(long, value_name = "PROGRAM", env = "APPORTION_PYTHON", default_value = "python3")]
    python: PathBuf,
    /// ONNX Runtime's library; without it ORT_DYLIB_PATH, or the library that `make setup` fetched.
    #[arg(long)]
    onnxruntime: Option<PathBuf>,
    /// How the result is printed.
    #[arg(short = 'o', long, value_enum, default_value_t)]
    format: apportion_support::output::OutputFormat,
}

impl ProfileArgs {
    /// The hardware type of this machine, or of a server.
    fn hardware(&self) -> &str {
        self.hardware.as_deref().unwrap_or("cpu")
    }
}

/// The request for a profile job. Keys that the command line leaves out have the service's defaults.
fn job_request(args: &ProfileArgs, pipeline: &str) -> Result<Value, BadInput> {
    let variant = |text: &String| match text.split_once('/') {
        Some((task, variant)) => json!({"task": task, "variant": variant}),
        None => json!({"task": text}),
    };
    let shapes = backend::one_shape(&args.shape)?;
    let types = args.hardware.iter().flat_map(|types| types.split(',')).map(str::trim).filter(|name| !name.is_empty());
    let mut request = json!({
        "pipeline": pipeline,
        "variants": args.variant.iter().map(variant).collect::<Vec<_>>(),
        "hardware": types.collect::<Vec<_>>(),
        "batch_max": args.batch_max,
        "strict": args.strict,
        "shapes": shapes,
    });
    if let Some(time_max) = args.time_max {
        request["time_max_s"] = time_max.into();
    }
    Ok(request)
}

/// The measurements, as they are written and printed.
struct ProfiledPipeline {
    set: ProfileSet,
    /// The model files, which a service needs. None if a server has them.
    files: Vec<TaskFiles>,
    /// The tables for people.
    text: String,
}

/// Runs the command.
pub fn run(args: &ProfileArgs) -> CommandResult {
    if let Some(command) = &args.resource {
        return command.run();
    }
    let file = args.pipeline.as_deref().unwrap_or_default();
    if let Some(server) = &args.server {
        let cacert = args.cacert.as_ref().map(|path| path.display().to_string());
        let server = ServerArgs::at(server.clone(), args.api_token_file.clone(), cacert);
        return job::run_on_agents(&server, &job_request(args, file)?, args.format);
    }
    if !(args.multiple > 0.0 && args.multiple <= 1e6) {
        let expected = "a factor above 0, at most 1e6";
        return Err(BadInput::one("--multiple", "", args.multiple, expected).into());
    }
    input::refuse_model_file(file, "a pipeline file")?;
    let mut tree = parse_tree(file, &input::read_text(file)?)?;
    texts::read_lists(file, &mut tree)?;
    let spec = pipeline_spec_from_tree(file, tree.clone())?;
    let is_validated = spec.validation.is_some() && args.backend == ProfiledBackend::Onnx;
    if args.register.is_some() && !is_validated {
        check_accuracies(file, &spec)?;
    }
    if let Some(base) = &args.register {
        converse(registry(args, base)?.check(&spec.name))?;
    }
    let profiled = match &args.backend {
        ProfiledBackend::Onnx => profile_here(args, file, &spec)?,
        ProfiledBackend::Remote(url) => profile_there(args, file, url, &spec)?,
    };
    check_noise(&profiled.set.rows, if args.strict { NoiseRule::Refuse } else { NoiseRule::Warn })?;
    let (pipeline, set) = (without_files(tree), &profiled.set);
    if let Some(out) = &args.out {
        problem::write(out, &pipeline, set, args.hardware())?;
    }
    if let Some(base) = &args.register {
        converse(register::register(&registry(args, base)?, pipeline.clone(), &profiled.files, set))?;
    }
    args.format.print(set, || profiled.text.clone())?;
    Ok(Exit::Done)
}

/// The service of `--register`.
fn registry(args: &ProfileArgs, base: &str) -> Result<Registry, Failure> {
    Ok(Registry::new(base, authorization(None)?, args.cacert.as_deref())?)
}

/// Powers of two up to `--batch-max`.
fn batches(args: &ProfileArgs) -> Vec<u32> {
    (0..=10).map(|n| 1 << n).filter(|b| *b <= args.batch_max).collect()
}

/// What is measured of these files on this machine, whose devices have so many threads.
fn measure_options(args: &ProfileArgs, files: &PipelineFiles, threads: usize) -> Result<MeasureOptions, BadInput> {
    let clock = if args.clock == "processor" { Clock::Processor } else { Clock::Wall };
    let has_python = files.tasks.iter().flat_map(|t| &t.variants).any(|v| v.runtime == VariantRuntime::Python);
    let expected = match clock {
        Clock::Wall => None,
        Clock::Processor if args.provider != Provider::Cpu => Some("wall: with this provider a device computes"),
        Clock::Processor if has_python => Some("wall: a stage in Python is another process"),
        Clock::Processor if !args.share.is_empty() => Some("wall: --share measures how long a batch waits for neighbours"),
        Clock::Processor => None,
    };
    if let Some(expected) = expected {
        return Err(BadInput::one("--clock", "", &args.clock, expected));
    }
    Ok(MeasureOptions {
        batches: batches(args),
        multiple: args.multiple,
        point: PointRule { clock, ..PointRule::default() },
        shapes: backend::given_shapes(&args.shape),
        shares: distinct_shares(&args.share),
        processors: (args.provider == Provider::Cpu && threads > 0).then_some(threads),
        ..MeasureOptions::default()
    })
}

/// Measures with the model files on this machine.
fn profile_here(args: &ProfileArgs, file: &str, spec: &PipelineSpec) -> Result<ProfiledPipeline, Failure> {
    if let Some(shape) = args.shape.first().filter(|_| spec.validation.is_some()) {
        let expected = "a pipeline without a validation set, or --backend remote=http://host:port, or --server";
        let names = shape.0.sizes.keys().cloned().collect::<Vec<_>>().join(",");
        return Err(BadInput::one("--shape", "", names, expected).into());
    }
    if spec.validation.is_none() {
        eprintln!(
            "{file}: it names no validation set: latencies are measured on inputs drawn from the shapes; accuracies and \
             fan-outs are those of the file"
        );
    }
    let all = profiled_files(file, spec, Path::new(file).parent().unwrap_or(Path::new(".")))?;
    let files = device::measured_here(file, all.clone(), args.provider)?;
    let threads = device::threads(args.threads, &files, args.hardware());
    let options = measure_options(args, &files, threads)?;
    let library = find_library(args.onnxruntime.as_deref()).context("finding ONNX Runtime")?;
    let here = ExecutionSettings { provider: args.provider, device: args.device, threads };
    let python = PythonSettings { program: args.python.clone(), timeout: STAGE_TIMEOUT_DEFAULT, threads };
    let load = file_loader(library.clone(), here, python);
    warn_if_busy();
    let bar = spinner("profiling");
    let mut report =
        |p: &apportion_profiler::ProfilingProgress| bar.set_message(format!("{}/{} {}", p.done, p.total, p.what));
    let probe = |variant: &VariantFile, batch: &[Tensor]| {
        memory::measure(&library, here.of_variant(variant.execution)?, &variant.file, batch)
    };
    let measured = profile_pipeline(&files, &load, &probe, &options, &mut report);
    bar.finish_and_clear();
    let loader = BackendLoader::Onnx { library, provider: args.provider, threads, python: None };
    let provenance = DeviceProvenance::of(&loader, args.device);
    let mut set = profile_set(&measured.context("profiling")?, args.hardware(), &provenance);
    set.mark_dominated(spec);
    let text = tables(&set);
    Ok(ProfiledPipeline { set, files: all.tasks, text })
}

/// Measures on the server at `url`.
fn profile_there(args: &ProfileArgs, file: &str, url: &str, spec: &PipelineSpec) -> Result<ProfiledPipeline, Failure> {
    const REASON: &str = "no such option with --backend remote: the server runs the variants";
    let given = [
        ("--clock", args.clock != "wall"),
        ("--provider", args.provider != Provider::Cpu),
        ("--threads", args.threads.is_some()),
        ("--device", args.device != 0),
        ("--onnxruntime", args.onnxruntime.is_some()),
        ("--share", !args.share.is_empty()),
    ];
    if let Some((option, _)) = given.iter().find(|(_, is_given)| *is_given) {
        return Err(BadInput::one(option, "", "an option of this machine", REASON).into());
    }
    refuse_unserved(file, spec)?;
    if spec.validation.is_some() {
        eprintln!("{file}: the validation set is not used: a server's answers are not compared with labels");
    }
    warn_if_busy();
    let request = served::ServerProfiling {
        url,
        shapes: &args.shape,
        hardware: args.hardware(),
        batches: batches(args),
        multiple: args.multiple,
    };
    let served::ServedProfile { mut set, text } = served::measure(&request, spec)?;
    set.mark_dominated(spec);
    let text = format!("{text}{}", device::dominated_table(&set));
    Ok(ProfiledPipeline { set, files: Vec::new(), text })
}

/// Refuses transforms and stages in Python: a server has variants alone, so its latencies would lack them. Refuses
/// continuous tasks: a server forms its own batches, and agents before it refuse such tasks.
fn refuse_unserved(file: &str, spec: &PipelineSpec) -> Result<(), Failure> {
    let expected = "a pipeline without it: with --backend remote the server's variants are measured alone";
    let refused = |at: String, found: &str| Err(BadInput::one(file, at, found, expected).into());
    if let Some(t) = spec.glue().iter().position(|glue| !glue.is_empty()) {
        return refused(format!("/tasks/{t}"), "a task with transforms");
    }
    for (t, task) in spec.tasks.iter().enumerate() {
        if task.kind.as_deref() == Some(TaskKind::Continuous.name()) {
            let expected = "\"batch\": with --backend remote the server forms its own batches";
            return Err(BadInput::one(file, format!("/tasks/{t}/kind"), "\"continuous\"", expected).into());
        }
        if let Some(v) = task.variants.iter().position(|v| v.file_runtime() == VariantRuntime::Python) {
            return refused(format!("/tasks/{t}/variants/{v}"), "a stage in Python");
        }
    }
    Ok(())
}

fn profile_set(measured: &Measured, hardware: &str, provenance: &DeviceProvenance) -> ProfileSet {
    let (mut rows, mut variants, mut tasks) = (Vec::new(), Vec::new(), Vec::new());
    for task in &measured.tasks {
        let (inputs, outputs) = (tensor_specs(&task.inputs), tensor_specs(&task.outputs));
        let model_inputs = task.model.as_ref().map(|model| tensor_specs(&model.inputs));
        let model_outputs = task.model.as_ref().map(|model| tensor_specs(&model.outputs));
        tasks.push(MeasuredTask { name: task.name.clone(), inputs, outputs, model_inputs, model_outputs });
        for variant in &task.variants {
            let (task, name) = (task.name.clone(), variant.name.clone());
            let place = MeasuredPlace { task: &task, variant: &name, hardware, share: Share::WHOLE, provenance };
            rows.extend(variant.rows.iter().map(|point| measured_row(place, point, &variant.by_shape)));
            for of in &variant.shares {
                let place = MeasuredPlace { share: of.share, ..place };
                rows.extend(of.rows.iter().map(|point| measured_row(place, point, &of.by_shape)));
            }
            let counts = |c: &apportion_domain::FanoutCounts| c.0.iter().copied().collect::<BTreeMap<u32, f64>>();
            variants.push(MeasuredVariant {
                task,
                variant: name,
                accuracy: variant.accuracy,
                load_ms: Some(variant.load_ms),
                memory_mib: variant.memory_mib,
                fanout_counts: variant.fanout_counts.iter().map(|(child, c)| (child.clone(), counts(c))).collect(),
                dominated_by: BTreeMap::new(),
            });
        }
    }
    let path_accuracy = measured.path_accuracy.iter().map(|p| (p.key(), p.accuracy)).collect();
    ProfileSet { rows, variants, path_accuracy, tasks }
}

/// The pipeline without keys that refer to files of this machine.
fn without_files(mut pipeline: Value) -> Value {
    if let Some(settings) = pipeline.as_object_mut() {
        settings.remove("validation");
    }
    for task in pipeline["tasks"].as_array_mut().into_iter().flatten() {
        for variant in task["variants"].as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
            if variant.contains_key("python") {
                variant.insert("runtime".to_owned(), VariantRuntime::Python.name().into());
            }
            variant.retain(|key, _| !["model", "model_digest", "python"].contains(&key.as_str()));
        }
    }
    pipeline
}

/// Warns if the processors are busy: measurements then take longer than on an idle machine.
fn warn_if_busy() {
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get) as f64;
    let load = std::fs::read_to_string("/proc/loadavg").ok();
    let load = load.and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok());
    if let Some(load) = load.filter(|load| *load + 1.0 > processors) {
        eprintln!(
            "warning: {load} threads want to run on this machine, which has {processors} processors: what is measured \
             beside \
             them takes longer than it would alone"
        );
    }
}

fn tables(set: &ProfileSet) -> String {
    let has_shares = set.rows.iter().any(|row| row.share != 1.0);
    let shares: &[&str] = if has_shares { &["share", "interference"] } else { &[] };
    let header = [&["task", "variant", "batch", "latency_ms", "p99_ms", "queries/s"][..], shares].concat();
    let mut rows = TextTable::new(&header);
    for r in &set.rows {
        let qps = 1000.0 * f64::from(r.batch) / r.latency_ms;
        let p99 = output::optional(r.p99_ms);
        let mut cells =
            vec![r.task.clone(), r.variant.clone(), r.batch.to_string(), number(r.latency_ms), p99, number(qps)];
        if has_shares {
            let interference = r.measured.as_ref().and_then(|measured| measured.interference);
            cells.extend([number(r.share), output::optional(interference)]);
        }
        rows.row(cells);
    }
    let mut paths = TextTable::new(&["path", "accuracy"]);
    for (path, accuracy) in &set.path_accuracy {
        paths.row(vec![path.clone(), number(*accuracy)]);
    }
    let paths = if set.path_accuracy.is_empty() { String::new() } else { format!("\n{}", paths.text("")) };
    format!("{}{}{paths}{}", rows.text(""), shapes_table(&set.rows), device::dominated_table(set))
}

#[cfg(test)]
mod tests {
    use super::*;
    use apportion_wire::{MeasuredRow, RowMeasurement};

    #[test]
    fn only_profiles_of_shares_have_their_columns() {
        let row = |share: f64, latency_ms: f64, interference: Option<f64>| MeasuredRow {
            task: "t".into(),
            variant: "v".into(),
            hardware: "h".into(),
            share,
            batch: 2,
            latency_ms,
            p99_ms: None,
            measured: Some(RowMeasurement { interference, ..RowMeasurement::default() }),
        };
        let cells = |rows: Vec<MeasuredRow>| {
            let text = tables(&ProfileSet { rows, ..ProfileSet::default() });
            text.lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect::<Vec<Vec<String>>>()
        };
        let whole = cells(vec![row(1.0, 4.0, None)]);
        assert_eq!(whole[0].last().map(String::as_str), Some("queries/s"), "{whole:?}");
        let shares = cells(vec![row(1.0, 4.0, None), row(0.5, 8.0, Some(2.0))]);
        assert_eq!(shares[0][5..], ["queries/s", "share", "interference"]);
        assert_eq!(shares[1][5..], ["500", "1", "-"]);
        assert_eq!(shares[2][5..], ["250", "0.5000", "2"]);
    }
}
