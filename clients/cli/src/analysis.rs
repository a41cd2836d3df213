//! How does a command leave a simulation, a frontier or a comparison to a service, and wait for it?

use crate::service::{ServerArgs, ServiceClient, converse};
use anyhow::{Context, anyhow};
use apportion_domain::{ArrivalTrace, Problem};
use apportion_support::exit::Failure;
use apportion_support::input;
use apportion_wire::{AnalysisKind, AnalysisState, parse_tree, write_trace};
use reqwest::Method;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Pause between two questions whether the result is there.
const POLL: Duration = Duration::from_millis(200);
/// Longest time without an answer of the service: it may be started again meanwhile.
const AWAY_MAX: Duration = Duration::from_secs(60);

/// How much of an analysis is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteProgress {
    /// Points, planners, or percent of a simulation.
    pub ready: u64,
    /// Of how many.
    pub total: u64,
}

/// A file as the tree that a request holds.
///
/// # Errors
/// If the file cannot be read.
pub fn read_tree(file: &str) -> Result<Value, Failure> {
    Ok(parse_tree(file, &input::read_text(file)?)?)
}

/// Uploads the traces of some pipelines; returns their identifiers by pipeline.
///
/// # Errors
/// If the service cannot be reached, or refuses a trace.
pub fn upload_traces(
    server: &ServerArgs,
    problem: &Problem,
    traces: &[Option<ArrivalTrace>],
) -> Result<BTreeMap<String, String>, Failure> {
    let client = ServiceClient::new(server)?;
    converse(upload(&client, problem, traces))
}

async fn upload(
    client: &ServiceClient,
    problem: &Problem,
    traces: &[Option<ArrivalTrace>],
) -> Result<BTreeMap<String, String>, Failure> {
    let mut ids = BTreeMap::new();
    for (pipeline, trace) in problem.pipelines.iter().zip(traces) {
        let Some(trace) = trace else { continue };
        let mut text = Vec::new();
        write_trace(trace, &mut text).context("writing a trace")?;
        let made = client.upload("/v1/traces", "text/csv", text).await?;
        let id = made["id"].as_str().context("a trace without an id")?;
        ids.insert(pipeline.name.clone(), id.to_owned());
    }
    Ok(ids)
}

/// Asks a service for an analysis, waits for it, and returns its result.
///
/// # Errors
/// If the service cannot be reached or refuses, or if the analysis failed or was cancelled.
pub fn run_on_service(
    server: &ServerArgs,
    kind: AnalysisKind,
    request: &impl Serialize,
    on_progress: &dyn Fn(RemoteProgress),
) -> Result<Value, Failure> {
    let client = ServiceClient::new(server)?;
    let request = serde_json::to_value(request).context("writing a request")?;
    converse(wait_for(&client, kind, &request, on_progress))
}

async fn wait_for(
    client: &ServiceClient,
    kind: AnalysisKind,
    request: &Value,
    on_progress: &dyn Fn(RemoteProgress),
) -> Result<Value, Failure> {
    let resource = format!("/v1/{kind}s");
    let made = client.accepted(&resource, client.send(Method::POST, &resource, &[], Some(request)).await?)?;
    let id = made["id"].as_str().context("an analysis without an id")?.to_owned();
    let path = format!("{resource}/{id}");
    eprintln!("{kind} {id}");
    let mut answered = Instant::now();
    loop {
        let mut document = match client.send(Method::GET, &path, &[], None).await {
            Ok(answer) => client.accepted(&path, answer)?,
            Err(_) if answered.elapsed() < AWAY_MAX => {
                tokio::time::sleep(POLL).await;
                continue;
            }
            Err(error) => return Err(error),
        };
        answered = Instant::now();
        let count = |key: &str| document["progress"][key].as_u64();
        if let (Some(ready), Some(total)) = (count("ready"), count("total")) {
            on_progress(RemoteProgress { ready, total });
        }
        let state = document["state"].as_str().unwrap_or_default().to_owned();
        if state == AnalysisState::Done.name() {
            return Ok(document["result"].take());
        }
        if !AnalysisState::OPEN.iter().any(|open| state == open.name()) {
            let why = document["error"].as_str().unwrap_or("it has no result");
            return Err(anyhow!("{kind} {id} is {state}: {why}").into());
        }
        tokio::time::sleep(POLL).await;
    }
}
