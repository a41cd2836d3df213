//! How does `apportion diff` report the changes between two plans?

use crate::plan::scaling;
use apportion_domain::{GroupSize, PlanChange};
use apportion_support::exit::{CommandResult, Exit, Failure};
use apportion_support::input;
use apportion_support::output::{self, OutputFormat, TextTable, number};
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
    #[arg(long, value_enum, default_value_t)]
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
    match args.format {
        OutputFormat::Json => output::print(&output::json(&PlanDiffFile::from(&changes[..]))?)?,
        OutputFormat::Table if changes.is_empty() => eprintln!("no changes"),
        OutputFormat::Table => output::print(&table(&changes))?,
    }
    Ok(Exit::Done)
}

/// The failure for two plans of different kinds.
fn other_kind(file: &str, expected: &str, found: &str) -> Failure {
    let expected = format!("a plan with {expected}, as the first file");
    BadInput::one(file, format!("/{found}"), format!("a plan with {found}"), expected).into()
}

fn table(changes: &[PlanChange]) -> String {
    let side = |s: Option<GroupSize>| match s {
        Some(GroupSize { replicas, batch }) => format!("{replicas} x batch {batch}"),
        None => "-".to_owned(),
    };
    let mut table = TextTable::new(&["pipeline", "task", "variant", "hardware", "share", "before", "after"]);
    for c in changes {
        table.row(vec![
            c.pipeline.clone(),
            c.group.task.clone(),
            c.group.variant.clone(),
            c.group.hardware.clone(),
            number(c.group.share.value()),
            side(c.from),
            side(c.to),
        ]);
    }
    table.text("")
}
