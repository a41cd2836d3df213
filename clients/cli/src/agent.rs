//! How does `apportion agent` start the agent's own small program, and list the agents of a service?

use crate::resources::ResourceCommand;
use crate::resources::kinds::AgentResource;
use anyhow::{Context, anyhow};
use apportion_support::exit::{CommandResult, Exit};
use clap::Args;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Arguments of `apportion agent`: those of `apportion-agent` (see `apportion agent -- --help`), or a command about the
/// agents of a running service.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct AgentArgs {
    #[command(subcommand)]
    resource: Option<ResourceCommand<AgentResource>>,
    #[command(flatten)]
    agent: PassedArgs,
}

/// Arguments that are passed on to `apportion-agent`.
#[derive(Args, Debug)]
pub struct PassedArgs {
    /// Passed on to `apportion-agent`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<OsString>,
}

/// Replaces this process by the agent. It returns only a failure. Or runs a command about the agents of a service.
///
/// # Errors
/// If the program is not beside this one, or cannot be started. And those of the command.
pub fn run(args: &AgentArgs) -> CommandResult {
    match &args.resource {
        Some(command) => command.run(),
        None => become_agent(&args.agent.rest),
    }
}

/// Replaces this process by `apportion-agent bench`, so that the measured program is the one that serves. It returns only a
/// failure.
///
/// # Errors
/// As of [`run`].
pub fn measure(args: &PassedArgs) -> CommandResult {
    become_agent([&"bench".into()].into_iter().chain(&args.rest))
}

fn become_agent<'a>(args: impl IntoIterator<Item = &'a OsString>) -> CommandResult {
    let here = std::env::current_exe().context("finding this program")?;
    let program = here.with_file_name("apportion-agent");
    if !program.exists() {
        return Err(anyhow!("apportion-agent is not beside {}: build it with `make build`", here.display()).into());
    }
    let error = Command::new(&program).args(args).exec();
    Err::<Exit, _>(error).with_context(|| format!("starting {}", program.display())).map_err(Into::into)
}
