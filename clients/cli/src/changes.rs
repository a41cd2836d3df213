//! How are the changes between two plans shown?

use apportion_support::exit::{CommandResult, Exit};
use apportion_support::output::{OutputFormat, TextTable, number};
use apportion_wire::{GroupSizeFile, PlanDiffFile};

/// Prints the changes between two plans.
///
/// # Errors
/// If they cannot be printed.
pub fn print_changes(diff: &PlanDiffFile, format: OutputFormat) -> CommandResult {
    if format == OutputFormat::Table && diff.changes.is_empty() {
        eprintln!("no changes");
    } else {
        format.print(diff, || table(diff))?;
    }
    Ok(Exit::Done)
}

fn table(diff: &PlanDiffFile) -> String {
    let side = |size: Option<GroupSizeFile>| match size {
        Some(GroupSizeFile { replicas, batch }) => format!("{replicas} x batch {batch}"),
        None => "-".to_owned(),
    };
    let mut table = TextTable::new(&["pipeline", "task", "variant", "hardware", "share", "before", "after"]);
    for c in &diff.changes {
        table.row(vec![
            c.pipeline.clone(),
            c.task.clone(),
            c.variant.clone(),
            c.hardware.clone(),
            number(c.share),
            side(c.from),
            side(c.to),
        ]);
    }
    table.text("")
}
