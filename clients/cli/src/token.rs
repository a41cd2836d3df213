//! How does `apportion token` make, list and revoke the tokens of the service?

use crate::resources::ResourceCommand;
use crate::resources::kinds::TokenResource;
use crate::service::{ServerArgs, ServiceClient, converse};
use apportion_api::random_secret;
use apportion_support::exit::{CommandResult, Exit, Failure};
use apportion_support::output;
use apportion_wire::Scope;
use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};

/// `apportion token`.
#[derive(Subcommand, Debug)]
pub enum TokenCommand {
    /// Print a random token for `apportion serve --admin-token-file`.
    New,
    /// Make a token, and print it. Nobody can read it again.
    Create(CreateArgs),
    /// Revoke a token.
    Revoke(RevokeArgs),
    #[command(flatten)]
    Resource(ResourceCommand<TokenResource>),
}

/// Arguments of `apportion token create`.
#[derive(Args, Debug)]
pub struct CreateArgs {
    /// Its name, for people.
    name: String,
    /// What it allows.
    #[arg(long, value_parser = Scope::NAMES.to_vec())]
    scope: String,
    /// The only project that it may use [default: all, or that of the token that makes it].
    #[arg(long)]
    project: Option<String>,
    /// Days that it counts [default: until it is revoked].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=3_650))]
    days: Option<u32>,
    #[command(flatten)]
    server: ServerArgs,
}

/// Arguments of `apportion token revoke`.
#[derive(Args, Debug)]
pub struct RevokeArgs {
    /// Identifier of the token.
    id: String,
    #[command(flatten)]
    server: ServerArgs,
}

/// Runs the command.
pub fn run(command: &TokenCommand) -> CommandResult {
    match command {
        TokenCommand::New => output::print(&random_secret())?,
        TokenCommand::Create(args) => create(args)?,
        TokenCommand::Revoke(args) => revoke(args)?,
        TokenCommand::Resource(command) => return command.run(),
    }
    Ok(Exit::Done)
}

fn create(args: &CreateArgs) -> Result<(), Failure> {
    let client = ServiceClient::new(&args.server)?;
    let seconds = args.days.map(|days| days * 86_400);
    let mut body = json!({ "name": args.name, "scope": args.scope, "for_s": seconds });
    if let Some(project) = &args.project {
        body["project"] = json!(project);
    }
    let path = "/v1/tokens";
    let made = converse(async { client.accepted(path, client.send(Method::POST, path, &[], Some(&body)).await?) })?;
    eprintln!("{}: token {} of scope {}", args.name, text(&made["id"]), args.scope);
    output::print(made["token"].as_str().unwrap_or_default())
}

fn revoke(args: &RevokeArgs) -> Result<(), Failure> {
    let client = ServiceClient::new(&args.server)?;
    let path = client.path(&["v1", "tokens", &args.id]);
    converse(async { client.accepted(&path, client.send(Method::DELETE, &path, &[], None).await?) })?;
    eprintln!("{} counts no more", args.id);
    Ok(())
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or("-").to_owned()
}
