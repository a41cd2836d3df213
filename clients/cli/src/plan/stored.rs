//! How does `apportion plan` make, list, explain and compare plans of a service?

use super::create::{self, CreatePlanArgs};
use super::explanation;
use crate::changes::print_changes;
use crate::resources::ResourceCommand;
use crate::resources::kinds::PlanResource;
use crate::service::{ServerArgs, ServiceClient, converse};
use anyhow::Context;
use apportion_support::exit::{CommandResult, Exit};
use apportion_support::output::{self, OutputFormat};
use apportion_wire::PlanDiffFile;
use apportion_wire::explanation::ExplanationFile;
use clap::{Args, Subcommand};

/// `apportion plan` with a plan of a service.
#[derive(Subcommand, Debug)]
pub enum StoredPlanCommand {
    /// Say why a plan of a running service is as it is, or why there is none.
    Explain(ExplainArgs),
    /// List the changes of a plan of a running service against another one, or against the plans in force.
    Diff(StoredDiffArgs),
    /// Have a running service make a plan, and print it.
    Create(CreatePlanArgs),
    #[command(flatten)]
    Resource(ResourceCommand<PlanResource>),
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
        StoredPlanCommand::Create(args) => create::run(args),
        StoredPlanCommand::Resource(command) => command.run(),
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
    let path = client.with_query(&client.path(&["v1", "plans", &args.id, "diff"]), &[("against", args.against.as_str())]);
    let answer = converse(client.get(&path))?;
    let changes: PlanDiffFile = serde_json::from_value(answer).context("reading the service's answer")?;
    print_changes(&changes, args.format)
}
