//! How does `apportion schedule` say when the service plans again or holds?

use crate::service::{ListArgs, ServerArgs, ServiceClient, converse};
use apportion_support::exit::{CommandResult, Exit};
use apportion_support::input;
use apportion_support::output::{self, OutputFormat, TextTable};
use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};

/// `apportion schedule`.
#[derive(Subcommand, Debug)]
pub enum ScheduleCommand {
    /// List the schedules with their next due times and last firings.
    List(ScheduleListArgs),
    /// Print one schedule as JSON.
    Get(ScheduleGetArgs),
    /// Write a schedule, or replace it.
    Apply(ScheduleApplyArgs),
    /// Delete a schedule. A hold that it began stays until its end.
    Delete(ScheduleDeleteArgs),
}

/// Arguments of `apportion schedule list`.
#[derive(Args, Debug)]
pub struct ScheduleListArgs {
    #[command(flatten)]
    list: ListArgs,
    #[command(flatten)]
    server: ServerArgs,
    /// How the result is printed.
    #[arg(short = 'o', long, value_enum, default_value_t)]
    format: OutputFormat,
}

/// Arguments of `apportion schedule get`.
#[derive(Args, Debug)]
pub struct ScheduleGetArgs {
    /// The schedule.
    name: String,
    #[command(flatten)]
    server: ServerArgs,
}

/// Arguments of `apportion schedule apply`.
#[derive(Args, Debug)]
pub struct ScheduleApplyArgs {
    /// The schedule.
    name: String,
    /// File with its times and its effect, in YAML or JSON.
    #[arg(short, long, value_name = "FILE")]
    file: String,
    #[command(flatten)]
    server: ServerArgs,
}

/// Arguments of `apportion schedule delete`.
#[derive(Args, Debug)]
pub struct ScheduleDeleteArgs {
    /// The schedule.
    name: String,
    #[command(flatten)]
    server: ServerArgs,
}

/// Runs the command.
pub fn run(command: &ScheduleCommand) -> CommandResult {
    match command {
        ScheduleCommand::List(args) => list(args),
        ScheduleCommand::Get(args) => get(args),
        ScheduleCommand::Apply(args) => apply(args),
        ScheduleCommand::Delete(args) => delete(args),
    }
}

fn list(args: &ScheduleListArgs) -> CommandResult {
    let client = ServiceClient::new(&args.server)?;
    let schedules = converse(client.list("/v1/schedules", &args.list))?;
    match args.format {
        OutputFormat::Json => output::print(&output::json(&schedules)?)?,
        OutputFormat::Table => output::print(&table(&schedules))?,
    }
    Ok(Exit::Done)
}

fn table(schedules: &Value) -> String {
    let mut table = TextTable::new(&["schedule", "pipeline", "effect", "when", "next", "last", "result"]);
    let text = |value: &Value, absent: &str| value.as_str().unwrap_or(absent).to_owned();
    for schedule in schedules.as_array().into_iter().flatten() {
        let spec = &schedule["spec"];
        let last = &schedule["last"];
        let zone = spec["time_zone"].as_str().unwrap_or("UTC");
        let when = match spec["cron"].as_str() {
            Some(cron) => format!("{cron} {zone}"),
            None => format!("every {} s", spec["every_s"]),
        };
        table.row(vec![
            text(&schedule["name"], "-"),
            text(&spec["pipeline"], "all"),
            if spec["hold"].is_object() { "hold" } else { "replan" }.to_owned(),
            when,
            text(&schedule["next"][0], "never"),
            text(&last["due_at"], "-"),
            text(&last["state"], "-"),
        ]);
    }
    if table.rows().len() == 1 { "nothing is scheduled\n".to_owned() } else { table.text("") }
}

fn path_of(client: &ServiceClient, name: &str) -> String {
    client.path(&["v1", "schedules", name])
}

fn get(args: &ScheduleGetArgs) -> CommandResult {
    let client = ServiceClient::new(&args.server)?;
    let schedule = converse(client.get(&path_of(&client, &args.name)))?;
    output::print(&output::json(&schedule)?)?;
    Ok(Exit::Done)
}

fn apply(args: &ScheduleApplyArgs) -> CommandResult {
    let spec = apportion_wire::parse_tree(&args.file, &input::read_text(&args.file)?)?;
    let client = ServiceClient::new(&args.server)?;
    let path = path_of(&client, &args.name);
    let schedule = converse(async { client.accepted(&path, client.send(Method::PUT, &path, &[], Some(&spec)).await?) })?;
    output::print(&table(&json!([schedule])))?;
    Ok(Exit::Done)
}

fn delete(args: &ScheduleDeleteArgs) -> CommandResult {
    let client = ServiceClient::new(&args.server)?;
    let path = path_of(&client, &args.name);
    converse(async { client.accepted(&path, client.send(Method::DELETE, &path, &[], None).await?) })?;
    eprintln!("deleted: schedule {}", args.name);
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_are_listed_with_their_times() {
        let morning = json!({
            "name": "morning", "next": ["2026-11-25T08:50:00+01:00"], "last": {"due_at": "2026-11-24T07:50:00Z", "state": "done"},
            "spec": {"pipeline": "photos", "cron": "50 8 * * 1-5", "time_zone": "Europe/Berlin", "replan": {"demand_qps": 200}},
        });
        let hourly = json!({"name": "hourly", "next": [], "last": null, "spec": {"every_s": 3600, "hold": {"for_s": 60}}});
        let expected = "\
schedule  pipeline  effect  when                        next                       last                  result
morning   photos    replan  50 8 * * 1-5 Europe/Berlin  2026-11-25T08:50:00+01:00  2026-11-24T07:50:00Z  done
hourly    all       hold    every 3600 s                never                      -                     -
";
        assert_eq!(table(&json!([morning, hourly])), expected);
        assert_eq!(table(&json!([])), "nothing is scheduled\n");
    }
}
