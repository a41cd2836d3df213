//! How does `apportion webhook` say where the service posts its events?

use crate::service::{ListArgs, ServerArgs, ServiceClient, converse};
use apportion_support::exit::{CommandResult, Exit, Failure};
use apportion_support::input;
use apportion_support::output::{self, OutputFormat, TextTable};
use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};

/// `apportion webhook`.
#[derive(Subcommand, Debug)]
pub enum WebhookCommand {
    /// List the webhooks with their deliveries, without their secrets.
    List(WebhookListArgs),
    /// Print one webhook as JSON, without its secret.
    Get(WebhookGetArgs),
    /// Write a webhook, or replace it. The secret of a new one is printed; nobody can read it again.
    Apply(WebhookApplyArgs),
    /// Delete a webhook. Events that wait for it are not sent.
    Delete(WebhookDeleteArgs),
}

/// Arguments of `apportion webhook list`.
#[derive(Args, Debug)]
pub struct WebhookListArgs {
    /// How the result is printed.
    #[arg(short = 'o', long, value_enum, default_value_t)]
    format: OutputFormat,
    #[command(flatten)]
    list: ListArgs,
    #[command(flatten)]
    server: ServerArgs,
}

/// Arguments of `apportion webhook get`.
#[derive(Args, Debug)]
pub struct WebhookGetArgs {
    /// The webhook.
    name: String,
    #[command(flatten)]
    server: ServerArgs,
}

/// Arguments of `apportion webhook apply`.
#[derive(Args, Debug)]
pub struct WebhookApplyArgs {
    /// The webhook.
    name: String,
    /// File with its URL and the events that it gets, in YAML or JSON.
    #[arg(short, long, value_name = "FILE")]
    file: String,
    #[command(flatten)]
    server: ServerArgs,
}

/// Arguments of `apportion webhook delete`.
#[derive(Args, Debug)]
pub struct WebhookDeleteArgs {
    /// The webhook.
    name: String,
    #[command(flatten)]
    server: ServerArgs,
}

/// Runs the command.
pub fn run(command: &WebhookCommand) -> CommandResult {
    match command {
        WebhookCommand::List(args) => list(args)?,
        WebhookCommand::Get(args) => get(args)?,
        WebhookCommand::Apply(args) => apply(args)?,
        WebhookCommand::Delete(args) => delete(args)?,
    }
    Ok(Exit::Done)
}

fn list(args: &WebhookListArgs) -> Result<(), Failure> {
    let webhooks = converse(ServiceClient::new(&args.server)?.list("/v1/webhooks", &args.list))?;
    let text = match args.format {
        OutputFormat::Json => output::json(&webhooks)?,
        OutputFormat::Table => table(&webhooks),
    };
    output::print(&text)
}

fn get(args: &WebhookGetArgs) -> Result<(), Failure> {
    let client = ServiceClient::new(&args.server)?;
    let webhook = converse(client.get(&path_of(&client, &args.name)))?;
    output::print(&output::json(&webhook)?)
}

fn apply(args: &WebhookApplyArgs) -> Result<(), Failure> {
    let spec = apportion_wire::parse_tree(&args.file, &input::read_text(&args.file)?)?;
    let client = ServiceClient::new(&args.server)?;
    let path = path_of(&client, &args.name);
    let written = converse(async { client.accepted(&path, client.send(Method::PUT, &path, &[], Some(&spec)).await?) })?;
    eprint!("{}", table(&json!([written])));
    match written["secret"].as_str() {
        Some(secret) => output::print(secret),
        None => Ok(()),
    }
}

fn delete(args: &WebhookDeleteArgs) -> Result<(), Failure> {
    let client = ServiceClient::new(&args.server)?;
    let path = path_of(&client, &args.name);
    converse(async { client.accepted(&path, client.send(Method::DELETE, &path, &[], None).await?) })?;
    eprintln!("deleted: webhook {}", args.name);
    Ok(())
}

fn path_of(client: &ServiceClient, name: &str) -> String {
    client.path(&["v1", "webhooks", name])
}

fn table(webhooks: &Value) -> String {
    let mut table = TextTable::new(&["webhook", "url", "state", "waiting", "delivered", "skipped", "last error"]);
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    for webhook in webhooks.as_array().into_iter().flatten() {
        let state = match (webhook["enabled"] == true, webhook["attempts"] == 0) {
            (false, _) => "disabled",
            (true, true) => "enabled",
            (true, false) => "retrying",
        };
        let [name, url] = ["name", "url"].map(|key| text(&webhook[key]));
        let [waiting, delivered, skipped] = ["waiting", "delivered", "skipped"].map(|key| text(&webhook[key]));
        let last_error = webhook["last_error"].as_str().unwrap_or("-").to_owned();
        table.row(vec![name, url, state.to_owned(), waiting, delivered, skipped, last_error]);
    }
    if table.rows().len() == 1 { "there is no webhook\n".to_owned() } else { table.text("") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn webhooks_are_listed_with_their_deliveries() {
        let chat = json!({
            "name": "chat", "url": "http://127.0.0.1:9000/events", "enabled": true, "attempts": 3, "waiting": 12,
            "delivered": 40, "skipped": 1, "last_error": "the receiver answered 503",
        });
        let log = json!({
            "name": "log", "url": "https://log.example/", "enabled": false, "attempts": 0, "waiting": 0, "delivered": 0,
            "skipped": 0, "last_error": null,
        });
        let expected = "\
webhook  url                           state     waiting  delivered  skipped  last error
chat     http://127.0.0.1:9000/events  retrying       12         40        1  the receiver answered 503
log      https://log.example/          disabled        0          0        0  -
";
        assert_eq!(table(&json!([chat, log])), expected);
        assert_eq!(table(&json!([])), "there is no webhook\n");
    }
}
