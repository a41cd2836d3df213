//! How does `apportion completions` teach a shell the commands?

use anyhow::Context;
use apportion_support::exit::{CommandResult, Exit};
use apportion_support::output;
use clap::{Args, Command, ValueEnum};
use clap_complete::Shell;

/// The name of the program in a shell.
const PROGRAM: &str = "apportion";

/// The shells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CompletedShell {
    /// `apportion completions bash > /etc/bash_completion.d/apportion`.
    Bash,
    /// A file `_apportion` in a folder of `fpath`.
    Zsh,
    /// A file `apportion.fish` in `~/.config/fish/completions`.
    Fish,
}

/// Arguments of `apportion completions`.
#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// The shell.
    #[arg(value_enum)]
    shell: CompletedShell,
}

/// Prints the completions.
///
/// # Errors
/// If stdout cannot be written.
pub fn run(args: &CompletionsArgs, mut program: Command) -> CommandResult {
    let shell = match args.shell {
        CompletedShell::Bash => Shell::Bash,
        CompletedShell::Zsh => Shell::Zsh,
        CompletedShell::Fish => Shell::Fish,
    };
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut program, PROGRAM, &mut text);
    output::print(&String::from_utf8(text).context("completions as text")?)?;
    Ok(Exit::Done)
}
