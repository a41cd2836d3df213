//! An agent cannot load a variant, with real variants: another device loads it, or the next plan omits it.
//!
//! The other replicas serve until then, so no request is lost. The API gives the reason.

use apportion_tests::backend::Backend;
use apportion_tests::cluster::Cluster;
use apportion_tests::digits::{Variant, inputs, model, pipeline, profile};
use apportion_tests::load::{Ended, Ingresses, Load, Traffic};
use serde_json::{Value, json};
use std::time::Duration;

const AGENTS: usize = 3;

/// Requests to all agents in turns, until it is stopped.
fn traffic(cluster: &Cluster) -> Traffic {
    let rates = vec![(Duration::ZERO, 20.0)];
    let load = Load { pipeline: "digit".into(), inputs: inputs(), rates, length: Duration::from_secs(1), seed: 1 };
    Traffic::start(load, Ingresses::new((0..AGENTS).map(|at| cluster.ingress(at)).collect()))
}

/// Stops it: every request was answered.
async fn stop(traffic: Traffic) {
    for (number, s) in traffic.stop().await.iter().enumerate() {
        assert!(matches!(s.ended, Ended::Ok | Ended::Late), "request {number}: {s:?}");
    }
}

/// What the agents say of replicas that they could not load.
fn failures(agents: &Value) -> Vec<String> {
    let replicas = |a: &Value| a["ack"]["replicas"].as_array().cloned().unwrap_or_default();
    let all = agents.as_array().into_iter().flatten().flat_map(replicas);
    all.filter(|r| r["state"] == "failed").filter_map(|r| r["error"].as_str().map(str::to_owned)).collect()
}

/// Variant and agent of each replica of the target, if there is one later than `generation`.
fn placed(target: &Value, generation: u64) -> Option<Vec<(String, u64)>> {
    let of = |r: &Value| {
        let groups = target["placement"]["groups"].as_array()?;
        let group = groups.iter().find(|g| g["id"] == r["group"])?;
        Some((group["variant"].as_str()?.to_owned(), r["agent"].as_u64()?))
    };
    let replicas = target["placement"]["replicas"].as_array()?.iter().map(of).collect::<Option<Vec<_>>>()?;
    (target["generation"].as_u64()? > generation).then_some(replicas)
}

async fn generation(cluster: &Cluster) -> u64 {
    cluster.get("/v1/target").await["generation"].as_u64().expect("a generation")
}

/// Waits until all agents have done what the target says.
async fn settled(cluster: &Cluster) {
    let generation = generation(cluster).await;
    let is_done = |a: &Value| a["ack"]["applied"] == true && a["ack"]["generation"].as_u64() >= Some(generation);
    cluster.until("/v1/agents", |all| all.as_array()?.iter().all(is_done).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_agent_loads_a_variant_that_one_cannot() {
    let cluster = Cluster::start_with(AGENTS, 1, Backend::Onnx).await;
    let (small, medium) = (cluster.upload(model("read-s.onnx")).await, cluster.upload(model("read-m.onnx")).await);
    let before: [Variant<'_>; 1] = [("small", &small, 0.8)];
    cluster.register(&pipeline("digit", &before, &json!({})), &profile("digit", &before)).await;
    let plan = json!({"pipelines": [{"name": "digit", "demand_qps": 20.0}]});
    cluster.apply(&cluster.plan(&plan).await).await;
    cluster.ready("digit").await;
    let first = cluster.until("/v1/target", |t| placed(t, 0)).await;
    let [(_, holder)] = first[..] else { panic!("one replica: {first:?}") };
    // Agents are numbered as they have registered. Where the file should go is a folder, on all but the one that serves.
    let numbers = cluster.get("/v1/agents").await;
    for a in numbers.as_array().expect("agents").iter().filter(|a| a["number"].as_u64() != Some(holder)) {
        let at = (0..AGENTS).find(|at| cluster.state_dir(*at).ends_with(a["name"].as_str().expect("a name")));
        let folder = cluster.state_dir(at.expect("it is ours")).join(format!("{medium}.onnx"));
        std::fs::create_dir(folder).expect("a folder");
    }
    let traffic = traffic(&cluster);
    let after: [Variant<'_>; 1] = [("medium", &medium, 0.9)];
    cluster.register(&pipeline("digit", &after, &json!({})), &profile("digit", &after)).await;
    cluster.apply(&cluster.plan(&plan).await).await;
    let applied = generation(&cluster).await;
    let why = cluster.until("/v1/agents", |all| failures(all).pop()).await;
    assert!(why.contains(&format!("{medium}.onnx")), "{why}");
    let is_there = |replicas: &Vec<(String, u64)>| *replicas == [("medium".to_owned(), holder)];
    cluster.until("/v1/target", |t| placed(t, applied).filter(is_there)).await;
    settled(&cluster).await;
    stop(traffic).await;
    let reasons = cluster.get("/v1/target/history").await;
    let is_repair = |t: &Value| t["reason"].as_str().is_some_and(|r| r.starts_with("replicas have failed"));
    assert!(reasons.as_array().is_some_and(|all| all.iter().any(is_repair)), "{reasons:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_plan_leaves_out_a_broken_variant() {
    let cluster = Cluster::start_with(AGENTS, 1, Backend::Onnx).await;
    let (small, broken) = (cluster.upload(model("read-s.onnx")).await, cluster.upload(b"no variant".to_vec()).await);
    let both: [Variant<'_>; 2] = [("small", &small, 0.8), ("broken", &broken, 0.9)];
    let replan = json!({"replan": {"mode": "apply", "period_s": 2.0, "min_qps": 10.0}});
    cluster.register(&pipeline("digit", &both[..1], &replan), &profile("digit", &both[..1])).await;
    cluster.until("/v1/target", |t| placed(t, 0)).await;
    cluster.ready("digit").await;
    let traffic = traffic(&cluster);
    cluster.register(&pipeline("digit", &both, &replan), &profile("digit", &both)).await;
    // The more accurate variant is planned with, and fails wherever it is tried.
    let why = cluster.until("/v1/agents", |all| failures(all).pop()).await;
    assert!(why.contains(&broken), "{why}");
    let is_told = |d: &Value| d["reason"].as_str().is_some_and(|r| r.contains("cannot be loaded: digit/read/broken"));
    cluster.until("/v1/decisions", |all| all.as_array()?.iter().any(is_told).then_some(())).await;
    let is_without = |replicas: &Vec<(String, u64)>| !replicas.is_empty() && replicas.iter().all(|r| r.0 == "small");
    cluster.until("/v1/target", |t| placed(t, 0).filter(is_without)).await;
    settled(&cluster).await;
    stop(traffic).await;
}
