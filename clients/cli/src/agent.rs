//! How does `apportion agent` start the agent's own small program?

use anyhow::{Context, anyhow};
use apportion_support::exit::{CommandResult, Exit};
use clap::Args;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Arguments of `apportion agent`: all of them are those of `apportion-agent` (see `apportion agent -- --help`).
#[derive(Args, Debug)]
pub struct AgentArgs {
    /// Passed on to `apportion-agent`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<OsString>,
}

/// Replaces this process by the agent. It returns only a failure.
///
/// # Errors
/// If the program is not beside this one, or cannot be started.
pub fn run(args: &AgentArgs) -> CommandResult {
    become_agent(&args.rest)
}

/// Replaces this process by `apportion-agent bench`, so that the measured program is the one that serves. It returns only a
/// failure.
///
/// # Errors
/// As of [`run`].
pub fn measure(args: &AgentArgs) -> CommandResult {
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
