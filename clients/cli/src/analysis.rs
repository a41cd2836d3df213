//! How does a command leave a simulation, a frontier or a comparison to a service, and wait for it?

use crate::remote_job::RemoteJobKind;
use crate::service::{ServerArgs, ServiceClient, converse};
use anyhow::{Context, anyhow};
use apportion_domain::{ArrivalTrace, Problem};
use apportion_support::exit::Failure;
use apportion_support::input;
use apportion_wire::{AnalysisKind, AnalysisState, parse_tree, write_trace};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;

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
    let (name, list, open) = (kind.to_string(), format!("{kind}s"), AnalysisState::OPEN.map(AnalysisState::name));
    let job = RemoteJobKind { name: &name, list: &list, open: &open };
    let on_document = |document: &Value| {
        let count = |key: &str| document["progress"][key].as_u64();
        if let (Some(ready), Some(total)) = (count("ready"), count("total")) {
            on_progress(RemoteProgress { ready, total });
        }
    };
    let mut document = converse(job.run(&client, &request, &on_document))?;
    if document["state"] == AnalysisState::Done.name() {
        return Ok(document["result"].take());
    }
    let text = |key: &str, otherwise: &str| document[key].as_str().unwrap_or(otherwise).to_owned();
    let (id, state, why) = (text("id", "-"), text("state", "-"), text("error", "it has no result"));
    Err(anyhow!("{kind} {id} is {state}: {why}").into())
}
