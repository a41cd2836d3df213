//! `apportion dev`: the commands of people who work on Apportion itself.

use crate::{bench, reproduce};
use apportion_support::exit::CommandResult;
use clap::Subcommand;

/// What is measured or compared?
#[derive(Subcommand, Debug)]
pub enum DevCommand {
    /// Measure the speed of one part.
    #[command(subcommand)]
    Bench(bench::BenchCommand),
    /// Run the papers' comparisons again, and write them as one page.
    Reproduce(reproduce::ReproduceArgs),
}

/// Runs a command of developers.
pub fn run(command: DevCommand) -> CommandResult {
    match command {
        DevCommand::Bench(command) => bench::run(command),
        DevCommand::Reproduce(args) => reproduce::run(args),
    }
}
