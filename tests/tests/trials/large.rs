//! Large models are uploaded, fetched and loaded beside a pipeline that serves: it loses no request, and is as fast as
//! before.
//!
//! `APPORTION_TRIAL_MODEL_MIB` sets the size of each of the four models; 1,024 makes 4 GiB. ONNX's format (protobuf)
//! allows less than 2 GiB in one file.

use apportion_tests::backend::Backend;
use apportion_tests::cluster::Cluster;
use apportion_tests::digits::{Variant, inputs, model, pipeline, profile};
use apportion_tests::load::{Ended, Ingresses, Load, Sent, summary};
use apportion_tests::onnx::{field, whole};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const AGENTS: usize = 2;
const MODELS: usize = 4;
/// How long the load goes on before the models come, and after they are ready: several periods of a steward, which may take
/// spare devices then. The latencies of both times are printed and not judged.
const QUIET: Duration = Duration::from_secs(4);
const GIB: f64 = 1024.0 * 1024.0 * 1024.0;
/// The load ends no later than this.
const LENGTH_MAX: Duration = Duration::from_secs(300);

fn model_bytes() -> usize {
    let mib = std::env::var("APPORTION_TRIAL_MODEL_MIB").ok().and_then(|n| n.parse().ok()).unwrap_or(64);
    mib * 1024 * 1024
}

/// `base` with one more weight, of `bytes` bytes that no other `number` has. (Messages of protobuf that are written one
/// after the other are read as one: ModelProto.graph.initializer gets one element more.)
fn enlarged(base: &[u8], bytes: usize, number: usize) -> Vec<u8> {
    let elements = bytes / 4;
    let weights: Vec<u8> = (0..elements).flat_map(|at| ((at % 1_000 + number) as f32).to_le_bytes()).collect();
    // TensorProto: dims, data_type FLOAT, name, raw_data.
    let tensor = [whole(1, elements), whole(2, 1), field(8, b"weight"), field(9, &weights)].concat();
    [base, &field(7, &field(5, &tensor))].concat()
}

/// Median and 99th percentile, in ms.
fn latencies<'a>(sent: impl Iterator<Item = &'a Sent>) -> (usize, f64, f64) {
    let mut all: Vec<f64> = sent.map(|s| s.latency.as_secs_f64() * 1e3).collect();
    all.sort_by(f64::total_cmp);
    let at = |part: f64| all.get((all.len() as f64 * part) as usize).copied().unwrap_or_default();
    (all.len(), at(0.5), at(0.99))
}

/// Prints the latencies of each phase: its name, and when it ended.
fn print_phases(sent: &[Sent], phases: &[(&str, Duration)]) {
    let mut from = Duration::ZERO;
    for (name, to) in phases {
        let (count, median, p99) = latencies(sent.iter().filter(|s| (from..*to).contains(&s.at)));
        eprintln!("{name} ({:.1?}): {count} requests, median {median:.1} ms, p99 {p99:.1} ms", *to - from);
        from = *to;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn large_models_are_loaded_beside_a_pipeline_that_serves() {
    let cluster = Cluster::start_with(AGENTS, 3, Backend::Onnx).await;
    let small = cluster.upload(model("read-s.onnx")).await;
    let variants: [Variant<'_>; 1] = [("small", &small, 0.8)];
    cluster.register(&pipeline("digit", &variants, &json!({})), &profile("digit", &variants)).await;
    let demand = |name: &str| json!({"name": name, "demand_qps": 100.0});
    cluster.apply(&cluster.plan(&json!({"pipelines": [demand("digit")]})).await).await;
    cluster.ready("digit").await;
    // They are made before the load begins: that takes a processor, too.
    let (base, bytes) = (model("read-s.onnx"), model_bytes());
    let models: Vec<Vec<u8>> = (0..MODELS).map(|number| enlarged(&base, bytes, number)).collect();
    let total: usize = models.iter().map(Vec::len).sum();

    let (over, ends) = tokio::sync::oneshot::channel();
    let ingresses = Ingresses::new((0..AGENTS).map(|at| cluster.ingress(at)).collect());
    let load = Load {
        pipeline: "digit".into(),
        inputs: inputs(),
        rates: vec![(Duration::ZERO, 100.0)],
        length: LENGTH_MAX,
        seed: 5,
    };
    let start = Instant::now();
    let running = tokio::spawn(async move { load.run_until(ingresses, start, ends).await });
    tokio::time::sleep(QUIET).await;
    let began = start.elapsed();
    let mut pipelines = vec![demand("digit")];
    for (number, bytes) in models.into_iter().enumerate() {
        let (name, digest) = (format!("large-{number}"), cluster.upload(bytes).await);
        let variants: [Variant<'_>; 1] = [("large", &digest, 0.8)];
        cluster.register(&pipeline(&name, &variants, &json!({})), &profile(&name, &variants)).await;
        pipelines.push(json!({"name": name, "demand_qps": 1.0}));
    }
    let uploaded = start.elapsed();
    cluster.apply(&cluster.plan(&json!({"pipelines": pipelines})).await).await;
    for number in 0..MODELS {
        cluster.ready(&format!("large-{number}")).await;
    }
    let ready = start.elapsed();
    tokio::time::sleep(QUIET).await;
    over.send(()).expect("the load runs until it is told");
    let sent = running.await.expect("the load ends");

    let end = start.elapsed();
    eprintln!("{:.2} GiB in {MODELS} models: {} requests: {}", total as f64 / GIB, sent.len(), summary(&sent));
    let phases = [("before", began), ("uploading", uploaded), ("fetching and loading", ready), ("after", end)];
    print_phases(&sent, &phases);
    let lost: Vec<&Sent> = sent.iter().filter(|s| !matches!(s.ended, Ended::Ok | Ended::Late)).collect();
    assert!(lost.is_empty(), "{} of {}: {:?}", lost.len(), sent.len(), lost[0]);
    // A steward may have more replicas than the target: it takes a spare device for a busy group.
    let (target, agents) = (cluster.get("/v1/target").await, cluster.get("/v1/agents").await);
    let ready = ready_replicas(&agents);
    let placed: Vec<u64> = array(&target["placement"]["replicas"]).filter_map(|r| r["id"].as_u64()).collect();
    assert!(placed.len() > MODELS, "each pipeline has a replica: {target:#}");
    assert!(placed.iter().all(|id| ready.contains(id)), "{placed:?} of {ready:?}");
}

fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Ids of the replicas that the agents report as ready.
fn ready_replicas(agents: &Value) -> Vec<u64> {
    let replicas = array(agents).flat_map(|agent| array(&agent["ack"]["replicas"]));
    replicas.filter(|r| r["state"] == "ready").filter_map(|r| r["replica"].as_u64()).collect()
}
