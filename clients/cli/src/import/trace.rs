//! How does `apportion import trace` make a trace of a published one?

use anyhow::Context;
use apportion_import::{TimeUnit, TraceChoice, TraceFormat, import_trace};
use apportion_support::exit::{CommandResult, Exit};
use apportion_support::input;
use apportion_support::output;
use apportion_wire::write_trace;
use clap::Args;
use clap::builder::PossibleValuesParser;

/// Arguments of `apportion import trace`.
#[derive(Args, Debug)]
pub struct ImportTraceArgs {
    /// The format: `csv` is a log with a row for each request, the others are published traces.
    #[arg(long, value_parser = PossibleValuesParser::new(TraceFormat::NAMES))]
    from: String,
    /// The trace.
    file: String,
    /// The column of times, with `csv`.
    #[arg(long)]
    column: Option<String>,
    /// The unit of that column.
    #[arg(long, value_parser = PossibleValuesParser::new(TimeUnit::NAMES))]
    unit: Option<String>,
    /// The function whose invocations count, by its hash, with `azure-functions`; all without it.
    #[arg(long)]
    function: Option<String>,
    /// Where to write; stdout if not given.
    #[arg(long)]
    out: Option<String>,
}

/// Runs the command.
pub fn run(args: &ImportTraceArgs) -> CommandResult {
    let format = TraceFormat::from_name(&args.from).context("a format of the list")?;
    let unit = args.unit.as_deref().and_then(TimeUnit::from_name);
    let choice = TraceChoice { column: args.column.clone(), unit, function: args.function.clone() };
    let trace = import_trace(format, &args.file, &input::read_text(&args.file)?, &choice)?;
    match &args.out {
        Some(out) => output::write_file(out, |f| write_trace(&trace, f))?,
        None => {
            let mut text = Vec::new();
            write_trace(&trace, &mut text).context("writing to memory")?;
            output::print(&String::from_utf8_lossy(&text))?;
        }
    }
    Ok(Exit::Done)
}
