//! Agents run a variant slower than its profile says, and later as it says.

use crate::{chain, inputs, profile};
use apportion_tests::cluster::{Cluster, HARDWARE};
use apportion_tests::load::{Ingresses, Load, Traffic};
use serde_json::{Value, json};
use std::time::Duration;

const AGENTS: usize = 2;
const QPS: f64 = 60.0;
const SLOWNESS: f64 = 1.5;
const DRIFT: &str = "/v1/pipelines/chain/drift";

/// Starts all agents again, with batches that take this many times their profile.
async fn restart(cluster: &mut Cluster, slowness: f64) {
    for at in 0..AGENTS {
        cluster.kill_agent(at);
        cluster.start_slow_agent(at, slowness);
    }
    cluster.live(AGENTS).await;
    cluster.ready("chain").await;
}

/// The factors of the drifting latencies, by task.
fn factors(document: &Value) -> Vec<f64> {
    let figures = document["figures"].as_array().into_iter().flatten();
    figures.filter(|figure| figure["kind"] == "latency").filter_map(|figure| figure["drift"]["factor"].as_f64()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_variant_drifts_until_it_recovers() {
    let mut cluster = Cluster::start(AGENTS, 3).await;
    let replan = json!({"mode": "apply", "period_s": 3600.0, "min_qps": 100.0});
    cluster.register(&chain(&["v"], json!({"replan": replan})), &profile(&["v"])).await;
    cluster.until("/v1/target", |target| target["generation"].as_u64().filter(|generation| *generation > 0)).await;
    cluster.ready("chain").await;
    restart(&mut cluster, SLOWNESS).await;
    let ingresses = Ingresses::new((0..AGENTS).map(|at| cluster.ingress(at)).collect());
    let length = Duration::from_secs(2);
    let load = Load { pipeline: "chain".into(), inputs: inputs(), rates: vec![(Duration::ZERO, QPS)], length, seed: 1 };
    let traffic = Traffic::start(load, ingresses);
    let begun = cluster.until(DRIFT, |document| Some(factors(document)).filter(|factors| factors.len() == 2)).await;
    // A busy machine adds a little to the time of a batch.
    assert!(begun.iter().all(|factor| (1.4..1.8).contains(factor)), "{begun:?}");
    let start = format!("v on {HARDWARE} takes 1.");
    let is_for_drift = |d: &Value| d["reason"].as_str().is_some_and(|reason| reason.starts_with(&start));
    let decision = |all: &Value| all.as_array()?.iter().find(|d| is_for_drift(d)).cloned();
    let decision = cluster.until("/v1/decisions", decision).await;
    eprintln!("{}", decision["reason"]);
    let plan = cluster.plan(&json!({"pipelines": [{"name": "chain", "demand_qps": 100.0}]})).await;
    let warnings = plan["plan"]["planner"]["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str);
    assert_eq!(warnings.filter(|w| w.starts_with(&format!("pipeline chain: {start}"))).count(), 2, "{plan:#}");
    restart(&mut cluster, 1.0).await;
    cluster.until(DRIFT, |document| factors(document).is_empty().then_some(())).await;
    let over = |all: &Value| Some(all.as_array()?.iter().filter(|e| e["detail"]["stage"] == "over").count());
    cluster.until("/v1/events?kind=drift&pipeline=chain", |all| over(all).filter(|count| *count >= 2)).await;
    traffic.stop().await;
}
