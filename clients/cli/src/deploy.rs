//! How does `apportion deploy` plan a registered pipeline, deploy it beside the others, and wait until it answers?

use crate::args;
use crate::live_agents::{has_failed_task, has_refused_task, live, load_failures, refused_targets};
use crate::plan::plan_table;
use crate::service::{ServerArgs, ServiceClient, converse};
use anyhow::{Context, anyhow};
use apportion_support::exit::{CommandResult, Exit, Failure};
use apportion_support::output;
use apportion_support::progress::spinner;
use apportion_wire::{BadInput, PlanFile, PlanState, ReplanMode};
use clap::Args;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How often a target is read again that another client changes at the same time.
const TRIES_MAX: u32 = 5;
/// Pause between two questions whether the pipeline answers.
const POLL: Duration = Duration::from_millis(200);

/// Arguments of `apportion deploy`.
#[derive(Args, Debug)]
pub struct DeployArgs {
    /// Name of a registered pipeline.
    pipeline: String,
    /// Queries per second to plan for.
    #[arg(long, value_parser = args::rate)]
    qps: f64,
    #[command(flatten)]
    server: ServerArgs,
    /// Longest wait until the pipeline answers. It ends at once if no agent can serve the pipeline.
    #[arg(long, default_value = "60s", value_parser = args::duration)]
    wait: Duration,
}

/// Runs the command.
pub fn run(args: &DeployArgs) -> CommandResult {
    let client = ServiceClient::new(&args.server)?;
    let bar = spinner(&format!("planning {}", args.pipeline));
    let deployed = converse(deploy(args, &client, &|message: &str| bar.set_message(message.to_owned())));
    bar.finish_and_clear();
    deployed
}

/// The plans that are in force beside those of one pipeline.
struct OtherPlans {
    /// Generation of the target that they are in.
    generation: u64,
    /// Their identifiers.
    ids: Vec<String>,
    /// Devices that they use, by hardware type.
    devices: BTreeMap<String, f64>,
}

async fn deploy(args: &DeployArgs, client: &ServiceClient, progress: &dyn Fn(&str)) -> CommandResult {
    let spec = client.get(&client.path(&["v1", "pipelines", &args.pipeline])).await?;
    let mut others = other_plans(client, &args.pipeline).await?;
    let planned = plan(args, client, &others).await?;
    let file: PlanFile = serde_json::from_value(planned["plan"].clone()).context("reading the service's plan")?;
    let state = planned["state"].as_str().unwrap_or_default();
    if state != PlanState::Succeeded.name() {
        output::print(&plan_table(&file))?;
        return Ok(if state == PlanState::Infeasible.name() { Exit::Infeasible } else { Exit::NoAnswer });
    }
    let id = planned["id"].as_str().context("a plan without an id")?;
    progress("deploying");
    let mut tries = 0;
    let generation = loop {
        let plans: Vec<&str> = others.ids.iter().map(String::as_str).chain([id]).collect();
        let condition = [("if-match", format!("\"{}\"", others.generation))];
        let answer = client.send(Method::PUT, "/v1/target", &condition, Some(&json!({ "plans": plans }))).await?;
        tries += 1;
        if answer.status == StatusCode::PRECONDITION_FAILED && tries < TRIES_MAX {
            others = other_plans(client, &args.pipeline).await?;
            continue;
        }
        break client.accepted("/v1/target", answer)?["generation"].clone();
    };
    output::print(&plan_table(&file))?;
    progress("waiting for the agents");
    let failure = match spec["replan"]["mode"] == ReplanMode::Apply.name() {
        true => AfterFailure::NextPlan,
        false => AfterFailure::End,
    };
    let ingress = wait(args, client, generation.as_u64().unwrap_or(0), failure).await?;
    let infer = client.path(&["v2", "models", &args.pipeline, "infer"]);
    eprintln!("{}: target {generation}, answers at {ingress}{infer}", args.pipeline);
    Ok(Exit::Done)
}

/// Asks for a plan on the devices that the other plans leave free, and waits for it.
async fn plan(args: &DeployArgs, client: &ServiceClient, others: &OtherPlans) -> Result<Value, Failure> {
    let mut request = json!({"pipelines": [{"name": args.pipeline, "demand_qps": args.qps}]});
    if !others.ids.is_empty() {
        request["hardware"] = free_hardware(client, others).await?.into();
    }
    let waiting = [("prefer", "wait=300".to_owned())];
    let answer = client.send(Method::POST, "/v1/plans", &waiting, Some(&request)).await?;
    let mut plan = client.accepted("/v1/plans", answer)?;
    let id = plan["id"].as_str().context("a plan without an id")?.to_owned();
    while PlanState::OPEN.iter().any(|open| plan["state"] == open.name()) {
        let path = format!("/v1/plans/{id}");
        let answer = client.send(Method::GET, &path, &waiting, None).await?;
        plan = client.accepted(&path, answer)?;
    }
    match plan["plan"].is_object() {
        true => Ok(plan),
        false => {
            let text = |key: &str| plan[key].as_str().unwrap_or("-").to_owned();
            Err(anyhow!("plan {id}: {}: {}", text("state"), text("error")).into())
        }
    }
}

/// The plans of the target in force without this pipeline's.
async fn other_plans(client: &ServiceClient, pipeline: &str) -> Result<OtherPlans, Failure> {
    let target = client.get("/v1/target").await?;
    let generation = target["generation"].as_u64().context("a target without a generation")?;
    let mut others = OtherPlans { generation, ids: Vec::new(), devices: BTreeMap::new() };
    for id in target["plans"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        let document = client.get(&format!("/v1/plans/{id}")).await?;
        let pipelines = document["plan"]["pipelines"].as_array().cloned().unwrap_or_default();
        let names: Vec<&str> = pipelines.iter().filter_map(|p| p["name"].as_str()).collect();
        if names == [pipeline] {
            continue;
        }
        if names.contains(&pipeline) {
            let found = format!("plan {id} is for {} together", names.join(", "));
            let expected =
                "a target with a plan for each pipeline: deploy the others one by one, or put the target by hand";
            return Err(BadInput::one("deploy", pipeline, found, expected).into());
        }
        for group in pipelines.iter().flat_map(|p| p["assignments"].as_array().into_iter().flatten()) {
            let devices = group["replicas"].as_f64().unwrap_or(0.0) * group["share"].as_f64().unwrap_or(1.0);
            *others.devices.entry(group["hardware"].as_str().unwrap_or_default().to_owned()).or_default() += devices;
        }
        others.ids.push(id.to_owned());
    }
    Ok(others)
}

/// The devices of the live agents that the other plans leave free.
async fn free_hardware(client: &ServiceClient, others: &OtherPlans) -> Result<Vec<Value>, Failure> {
    let (agents, registered) = (client.list_all("/v1/agents").await?, client.list_all("/v1/hardware").await?);
    let mut devices: BTreeMap<&str, f64> = BTreeMap::new();
    for agent in live(&agents) {
        *devices.entry(agent["hardware"].as_str().unwrap_or_default()).or_default() +=
            agent["devices"].as_f64().unwrap_or(0.0);
    }
    let offer = |(name, count): (&str, f64)| {
        // A device that another pipeline has a share of is not free.
        let used = others.devices.get(name).map_or(0.0, |used| used.ceil());
        let known = registered.as_array().into_iter().flatten().find(|h| h["name"] == name);
        let mut offer = json!({"name": name, "count": (count - used).max(0.0) as u32});
        for key in ["price_per_hour", "memory_mib"] {
            if let Some(value) = known.map(|h| h[key].clone()).filter(|value| !value.is_null()) {
                offer[key] = value;
            }
        }
        offer
    };
    Ok(devices.into_iter().map(offer).collect())
}

/// What comes after a variant has failed on every device.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AfterFailure {
    /// Nothing.
    End,
    /// The service deploys a plan without it.
    NextPlan,
}

/// Waits until an agent answers for the pipeline, with TLS or without. Returns the beginning of its URL. Without an answer
/// the error has the agents' reasons since the target with this generation.
async fn wait(
    args: &DeployArgs,
    client: &ServiceClient,
    generation: u64,
    failure: AfterFailure,
) -> Result<String, Failure> {
    let (start, ready) = (Instant::now(), client.path(&["v2", "models", &args.pipeline, "ready"]));
    loop {
        let agents = client.list_all("/v1/agents").await?;
        for ingress in live(&agents).filter_map(|agent| agent["ingress_http"].as_str()) {
            for scheme in ["http", "https"] {
                if client.answers(&format!("{scheme}://{ingress}{ready}")).await {
                    return Ok(format!("{scheme}://{ingress}"));
                }
            }
        }
        let reasons = [refused_targets(&agents), load_failures(&agents, &args.pipeline, generation)].concat();
        let why: String = reasons.iter().map(|sentence| format!("\n  {sentence}")).collect();
        if !reasons.is_empty() && cannot_answer(&args.pipeline, &client.get("/v1/target").await?, &agents, failure) {
            return Err(anyhow!("{} cannot answer{why}", args.pipeline).into());
        }
        if start.elapsed() > args.wait {
            return Err(anyhow!("{} does not answer after {:?}{why}", args.pipeline, args.wait).into());
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Whether a task of the pipeline has no replica, and gets none, while this target is in force.
fn cannot_answer(pipeline: &str, target: &Value, agents: &Value, failure: AfterFailure) -> bool {
    has_refused_task(target, agents, pipeline) || (failure == AfterFailure::End && has_failed_task(target, pipeline))
}
