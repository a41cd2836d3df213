//! How does `apportion hold` keep rounds of replanning from deploying?

use crate::args;
use crate::service::{ListArgs, ServerArgs, ServiceClient, converse};
use apportion_support::exit::{CommandResult, Exit};
use apportion_support::output::{self, OutputFormat, TextTable};
use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};
use std::time::Duration;

/// `apportion hold`.
#[derive(Subcommand, Debug)]
pub enum HoldCommand {
    /// List the holds in force.
    List(HoldListArgs),
    /// Hold the fleet, or one pipeline: rounds of replanning deploy nothing for it.
    Set(SetArgs),
    /// Release a hold.
    Release(ReleaseArgs),
}

/// Arguments of `apportion hold list`.
#[derive(Args, Debug)]
pub struct HoldListArgs {
    #[command(flatten)]
    list: ListArgs,
    #[command(flatten)]
    server: ServerArgs,
    /// How the result is printed.
    #[arg(short = 'o', long, value_enum, default_value_t)]
    format: OutputFormat,
}

/// Arguments of `apportion hold set`.
#[derive(Args, Debug)]
pub struct SetArgs {
    /// The pipeline [default: the whole fleet].
    pipeline: Option<String>,
    /// The reason, for people.
    #[arg(long)]
    reason: String,
    /// How long it lasts [default: until it is released].
    #[arg(long = "for", value_name = "TIME", value_parser = args::duration)]
    lasts: Option<Duration>,
    #[command(flatten)]
    server: ServerArgs,
}

/// Arguments of `apportion hold release`.
#[derive(Args, Debug)]
pub struct ReleaseArgs {
    /// The pipeline [default: the whole fleet].
    pipeline: Option<String>,
    #[command(flatten)]
    server: ServerArgs,
}

/// Runs the command.
pub fn run(command: &HoldCommand) -> CommandResult {
    match command {
        HoldCommand::List(args) => list(args),
        HoldCommand::Set(args) => set(args),
        HoldCommand::Release(args) => release(args),
    }
}

fn list(args: &HoldListArgs) -> CommandResult {
    let client = ServiceClient::new(&args.server)?;
    let holds = converse(client.list("/v1/holds", &args.list))?;
    match args.format {
        OutputFormat::Json => output::print(&output::json(&holds)?)?,
        OutputFormat::Table => output::print(&table(&holds))?,
    }
    Ok(Exit::Done)
}

fn table(holds: &Value) -> String {
    let mut table = TextTable::new(&["held", "until", "by", "reason"]);
    let text = |value: &Value, absent: &str| value.as_str().unwrap_or(absent).to_owned();
    for hold in holds.as_array().into_iter().flatten() {
        table.row(vec![
            text(&hold["pipeline"], "the fleet"),
            text(&hold["until"], "it is released"),
            text(&hold["made_by"], "-"),
            text(&hold["reason"], "-"),
        ]);
    }
    if table.rows().len() == 1 { "nothing is held\n".to_owned() } else { table.text("") }
}

fn path_of(client: &ServiceClient, pipeline: Option<&str>) -> String {
    pipeline.map_or_else(|| "/v1/hold".to_owned(), |name| client.path(&["v1", "pipelines", name, "hold"]))
}

fn set(args: &SetArgs) -> CommandResult {
    let client = ServiceClient::new(&args.server)?;
    let path = path_of(&client, args.pipeline.as_deref());
    let body = json!({ "reason": args.reason, "for_s": args.lasts.map(|lasts| lasts.as_secs()) });
    let hold = converse(async { client.accepted(&path, client.send(Method::PUT, &path, &[], Some(&body)).await?) })?;
    output::print(&table(&json!([hold])))?;
    Ok(Exit::Done)
}

fn release(args: &ReleaseArgs) -> CommandResult {
    let client = ServiceClient::new(&args.server)?;
    let path = path_of(&client, args.pipeline.as_deref());
    converse(async { client.accepted(&path, client.send(Method::DELETE, &path, &[], None).await?) })?;
    eprintln!("released: the next round of replanning may deploy");
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_are_listed_with_their_ends() {
        let hold = json!({"pipeline": null, "until": null, "made_by": "anna", "reason": "a launch"});
        assert_eq!(
            table(&json!([hold])),
            "held       until           by    reason\nthe fleet  it is released  anna  a launch\n"
        );
        assert_eq!(table(&json!([])), "nothing is held\n");
    }
}
