//! How does `apportion plan create` have a service make a plan?

use super::show::plan_table;
use crate::args;
use crate::service::{ServerArgs, ServiceClient, converse};
use anyhow::{Context, anyhow};
use apportion_support::exit::{CommandResult, Exit, Failure};
use apportion_support::input;
use apportion_support::output::{self, OutputFormat};
use apportion_support::progress::spinner;
use apportion_wire::{BadInput, PlanFile, PlanState, parse_tree};
use clap::Args;
use reqwest::Method;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Longest wait that the service takes for one answer, in seconds.
const WAIT_S_MAX: u64 = 300;

/// Arguments of `apportion plan create`.
#[derive(Args, Debug)]
pub struct CreatePlanArgs {
    /// Registered pipelines with the queries per second to plan for.
    #[arg(value_name = "PIPELINE=QPS", required_unless_present = "file")]
    pipelines: Vec<String>,
    /// A problem file instead, or a request as `POST /v1/plans` takes it, JSON or YAML.
    #[arg(short, long, value_name = "FILE", conflicts_with = "pipelines")]
    file: Option<String>,
    /// Devices of a registered hardware type; may be repeated [default: those of the live agents, or all types if there is
    /// no agent].
    #[arg(long, value_name = "NAME=COUNT", conflicts_with = "file")]
    hardware: Vec<String>,
    /// Longest wait for the plan. The service goes on with it after that.
    #[arg(long, default_value = "5m", value_parser = args::duration)]
    wait: Duration,
    /// Print the identifier of the plan alone, for scripts.
    #[arg(long, conflicts_with = "format")]
    id_only: bool,
    /// How the result is printed.
    #[arg(short = 'o', long, value_enum, default_value_t)]
    format: OutputFormat,
    #[command(flatten)]
    server: ServerArgs,
}

/// Runs the command.
///
/// # Errors
/// If the service refuses the request, or if the plan failed.
pub fn run(args: &CreatePlanArgs) -> CommandResult {
    let client = ServiceClient::new(&args.server)?;
    let bar = spinner("planning");
    let planned = converse(create(args, &client));
    bar.finish_and_clear();
    let plan = planned?;
    let (id, state) = (plan["id"].as_str().context("a plan without an id")?, plan["state"].as_str().unwrap_or_default());
    if !args.id_only {
        eprintln!("plan {id}: {state}");
    }
    if plan["plan"].is_null() && !is_open(&plan) {
        return Err(anyhow!("plan {id}: {state}: {}", plan["error"]).into());
    }
    if args.id_only {
        output::print(id)?;
    } else {
        let file = match plan["plan"].is_null() {
            true => None,
            false => {
                let file = serde_json::from_value::<PlanFile>(plan["plan"].clone());
                Some(file.context("reading the service's plan")?)
            }
        };
        args.format.print(&plan, || file.as_ref().map_or_else(String::new, plan_table))?;
    }
    Ok(match state {
        state if state == PlanState::Succeeded.name() => Exit::Done,
        state if state == PlanState::Infeasible.name() => Exit::Infeasible,
        _ => Exit::NoAnswer,
    })
}

fn is_open(plan: &Value) -> bool {
    PlanState::OPEN.iter().any(|open| plan["state"] == open.name())
}

/// Asks for the plan, and waits for it.
async fn create(args: &CreatePlanArgs, client: &ServiceClient) -> Result<Value, Failure> {
    let request = request(args, client).await?;
    let begun = Instant::now();
    let waiting = |left: Duration| [("prefer", format!("wait={}", left.as_secs().clamp(1, WAIT_S_MAX)))];
    let answer = client.send(Method::POST, "/v1/plans", &waiting(args.wait), Some(&request)).await?;
    let mut plan = client.accepted("/v1/plans", answer)?;
    loop {
        let left = args.wait.saturating_sub(begun.elapsed());
        if !is_open(&plan) || left.is_zero() {
            return Ok(plan);
        }
        let path = client.path(&["v1", "plans", plan["id"].as_str().context("a plan without an id")?]);
        let answer = client.send(Method::GET, &path, &waiting(left), None).await?;
        plan = client.accepted(&path, answer)?;
    }
}

/// The body of the request.
async fn request(args: &CreatePlanArgs, client: &ServiceClient) -> Result<Value, Failure> {
    if let Some(file) = &args.file {
        return Ok(request_of_file(parse_tree(file, &input::read_text(file)?)?));
    }
    let pipelines = args.pipelines.iter().map(|text| planned_pipeline(text)).collect::<Result<Vec<_>, _>>()?;
    let mut request = json!({ "pipelines": pipelines });
    let mut offers = Vec::new();
    for text in &args.hardware {
        let wrong = |found: &str| BadInput::one("--hardware", text, found, "NAME=COUNT, for example t4=8");
        let (name, count) = text.rsplit_once('=').ok_or_else(|| wrong("no ="))?;
        let count: u32 = count.parse().map_err(|_| wrong("no whole number"))?;
        offers.push(offer(&client.get(&client.path(&["v1", "hardware", name])).await?, count));
    }
    if !offers.is_empty() {
        request["hardware"] = offers.into();
    }
    Ok(request)
}

/// A problem file has a `version`; a request has none.
fn request_of_file(tree: Value) -> Value {
    if tree.get("version").is_some() { json!({ "problem": tree }) } else { tree }
}

/// The pipeline of an argument `PIPELINE=QPS`.
fn planned_pipeline(text: &str) -> Result<Value, BadInput> {
    let wrong = |found: &str| BadInput::one("apportion plan create", text, found, "PIPELINE=QPS, for example photos=60");
    let (name, qps) = text.rsplit_once('=').ok_or_else(|| wrong("no ="))?;
    let qps = args::rate(qps).map_err(|_| wrong("no rate from 0 to 1e9"))?;
    Ok(json!({"name": name, "demand_qps": qps}))
}

/// Devices of a registered type.
fn offer(registered: &Value, count: u32) -> Value {
    let mut offer = json!({"name": registered["name"], "count": count});
    for key in ["price_per_hour", "memory_mib"] {
        if !registered[key].is_null() {
            offer[key] = registered[key].clone();
        }
    }
    offer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_argument_names_pipeline_and_rate() {
        assert_eq!(planned_pipeline("a=b=60").expect("a rate"), json!({"name": "a=b", "demand_qps": 60.0}));
        for wrong in ["photos", "photos=", "photos=many", "photos=-1"] {
            let refused = planned_pipeline(wrong).expect_err("no rate").to_string();
            assert!(refused.starts_with(&format!("apportion plan create: {wrong}: ")), "{refused}");
        }
    }

    #[test]
    fn a_file_is_a_problem_or_a_request() {
        let problem = json!({"version": 1, "pipelines": []});
        assert_eq!(request_of_file(problem.clone()), json!({ "problem": problem }));
        let request = json!({"pipelines": [{"name": "photos", "demand_qps": 60}]});
        assert_eq!(request_of_file(request.clone()), request);
    }

    #[test]
    fn an_offer_has_the_registered_price() {
        let t4 = json!({"name": "t4", "price_per_hour": 0.53, "memory_mib": null, "provision_s": 60});
        assert_eq!(offer(&t4, 8), json!({"name": "t4", "count": 8, "price_per_hour": 0.53}));
    }
}
