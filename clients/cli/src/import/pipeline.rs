//! How does `apportion import pipeline` make a pipeline file of another system's description?

use crate::init::path_beside;
use apportion_import::{
    ImportedPipeline, RepositoryModel, pipeline_of_kserve_graph, pipeline_of_seldon, pipeline_of_triton_repository,
};
use apportion_support::exit::{CommandResult, Exit, Failure};
use apportion_support::input;
use apportion_support::output;
use apportion_wire::{BadInput, read_pipeline_spec};
use clap::{Args, ValueEnum};
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// The systems.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PipelineSource {
    /// A folder with a folder for each model; the pipeline is its ensemble.
    TritonRepository,
    /// An InferenceGraph of KServe.
    KserveGraph,
    /// A Pipeline of Seldon Core 2.
    Seldon,
}

/// Arguments of `apportion import pipeline`.
#[derive(Args, Debug)]
pub struct ImportPipelineArgs {
    /// The system.
    #[arg(long, value_enum)]
    from: PipelineSource,
    /// A file in YAML or JSON; for `triton-repository` the folder.
    path: String,
    /// The ensemble or model of a repository that has several.
    #[arg(long)]
    model: Option<String>,
    /// Where to write the pipeline file. A file that is there is not overwritten.
    #[arg(long, default_value = "pipeline.yaml")]
    out: String,
}

/// Runs the command.
pub fn run(args: &ImportPipelineArgs) -> CommandResult {
    if Path::new(&args.out).exists() {
        return Err(BadInput::one(&args.out, "", "a file is there", "no file, or another name with --out").into());
    }
    let ImportedPipeline { yaml, remarks } = match args.from {
        PipelineSource::KserveGraph => pipeline_of_kserve_graph(&args.path, &input::read_text(&args.path)?)?,
        PipelineSource::Seldon => pipeline_of_seldon(&args.path, &input::read_text(&args.path)?)?,
        PipelineSource::TritonRepository => {
            pipeline_of_triton_repository(&args.path, &models_of(&args.path, &args.out)?, args.model.as_deref())?
        }
    };
    // A draft that is written can be read.
    read_pipeline_spec(&args.out, &yaml)?;
    output::write_file(&args.out, |f| f.write_all(yaml.as_bytes()))?;
    let lines: Vec<String> = remarks.iter().map(|remark| format!("{remark}\n")).collect();
    output::print(&lines.concat())?;
    eprintln!("{0}: written; look for \"decide\" in it, then measure it: apportion profile {0}", args.out);
    Ok(Exit::Done)
}

/// The models of a repository, by name.
fn models_of(folder: &str, out: &str) -> Result<Vec<RepositoryModel>, Failure> {
    let mut models = Vec::new();
    for path in folders_in(Path::new(folder))? {
        let config = path.join("config.pbtxt");
        let config = config.exists().then(|| config.display().to_string());
        let config = config.map(|file| input::read_text(&file).map(|text| (file, text))).transpose()?;
        let versions = folders_in(&path)?.into_iter().filter_map(|version| {
            let number = version.file_name()?.to_str()?.parse::<u64>().ok()?;
            Some((number, version))
        });
        let newest = versions.max().map(|(_, version)| version);
        if config.is_none() && newest.is_none() {
            // It is no model, for example the repository itself below the folder that was given.
            continue;
        }
        let file = |name: &str| {
            let file = newest.as_ref().map(|version| version.join(name)).filter(|file| file.exists())?;
            Some(path_beside(out, &file.display().to_string()))
        };
        models.push(RepositoryModel {
            folder: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            config,
            onnx: file("model.onnx"),
            python: file("model.py"),
        });
    }
    Ok(models)
}

/// The folders in a folder, by name.
fn folders_in(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let refused =
        |error: std::io::Error| BadInput::one(&folder.display().to_string(), "", error, "a folder that can be read");
    let mut folders = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(refused)? {
        let path = entry.map_err(refused)?.path();
        if path.is_dir() {
            folders.push(path);
        }
    }
    folders.sort();
    Ok(folders)
}
