//! How much memory does a variant use? Another process of this program measures the peak (see
//! `apportion_profiler::memory`).

use anyhow::Context;
use apportion_profiler::memory::{peak_memory_mib, read_inputs, write_inputs};
use apportion_profiler::{BackendError, ExecutionSettings, Provider, Tensor};
use apportion_support::exit::{CommandResult, Exit};
use apportion_support::output;
use clap::Args;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The hidden command that measures the memory of one variant.
pub const COMMAND: &str = "profile-memory";

/// Arguments of the hidden command that measures one variant; the batch comes over standard input.
#[derive(Args, Debug)]
pub struct MemoryArgs {
    /// The variant's file.
    file: PathBuf,
    /// ONNX Runtime's library.
    #[arg(long)]
    library: PathBuf,
    /// Provider of the variant.
    #[arg(long)]
    provider: Provider,
    /// CUDA's number of the device.
    #[arg(long)]
    device: u32,
    /// Threads of one batch.
    #[arg(long)]
    threads: usize,
}

/// Runs the command: prints the peak in MiB, or `null` if the device does not report it.
pub fn run(args: &MemoryArgs) -> CommandResult {
    let inputs = read_inputs(&mut std::io::stdin().lock()).context("reading the batch")?;
    let running = ExecutionSettings { provider: args.provider, device: args.device, threads: args.threads };
    let peak = peak_memory_mib(&args.library, running, &args.file, &inputs).context("measuring memory")?;
    output::print(&output::json(&peak)?)?;
    Ok(Exit::Done)
}

/// Measures the variant in `file` with this batch in a process of its own.
///
/// # Errors
/// If that process cannot be started, or ends without a figure, for example for lack of memory.
pub fn measure(
    library: &Path,
    running: ExecutionSettings,
    file: &Path,
    inputs: &[Tensor],
) -> Result<Option<f64>, BackendError> {
    let fail = |detail: String| BackendError::Run(format!("its memory could not be measured: {detail}"));
    let program = std::env::current_exe().map_err(|e| fail(e.to_string()))?;
    let mut command = Command::new(program);
    command.arg(COMMAND).arg(file).arg("--library").arg(library);
    command.args(["--provider", running.provider.name(), "--device", &running.device.to_string()]);
    command.args(["--threads", &running.threads.to_string()]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| fail(e.to_string()))?;
    let sent = match child.stdin.take() {
        Some(stdin) => write_inputs(&mut BufWriter::new(stdin), inputs),
        None => Ok(()),
    };
    let ended = child.wait_with_output().map_err(|e| fail(e.to_string()))?;
    if !ended.status.success() {
        // Its own message explains more than a broken pipe.
        let said = String::from_utf8_lossy(&ended.stderr);
        return Err(fail(format!("{}: {}", ended.status, said.trim())));
    }
    sent.map_err(|e| fail(e.to_string()))?;
    serde_json::from_slice(&ended.stdout).map_err(|e| fail(e.to_string()))
}
