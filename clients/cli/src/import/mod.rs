//! How does `apportion import` read reports, pipelines and traces of other tools?

mod pipeline;
mod profile;
mod trace;

use apportion_support::exit::CommandResult;
use clap::Subcommand;

/// The subcommands.
#[derive(Subcommand, Debug)]
pub enum ImportCommand {
    /// Read reports of latencies, and write a profile that `plan` and the service read.
    Profile(profile::ImportProfileArgs),
    /// Read another system's description of a pipeline, and write the draft of a pipeline file.
    Pipeline(pipeline::ImportPipelineArgs),
    /// Read a published trace or a log of requests, and write a trace.
    Trace(trace::ImportTraceArgs),
}

/// Runs a subcommand.
pub fn run(command: &ImportCommand) -> CommandResult {
    match command {
        ImportCommand::Profile(args) => profile::run(args),
        ImportCommand::Pipeline(args) => pipeline::run(args),
        ImportCommand::Trace(args) => trace::run(args),
    }
}
