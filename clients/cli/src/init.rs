//! How does `apportion init` make a pipeline file of ONNX files?

use apportion_import::{GraphFile, draft_of, read_graph};
use apportion_support::exit::{CommandResult, Exit, Failure};
use apportion_support::input;
use apportion_support::output;
use apportion_wire::{BadInput, read_pipeline_spec};
use clap::Args;
use std::io::Write as _;
use std::path::Path;

/// Arguments of `apportion init`.
#[derive(Args, Debug)]
pub struct InitArgs {
    /// ONNX files, in the order in which queries pass them. Files with the same tensors are variants of one task. TASK=FILE
    /// names the task of a file.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
    /// Name of the pipeline.
    #[arg(long, default_value = "main")]
    name: String,
    /// Where to write the pipeline file. A file that is there is not overwritten.
    #[arg(long, default_value = "pipeline.yaml")]
    out: String,
}

/// Runs the command.
pub fn run(args: &InitArgs) -> CommandResult {
    if Path::new(&args.out).exists() {
        return Err(BadInput::one(&args.out, "", "a file is there", "no file, or another name with --out").into());
    }
    let files = args.files.iter().map(|text| graph_file(text, &args.out)).collect::<Result<Vec<_>, _>>()?;
    let draft = draft_of(&args.name, &files)?;
    // A draft that is written can be read.
    read_pipeline_spec(&args.out, &draft.yaml)?;
    output::write_file(&args.out, |f| f.write_all(draft.yaml.as_bytes()))?;
    let lines: Vec<String> = draft.remarks.iter().map(|remark| format!("{remark}\n")).collect();
    output::print(&lines.concat())?;
    eprintln!("{0}: written; look for \"decide\" in it, then measure it: apportion profile {0}", args.out);
    Ok(if draft.remarks.iter().all(|remark| remark.works) { Exit::Done } else { Exit::Findings })
}

/// The file of an argument, with its tensors.
fn graph_file(text: &str, out: &str) -> Result<GraphFile, Failure> {
    let (task, file) = match text.split_once('=') {
        Some((task, file)) if !Path::new(text).exists() => (Some(task.to_owned()), file),
        _ => (None, text),
    };
    let header = read_graph(file, &input::read_bytes(file)?)?;
    Ok(GraphFile { path: path_beside(out, file), task, header })
}

/// The path of a model file as a pipeline file at `out` names it.
pub(crate) fn path_beside(out: &str, file: &str) -> String {
    let is_here = Path::new(out).parent().is_none_or(|folder| folder.as_os_str().is_empty());
    match Path::new(file).canonicalize() {
        Ok(path) if !is_here => path.display().to_string(),
        _ => file.to_owned(),
    }
}
