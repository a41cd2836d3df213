//! How does `apportion status` say what runs, and whether it keeps its promise?

use crate::live_agents::{failed_replicas, groups_of, live, refused_targets};
use crate::service::{ServerArgs, ServiceClient, converse};
use apportion_support::exit::{CommandResult, Exit, Failure};
use apportion_support::output::{OutputFormat, TextTable, number, percent};
use apportion_wire::ReplicaState;
use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Seconds that are judged.
const SECONDS: u32 = 60;
/// Share of requests in percent that must be in time, if the pipeline does not say it.
const PERCENTILE: f64 = 99.0;

/// Arguments of `apportion status`.
#[derive(Args, Debug)]
pub struct StatusArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// How the result is printed.
    #[arg(short = 'o', long, value_enum, default_value_t)]
    format: OutputFormat,
}

/// A pipeline of the target in force.
#[derive(Debug, Serialize)]
struct PipelineStatus {
    /// Its name.
    pipeline: String,
    /// Queries per second that its plan is for.
    planned_qps: f64,
    /// Queries per second that arrived.
    offered_qps: f64,
    /// Share of the requests that were answered in time; null without requests.
    in_time: Option<f64>,
    /// Share that must be.
    promised: f64,
    /// Its replicas.
    #[serde(flatten)]
    count: ReplicaCount,
    /// In one word: `kept`, `broken`, `loading` or `idle`.
    promise: &'static str,
    /// `network_ms` of its file; null if it has none, or 0.
    hop_given_ms: Option<f64>,
    /// The time of a hop, as agents measured it; null without a measurement.
    hop_measured_ms: Option<f64>,
    /// The reasons why replicas are not ready. Sentences about its times: those that are 0, and those that are far from
    /// their measurement. Also about each figure of its profile that differs from the measured one.
    warnings: Vec<String>,
}

/// The replicas of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct ReplicaCount {
    /// Those that are ready.
    ready: usize,
    /// Those of the target.
    replicas: usize,
}

/// Runs the command.
pub fn run(args: &StatusArgs) -> CommandResult {
    let client = ServiceClient::new(&args.server)?;
    let (target, agents, pipelines) = converse(read(&client))?;
    let count = live(&agents).count();
    let whole = json!({"generation": target["generation"], "live_agents": count, "pipelines": pipelines});
    args.format.print(&whole, || table(&target, count, &pipelines))?;
    let is_right = pipelines.iter().all(|p| ["kept", "idle"].contains(&p.promise));
    Ok(if is_right { Exit::Done } else { Exit::Findings })
}

async fn read(client: &ServiceClient) -> Result<(Value, Value, Vec<PipelineStatus>), Failure> {
    let (target, agents) = (client.get("/v1/target").await?, client.list_all("/v1/agents").await?);
    let ready: BTreeSet<u64> = live(&agents)
        .flat_map(|agent| agent["ack"]["replicas"].as_array().into_iter().flatten())
        .filter(|replica| replica["state"] == ReplicaState::Ready.name())
        .filter_map(|replica| replica["replica"].as_u64())
        .collect();
    let mut found = Vec::new();
    for id in target["plans"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        let plan = client.get(&format!("/v1/plans/{id}")).await?;
        for pipeline in plan["plan"]["pipelines"].as_array().into_iter().flatten() {
            let name = pipeline["name"].as_str().unwrap_or_default();
            let spec = client.get(&client.path(&["v1", "pipelines", name])).await?;
            let arrivals =
                client.get(&format!("{}?seconds={SECONDS}", client.path(&["v1", "pipelines", name, "arrivals"]))).await?;
            // A service of an earlier release compares no times and no figures of profiles.
            let times = client.get(&client.path(&["v1", "pipelines", name, "times"])).await.unwrap_or_default();
            let drift = client.get(&client.path(&["v1", "pipelines", name, "drift"])).await.unwrap_or_default();
            let replicas = replicas_of(&target["placement"], name);
            let count = ReplicaCount { ready: replicas.intersection(&ready).count(), replicas: replicas.len() };
            let judged = judged(name, pipeline["demand_qps"].as_f64().unwrap_or(0.0), &spec, &arrivals, count);
            let faults = faults(&agents, &replicas, count);
            found.push(with_faults(with_drift(with_times(judged, &times), &drift), faults));
        }
    }
    Ok((target, agents, found))
}

/// The numbers of a pipeline's replicas.
fn replicas_of(placement: &Value, pipeline: &str) -> BTreeSet<u64> {
    let groups: BTreeSet<u64> = groups_of(placement, pipeline).filter_map(|group| group["id"].as_u64()).collect();
    let replicas = placement["replicas"].as_array().into_iter().flatten();
    let mine = replicas.filter(|r| r["group"].as_u64().is_some_and(|group| groups.contains(&group)));
    mine.filter_map(|r| r["id"].as_u64()).collect()
}

/// The promise beside what happened.
fn judged(name: &str, planned_qps: f64, spec: &Value, arrivals: &Value, count: ReplicaCount) -> PipelineStatus {
    let sum =
        |key: &str| arrivals.as_array().into_iter().flatten().filter_map(|s| s[key].as_f64()).fold(0.0, |sum, n| sum + n);
    let over: f64 = ["ok", "late", "dropped", "failed"].into_iter().map(sum).sum();
    let in_time = (over > 0.0).then(|| sum("ok") / over);
    let promised = spec["percentile"].as_f64().unwrap_or(PERCENTILE) / 100.0;
    let promise = match in_time {
        _ if count.ready < count.replicas => "loading",
        None => "idle",
        Some(share) if share >= promised => "kept",
        Some(_) => "broken",
    };
    let offered_qps = sum("offered") / f64::from(SECONDS);
    PipelineStatus {
        pipeline: name.to_owned(),
        planned_qps,
        offered_qps,
        in_time,
        promised,
        count,
        promise,
        hop_given_ms: None,
        hop_measured_ms: None,
        warnings: Vec::new(),
    }
}

/// The status with the times of the file beside the measured ones.
fn with_times(status: PipelineStatus, times: &Value) -> PipelineStatus {
    PipelineStatus {
        hop_given_ms: times["network_ms"]["given"].as_f64(),
        hop_measured_ms: times["network_ms"]["measured"]["median_ms"].as_f64(),
        warnings: warnings_of(times).collect(),
        ..status
    }
}

/// The status with the drifts of the profile.
fn with_drift(mut status: PipelineStatus, drift: &Value) -> PipelineStatus {
    status.warnings.extend(warnings_of(drift));
    status
}

/// Why replicas of a pipeline are not ready, as the agents say it.
fn faults(agents: &Value, replicas: &BTreeSet<u64>, count: ReplicaCount) -> Vec<String> {
    if count.ready == count.replicas {
        return Vec::new();
    }
    [refused_targets(agents), failed_replicas(agents, replicas)].concat()
}

/// The status with the faults of its replicas first.
fn with_faults(mut status: PipelineStatus, faults: Vec<String>) -> PipelineStatus {
    status.warnings.splice(0..0, faults);
    status
}

/// The sentences of a document.
fn warnings_of(document: &Value) -> impl Iterator<Item = String> + '_ {
    document["warnings"].as_array().into_iter().flatten().filter_map(|w| w.as_str().map(str::to_owned))
}

fn table(target: &Value, agents: usize, pipelines: &[PipelineStatus]) -> String {
    let mut table = TextTable::new(&[
        "pipeline",
        "promise",
        "in time",
        "promised",
        "offered q/s",
        "planned q/s",
        "ready",
        "replicas",
        "hop ms",
        "measured",
    ]);
    let known = |ms: Option<f64>| ms.map_or_else(|| "-".to_owned(), number);
    for p in pipelines {
        table.row(vec![
            p.pipeline.clone(),
            p.promise.to_owned(),
            p.in_time.map_or_else(|| "-".to_owned(), percent),
            percent(p.promised),
            number(p.offered_qps),
            number(p.planned_qps),
            p.count.ready.to_string(),
            p.count.replicas.to_string(),
            known(p.hop_given_ms),
            known(p.hop_measured_ms),
        ]);
    }
    let warnings: String =
        pipelines.iter().flat_map(|p| &p.warnings).map(|warning| format!("\nwarning: {warning}")).collect();
    let head = format!("target {}, {agents} live agents, the last {SECONDS} s\n\n", target["generation"]);
    if pipelines.is_empty() {
        format!("{head}nothing is deployed\n")
    } else {
        format!("{head}{}{warnings}", table.text(""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_is_kept_broken_or_not_asked_for() {
        let seconds = |ok: u32, late: u32| json!([{"second": 1, "offered": ok + late, "ok": ok, "late": late, "dropped": 0, "failed": 0}]);
        let promise = |spec: &Value, arrivals: &Value, ready| {
            judged("p", 5.0, spec, arrivals, ReplicaCount { ready, replicas: 2 }).promise
        };
        let (default, half) = (json!({}), json!({"percentile": 50}));
        assert_eq!(promise(&default, &seconds(99, 1), 2), "kept");
        assert_eq!(promise(&default, &seconds(98, 2), 2), "broken");
        assert_eq!(promise(&half, &seconds(98, 2), 2), "kept");
        assert_eq!(promise(&default, &json!([]), 2), "idle");
        assert_eq!(promise(&default, &seconds(99, 1), 1), "loading");
        let none = judged("p", 5.0, &default, &json!([]), ReplicaCount { ready: 1, replicas: 1 });
        assert_eq!(format!("{}", none.offered_qps), "0", "and not -0");
        assert_eq!(judged("p", 5.0, &default, &seconds(110, 10), ReplicaCount { ready: 1, replicas: 1 }).offered_qps, 2.0);
    }

    #[test]
    fn times_stand_beside_their_measurements() {
        let status = judged("p", 5.0, &json!({}), &json!([]), ReplicaCount { ready: 1, replicas: 1 });
        let times = json!({
            "network_ms": {"given": 5.0, "measured": {"median_ms": 0.4, "count": 6}, "used": 5.0},
            "load_ms": [], "warnings": ["pipeline p: network_ms is 5 ms in the file"],
        });
        let text = table(&json!({"generation": 1}), 2, &[with_times(status, &times)]);
        assert!(text.contains("hop ms  measured") && text.contains("0.4000"), "{text}");
        assert!(text.ends_with("warning: pipeline p: network_ms is 5 ms in the file"), "{text}");
        let status = judged("p", 5.0, &json!({}), &json!([]), ReplicaCount { ready: 1, replicas: 1 });
        assert_eq!(with_times(status, &Value::Null).hop_measured_ms, None, "an earlier release says nothing");
    }

    #[test]
    fn drifts_of_the_profile_are_warnings() {
        let status = judged("p", 5.0, &json!({}), &json!([]), ReplicaCount { ready: 1, replicas: 1 });
        let status = with_times(status, &json!({"warnings": ["one"]}));
        let status = with_drift(status, &json!({"figures": [], "warnings": ["two"]}));
        assert_eq!(status.warnings, ["one", "two"]);
        assert_eq!(with_drift(status, &Value::Null).warnings.len(), 2, "an earlier release says nothing");
    }

    #[test]
    fn a_pipeline_that_is_not_ready_says_why() {
        let failed = json!([{"replica": 7, "state": "failed", "error": "there is no such file"}]);
        let agents = json!([{"name": "a", "state": "live", "ack": {"generation": 1, "error": "", "replicas": failed}}]);
        let of = |ready| {
            let count = ReplicaCount { ready, replicas: 1 };
            let faults = faults(&agents, &[7].into(), count);
            with_faults(judged("p", 5.0, &json!({}), &json!([]), count), faults)
        };
        let text = table(&json!({"generation": 1}), 1, &[of(0)]);
        assert!(text.ends_with("warning: replica 7 of agent a has failed: there is no such file"), "{text}");
        assert_eq!(of(1).warnings, [""; 0]);
    }

    #[test]
    fn replicas_are_found_by_their_groups() {
        let placement = json!({"groups": [{"id": 1, "pipeline": "a"}, {"id": 2, "pipeline": "b"}],
            "replicas": [{"id": 7, "group": 1}, {"id": 8, "group": 2}, {"id": 9, "group": 2}]});
        assert_eq!(replicas_of(&placement, "b"), [8, 9].into());
    }
}
