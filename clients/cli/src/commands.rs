//! The list of commands.

use crate::exit::Outcome;
use crate::{check, diff, plan, simulate, trace};
use clap::Subcommand;

/// One command line.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Find a plan for a problem.
    Plan(plan::PlanArgs),
    /// Say what is wrong with a plan for a problem.
    Check(check::CheckArgs),
    /// Replay a trace through a plan.
    Simulate(simulate::SimulateArgs),
    /// Say what changes between two plans.
    Diff(diff::DiffArgs),
    /// Make or inspect traces.
    #[command(subcommand)]
    Trace(trace::TraceCommand),
}

impl Command {
    /// Runs the command.
    pub fn run(self) -> Outcome {
        match self {
            Self::Plan(args) => plan::run(&args),
            Self::Check(args) => check::run(&args),
            Self::Simulate(args) => simulate::run(&args),
            Self::Diff(args) => diff::run(&args),
            Self::Trace(command) => trace::run(&command),
        }
    }
}
