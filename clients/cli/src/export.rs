//! How does `apportion export` write a plan as files of another system?

use anyhow::Context;
use apportion_export::{
    ExportContent, ExportRequest, ExportSettings, ExportTarget, ModelFile, NOTES_FILE, export, read_settings,
};
use apportion_import::graph::{Dimension, GraphTensor};
use apportion_import::read_graph;
use apportion_support::exit::{CommandResult, Exit, Failure};
use apportion_support::input;
use apportion_wire::{BadInput, TaskSpec, TensorSpec, read_pipeline_spec};
use clap::Args;
use clap::builder::PossibleValuesParser;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Arguments of `apportion export`.
#[derive(Args, Debug)]
pub struct ExportArgs {
    /// Plan file, JSON or YAML.
    plan: String,
    /// The plan's problem file.
    #[arg(long, value_name = "FILE")]
    problem: String,
    /// The system that shall run the plan.
    #[arg(long, value_name = "SYSTEM", value_parser = PossibleValuesParser::new(ExportTarget::NAMES))]
    to: String,
    /// The folder for the files. It must be empty or absent.
    #[arg(long, value_name = "DIR")]
    out: String,
    /// Images, addresses and names of devices, JSON or YAML.
    #[arg(long, value_name = "FILE")]
    settings: Option<String>,
    /// A pipeline file that names model files, for Triton and Ray Serve; may be repeated.
    #[arg(long, value_name = "FILE")]
    models: Vec<String>,
    /// Write into a folder that has files, over those with the same names.
    #[arg(long)]
    force: bool,
}

/// Runs the command.
pub fn run(args: &ExportArgs) -> CommandResult {
    let target = ExportTarget::from_name(&args.to).context("a system of the list")?;
    let problem = input::read_allocation_problem(&args.problem)?;
    let plan = input::read_plan_for(&problem, &args.plan)?;
    let settings = match &args.settings {
        Some(file) => read_settings(file, &input::read_text(file)?)?,
        None => ExportSettings::default(),
    };
    let mut models = BTreeMap::new();
    for file in &args.models {
        add_models(&mut models, file)?;
    }
    let plan_text = input::read_text(&args.plan)?;
    let request = ExportRequest {
        problem: &problem,
        plan: &plan,
        plan_file: &args.plan,
        plan_text: &plan_text,
        settings: &settings,
        models: &models,
    };
    let export = export(&request, target)?;
    let folder = Path::new(&args.out);
    let is_taken = folder.exists() && folder.read_dir().map_or(true, |mut entries| entries.next().is_some());
    if is_taken && !args.force {
        let expected = "an empty folder or none, or --force to write over files of the same names";
        return Err(BadInput::one(&args.out, "", "is there and is not an empty folder", expected).into());
    }
    for (path, content) in &export.files {
        write(&folder.join(path), content)?;
    }
    export.notes.iter().for_each(|note| eprintln!("{note}"));
    eprintln!("{}: {} files; {NOTES_FILE} has the remarks above", args.out, export.files.len());
    Ok(Exit::Done)
}

fn write(path: &Path, content: &ExportContent) -> Result<(), Failure> {
    let place = || format!("writing {}", path.display());
    std::fs::create_dir_all(path.parent().unwrap_or(path)).with_context(place)?;
    match content {
        ExportContent::Text(text) => std::fs::write(path, text).with_context(place)?,
        ExportContent::CopyOf(model) => _ = std::fs::copy(model, path).with_context(place)?,
        ExportContent::Script(text) => {
            std::fs::write(path, text).with_context(place)?;
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).with_context(place)?;
        }
    }
    Ok(())
}

/// Adds the model files that a pipeline file names.
fn add_models(models: &mut BTreeMap<(String, String, String), ModelFile>, file: &str) -> Result<(), Failure> {
    let spec = read_pipeline_spec(file, &input::read_text(file)?)?;
    let folder = Path::new(file).parent().unwrap_or(Path::new(""));
    for (t, task) in spec.tasks.iter().enumerate() {
        for variant in &task.variants {
            let Some(model) = &variant.model else { continue };
            let found = ModelFile { path: folder.join(model), inputs: Vec::new(), outputs: Vec::new() };
            let found = if found.is_python() { python_model(found, file, t, task)? } else { onnx_model(found)? };
            let key = (spec.name.clone(), task.name.clone(), variant.name.clone());
            models.insert(key, found);
        }
    }
    Ok(())
}

/// A graph with its own tensors.
fn onnx_model(found: ModelFile) -> Result<ModelFile, Failure> {
    let name = found.path.display().to_string();
    let header = read_graph(&name, &input::read_bytes(&name)?)?;
    let tensors = |list: &[GraphTensor]| list.iter().map(|t| tensor(&name, t)).collect::<Result<Vec<_>, _>>();
    let (inputs, outputs) = (tensors(&header.inputs)?, tensors(&header.outputs)?);
    Ok(ModelFile { inputs, outputs, ..found })
}

/// A Python model with the tensors of its task: a program does not say which it has.
fn python_model(found: ModelFile, file: &str, position: usize, task: &TaskSpec) -> Result<ModelFile, Failure> {
    input::read_bytes(&found.path.display().to_string())?;
    let tensors = |key: &str, list: Option<&Vec<TensorSpec>>| {
        let given = list.filter(|list| !list.is_empty()).cloned();
        let expected = "the tensors of the task, for its Python models do not tell them";
        given.ok_or_else(|| BadInput::one(file, format!("/tasks/{position}/{key}"), "nothing", expected))
    };
    let (inputs, outputs) = (tensors("inputs", task.inputs.as_ref())?, tensors("outputs", task.outputs.as_ref())?);
    Ok(ModelFile { inputs, outputs, ..found })
}

fn tensor(file: &str, tensor: &GraphTensor) -> Result<TensorSpec, BadInput> {
    let refused = |found: &str| BadInput::one(file, tensor.name.as_str(), found, "a tensor with a known kind and shape");
    let datatype = tensor.datatype.ok_or_else(|| refused("elements of an unknown kind"))?;
    let shape = tensor.shape.as_ref().ok_or_else(|| refused("an unknown shape"))?;
    let size = |dimension: &Dimension| if let Dimension::Fixed(size) = dimension { *size } else { -1 };
    Ok(TensorSpec { name: tensor.name.clone(), datatype: datatype.to_owned(), shape: shape.iter().map(size).collect() })
}
