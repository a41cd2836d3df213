//! How does `apportion plan` explain and compare plans that a service has stored?

use super::explanation;
use crate::changes::print_changes;
use crate::service::{ServerArgs, ServiceClient, converse};
use anyhow::Context;
use apportion_support::exit::{CommandResult, Exit};
use apportion_support::output::{self, OutputFormat};
use apportion_wire::PlanDiffFile;
use apportion_wire::explanation::ExplanationFile;
use clap::{Args, Subcommand};
use reqwest::Url;

/// `apportion plan` with a plan of a service.
#[derive(Subcommand, Debug)]
pub enum StoredPlanCommand {
    /// Say why a plan of a running service is as it is, or why there is none.
    Explain(ExplainArgs),
    /// List the changes of a plan of a running service against another one, or against the plans in force.
    Diff(StoredDiffArgs),
}

/// Arguments of `apportion plan explain`.
#[derive(Args, Debug)]
pub struct ExplainArgs {
    /// Identifier of the plan.
    id: String,
    /// Only show the explanation that was stored with the plan. Without it, the service also searches for prices and
    /// alternatives that are left out, for a minute at most.
    #[arg(long)]
    stored: bool,
    #[command(flatten)]
    server: ServerArgs,
    /// How the result is printed.
    #[arg(short = 'o', long, value_enum, default_value_t)]
    format: OutputFormat,
}

/// Arguments of `apportion plan diff`.
#[derive(Args, Debug)]
pub struct StoredDiffArgs {
    /// Identifier of the plan after.
    id: String,
    /// Identifier of the plan before, or `target`: the plans in force.
    #[arg(long, value_name = "ID", default_value = "target")]
    against: String,
    #[command(flatten)]
    server: ServerArgs,
    /// How the changes are printed.
    #[arg(short = 'o', long, value_enum, default_value_t)]
    format: OutputFormat,
}

/// Runs the command.
pub fn run(command: &StoredPlanCommand) -> CommandResult {
    match command {
        StoredPlanCommand::Explain(args) => explain(args),
        StoredPlanCommand::Diff(args) => diff(args),
    }
}

fn explain(args: &ExplainArgs) -> CommandResult {
    let client = ServiceClient::new(&args.server)?;
    let query = if args.stored { "?full=false" } else { "" };
    let path = format!("{}{query}", client.path(&["v1", "plans", &args.id, "explanation"]));
    let mut answer = converse(client.get(&path))?;
    if args.format != OutputFormat::Table {
        args.format.print(&answer, String::new)?;
        return Ok(Exit::Done);
    }
    let file: ExplanationFile =
        serde_json::from_value(answer["explanation"].take()).context("reading the service's answer")?;
    output::print(explanation::text(&file).trim_start_matches('\n'))?;
    Ok(Exit::Done)
}

fn diff(args: &StoredDiffArgs) -> CommandResult {
    let client = ServiceClient::new(&args.server)?;
    let mut url = Url::parse("http://service/").context("making a query")?;
    url.query_pairs_mut().append_pair("against", &args.against);
    let path = client.path(&["v1", "plans", &args.id, "diff"]);
    let answer = converse(client.get(&format!("{path}?{}", url.query().unwrap_or_default())))?;
    let changes: PlanDiffFile = serde_json::from_value(answer).context("reading the service's answer")?;
    print_changes(&changes, args.format)
}
