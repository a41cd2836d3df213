//! How does `apportion hold` keep rounds of replanning from deploying?

use crate::args;
use crate::resources::kinds::{HOLDS, HoldResource};
use crate::resources::{ResourceCommand, table};
use crate::service::{ServerArgs, ServiceClient, converse};
use apportion_support::exit::{CommandResult, Exit};
use apportion_support::output;
use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::json;
use std::time::Duration;

/// `apportion hold`.
#[derive(Subcommand, Debug)]
pub enum HoldCommand {
    /// Hold the fleet, or one pipeline: rounds of replanning deploy nothing for it.
    Set(SetArgs),
    /// Release a hold.
    Release(ReleaseArgs),
    #[command(flatten)]
    Resource(ResourceCommand<HoldResource>),
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
        HoldCommand::Set(args) => set(args),
        HoldCommand::Release(args) => release(args),
        HoldCommand::Resource(command) => command.run(),
    }
}

fn path_of(client: &ServiceClient, pipeline: Option<&str>) -> String {
    pipeline.map_or_else(|| "/v1/hold".to_owned(), |name| client.path(&["v1", "pipelines", name, "hold"]))
}

fn set(args: &SetArgs) -> CommandResult {
    let client = ServiceClient::new(&args.server)?;
    let path = path_of(&client, args.pipeline.as_deref());
    let body = json!({ "reason": args.reason, "for_s": args.lasts.map(|lasts| lasts.as_secs()) });
    let hold = converse(async { client.accepted(&path, client.send(Method::PUT, &path, &[], Some(&body)).await?) })?;
    output::print(&table(&HOLDS, &[hold]))?;
    Ok(Exit::Done)
}

fn release(args: &ReleaseArgs) -> CommandResult {
    let client = ServiceClient::new(&args.server)?;
    let path = path_of(&client, args.pipeline.as_deref());
    converse(async { client.accepted(&path, client.send(Method::DELETE, &path, &[], None).await?) })?;
    eprintln!("released: the next round of replanning may deploy");
    Ok(Exit::Done)
}
