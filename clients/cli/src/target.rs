//! How does `apportion target` show, compare, replace and roll back what the fleet serves?

use crate::args;
use crate::resources::kinds::TargetResource;
use crate::resources::{ListRequest, ResourceCommand, ResourceName as _};
use crate::service::{ServerArgs, ServiceClient, converse};
use anyhow::Context;
use apportion_support::exit::{CommandResult, Exit, Failure};
use apportion_support::output::{OutputFormat, TextTable, number, optional};
use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};
use std::time::Duration;

/// `apportion target`.
#[derive(Subcommand, Debug)]
pub enum TargetCommand {
    /// Show the target in force.
    Show(ShowArgs),
    /// List the targets so far, the newest first.
    History(ListRequest),
    /// Show what one target changed against an earlier one.
    Diff(TargetDiffArgs),
    /// Replace the target by these plans.
    Apply(ApplyArgs),
    /// Go back to the plans of an earlier target.
    Rollback(RollbackArgs),
    #[command(flatten)]
    Resource(ResourceCommand<TargetResource>),
}

/// Arguments of a command that only reads.
#[derive(Args, Debug)]
pub struct ShowArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// How the result is printed.
    #[arg(short = 'o', long, value_enum, default_value_t)]
    format: OutputFormat,
}

/// Arguments of `apportion target diff`.
#[derive(Args, Debug)]
pub struct TargetDiffArgs {
    /// Generation of the earlier target.
    from: i64,
    /// Generation of the later target [default: the one in force].
    to: Option<i64>,
    #[command(flatten)]
    show: ShowArgs,
}

/// Whether a command only asks.
#[derive(Args, Debug)]
pub struct DryRunArgs {
    /// Only show what would be loaded, kept and unloaded.
    #[arg(long)]
    dry_run: bool,
}

/// Arguments of `apportion target apply`.
#[derive(Args, Debug)]
pub struct ApplyArgs {
    /// Identifiers of plans that have succeeded, no two with the same pipeline.
    #[arg(required = true)]
    plans: Vec<String>,
    #[command(flatten)]
    dry: DryRunArgs,
    #[command(flatten)]
    show: ShowArgs,
}

/// Arguments of `apportion target rollback`.
#[derive(Args, Debug)]
pub struct RollbackArgs {
    /// Generation whose plans come back [default: the newest one with other plans than now].
    generation: Option<i64>,
    #[command(flatten)]
    dry: DryRunArgs,
    /// How long rounds of replanning deploy nothing, so that they do not undo it.
    #[arg(long, default_value = "1h", value_parser = args::duration)]
    hold: Duration,
    /// Let the next round of replanning deploy another plan.
    #[arg(long, conflicts_with = "hold")]
    no_hold: bool,
    #[command(flatten)]
    show: ShowArgs,
}

/// Runs the command.
pub fn run(command: &TargetCommand) -> CommandResult {
    match command {
        TargetCommand::Show(args) => show(args),
        TargetCommand::History(args) => args.run(TargetResource::kind(), &[]),
        TargetCommand::Resource(command) => command.run(),
        TargetCommand::Diff(args) => diff(args),
        TargetCommand::Apply(args) => {
            let body = json!({ "plans": args.plans });
            change(&args.show, Method::PUT, &args.dry.path("/v1/target"), &body)
        }
        TargetCommand::Rollback(args) => {
            let hold_s = if args.no_hold { 0 } else { args.hold.as_secs().max(1) };
            let body = json!({ "generation": args.generation, "hold_s": hold_s });
            change(&args.show, Method::POST, &args.dry.path("/v1/target/rollback"), &body)
        }
    }
}

impl DryRunArgs {
    fn path(&self, path: &str) -> String {
        if self.dry_run { format!("{path}?dry_run=true") } else { path.to_owned() }
    }
}

fn show(args: &ShowArgs) -> CommandResult {
    let client = ServiceClient::new(&args.server)?;
    print(args.format, &converse(client.get("/v1/target"))?, target_table)
}

fn diff(args: &TargetDiffArgs) -> CommandResult {
    let client = ServiceClient::new(&args.show.server)?;
    let to = args.to.map(|to| format!("&to={to}")).unwrap_or_default();
    let path = format!("/v1/target/diff?from={}{to}", args.from);
    print(args.show.format, &converse(client.get(&path))?, change_table)
}

/// Replaces the target that is in force now, or asks what that would change.
fn change(args: &ShowArgs, method: Method, path: &str, body: &Value) -> CommandResult {
    let client = ServiceClient::new(&args.server)?;
    let answer = converse(async {
        let generation = client.get("/v1/target").await?["generation"].as_i64().context("a target without a generation")?;
        let condition = [("if-match", format!("\"{generation}\""))];
        client.accepted(path, client.send(method, path, &condition, Some(body)).await?)
    })?;
    let table = if answer["replicas"].is_array() { change_table } else { target_table };
    print(args.format, &answer, table)
}

fn print(format: OutputFormat, value: &Value, table: fn(&Value) -> String) -> CommandResult {
    format.print(value, || table(value))?;
    Ok::<_, Failure>(Exit::Done)
}

fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    value[key].as_array().into_iter().flatten()
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn target_table(target: &Value) -> String {
    let placement = &target["placement"];
    let mut table = TextTable::new(&["pipeline", "task", "variant", "hardware", "share", "replicas"]);
    let count = |group: &Value| list(placement, "replicas").filter(|replica| replica["group"] == group["id"]).count();
    // Of the groups on offer, those that requests have loaded.
    let offered = list(placement, "offered").filter(|group| count(group) > 0);
    for group in list(placement, "groups").chain(offered) {
        let replicas = count(group);
        let mut cells: Vec<String> = ["pipeline", "task", "variant", "hardware"].map(|key| text(&group[key])).into();
        cells.extend([number(group["share"].as_f64().unwrap_or(1.0)), replicas.to_string()]);
        table.row(cells);
    }
    let plans: Vec<String> = list(target, "plans").map(text).collect();
    let head = format!("target {}: {}\nplans {}\n\n", target["generation"], text(&target["reason"]), plans.join(" "));
    if plans.is_empty() {
        format!("target {}: nothing is deployed\n", target["generation"])
    } else {
        head + &table.text("")
    }
}

fn change_table(change: &Value) -> String {
    let cost = |key: &str| number(change[key].as_f64().unwrap_or(0.0));
    let head = format!(
        "from target {} to {}: cost per hour {} to {}\n\n",
        change["from"],
        change["to"],
        cost("cost_per_hour_before"),
        cost("cost_per_hour_after")
    );
    if change["changed"] == false {
        return format!("target {}: nothing changes\n", change["from"]);
    }
    let mut tasks = TextTable::new(&[
        "pipeline",
        "task",
        "kept",
        "loaded",
        "unloaded",
        "q/s before",
        "q/s meanwhile",
        "q/s after",
        "q/s planned",
        "load s",
        "short s",
    ]);
    for task in list(change, "tasks") {
        let mut cells: Vec<String> = ["pipeline", "task", "kept", "loaded", "unloaded"].map(|key| text(&task[key])).into();
        let figures = ["capacity_before_qps", "capacity_meanwhile_qps", "capacity_after_qps", "planned_qps", "load_s"];
        cells.extend(figures.map(|key| optional(task[key].as_f64())));
        cells.push(optional(task["short_s"].as_f64()));
        tasks.row(cells);
    }
    let mut replicas = TextTable::new(&["replica", "fate", "task", "variant", "hardware", "agent", "device"]);
    for replica in list(change, "replicas").filter(|replica| replica["fate"] != "kept") {
        let task = format!("{}/{}", text(&replica["pipeline"]), text(&replica["task"]));
        let mut cells = vec![text(&replica["replica"]), text(&replica["fate"]), task];
        cells.extend(["variant", "hardware", "agent", "device"].map(|key| text(&replica[key])));
        replicas.row(cells);
    }
    let shortages: String = list(change, "shortages").map(|why| format!("\nno device: {}", text(why))).collect();
    format!("{head}{}\n{}{shortages}", tasks.text(""), replicas.text(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_lists_tasks_and_moved_replicas() {
        let replica = |id: u32, fate: &str| {
            json!({"replica": id, "pipeline": "p", "task": "t", "variant": "v", "hardware": "h", "share": 1.0, "agent": 3,
                "device": 0, "fate": fate})
        };
        let change = json!({"from": 4, "to": 5, "changed": true, "cost_per_hour_before": 1.0, "cost_per_hour_after": 2.0,
            "shortages": ["1 of 2 replicas"],
            "tasks": [{"pipeline": "p", "task": "t", "kept": 1, "loaded": 1, "unloaded": 0, "capacity_before_qps": 100.0,
                "capacity_meanwhile_qps": 100.0, "capacity_after_qps": 200.0, "planned_qps": 150.5, "load_s": 3.0,
                "short_s": null}],
            "replicas": [replica(7, "kept"), replica(8, "loaded")]});
        let table = change_table(&change);
        assert!(table.starts_with("from target 4 to 5: cost per hour 1 to 2\n"), "{table}");
        assert!(
            table.contains(
                "p         t        1       1         0         100            100        200        150.5       3        -"
            ),
            "{table}"
        );
        assert!(table.contains("8  loaded  p/t") && !table.contains("7  kept"), "{table}");
        assert!(table.ends_with("\nno device: 1 of 2 replicas"), "{table}");
    }

    #[test]
    fn an_unchanged_target_says_so() {
        assert_eq!(change_table(&json!({"from": 4, "changed": false})), "target 4: nothing changes\n");
        assert_eq!(target_table(&json!({"generation": 0, "plans": []})), "target 0: nothing is deployed\n");
    }
}
