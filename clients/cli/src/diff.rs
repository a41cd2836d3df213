//! How does `apportion diff` report the changes between two plans?

use crate::changes::print_changes;
use crate::plan::scaling;
use apportion_support::exit::{CommandResult, Failure};
use apportion_support::input;
use apportion_support::output::OutputFormat;
use apportion_wire::{AnyPlan, BadInput, PlanDiffFile};
use clap::Args;

/// Arguments of `apportion diff`.
#[derive(Args, Debug)]
pub struct DiffArgs {
    /// Plan file before.
    from: String,
    /// Plan file after.
    to: String,
    /// How the changes are printed.
    #[arg(short = 'o', long, value_enum, default_value_t)]
    format: OutputFormat,
}

/// Runs the command.
pub fn run(args: &DiffArgs) -> CommandResult {
    let changes = match (input::read_plan(&args.from)?, input::read_plan(&args.to)?) {
        (AnyPlan::Allocation(from), AnyPlan::Allocation(to)) => from.diff(&to),
        (AnyPlan::Scaling(from), AnyPlan::Scaling(to)) => return scaling::diff(&from, &to, args.format),
        (AnyPlan::Allocation(_), AnyPlan::Scaling(_)) => return Err(other_kind(&args.to, "pipelines", "scaling")),
        (AnyPlan::Scaling(_), AnyPlan::Allocation(_)) => return Err(other_kind(&args.to, "scaling", "pipelines")),
    };
    print_changes(&PlanDiffFile::from(&changes[..]), args.format)
}

/// The failure for two plans of different kinds.
fn other_kind(file: &str, expected: &str, found: &str) -> Failure {
    let expected = format!("a plan with {expected}, as the first file");
    BadInput::one(file, format!("/{found}"), format!("a plan with {found}"), expected).into()
}
