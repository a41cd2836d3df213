//! A real encoder and a real decoder with state, from files to answers: the decoder's queries share its steps.

use apportion_executor::gateway::proto::grpc_inference_service_client::GrpcInferenceServiceClient;
use apportion_executor::gateway::proto::model_infer_request::InferInputTensor;
use apportion_executor::gateway::proto::{InferTensorContents, ModelInferRequest, ModelInferResponse};
use apportion_needs::{Need, need};
use apportion_profiler::{Datatype, ExecutionSettings, THREADS_DEFAULT, Tensor, find_library, peak_memory_mib};
use apportion_tests::backend::Backend;
use apportion_tests::cluster::{Cluster, HARDWARE};
use apportion_tests::onnx::{QUESTION_LEN, decoder, encoder, slow_decoder};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tonic::Status;
use tonic::transport::Channel;

const AGENTS: usize = 2;
/// Questions at once: several times as many as there are slots.
const QUESTIONS: u32 = 60;
/// Slots of each replica of the decoder.
const SLOTS: u32 = 4;
/// How long anything may take; nothing is asserted about how long it does take.
const PATIENCE: Duration = Duration::from_secs(90);

/// `encode -> generate`: an answer takes as many steps as the question's numbers sum up to.
fn pipeline(encoder: &str, decoder: &str) -> Value {
    let tensor = |name: &str, size: u8| json!([{"name": name, "datatype": "FP32", "shape": [-1, size]}]);
    let variants = |digest: &str| json!([{"name": "v", "model_digest": digest, "load_ms": 100.0}]);
    json!({
        "name": "rag", "slo_ms": 60_000.0,
        "tasks": [
            {"name": "encode", "inputs": tensor("question", QUESTION_LEN), "outputs": tensor("length", 1),
             "variants": variants(encoder)},
            {"name": "generate", "kind": "continuous", "inputs": tensor("length", 1), "outputs": tensor("answer", 1),
             "variants": variants(decoder)},
        ],
        "edges": [{"from": "encode", "to": "generate", "map": {"length": "length"}}],
    })
}

fn profile(slots: u32) -> String {
    let mut csv = "pipeline,task,variant,hardware,batch_size,latency_ms,p99_ms,accuracy\n".to_owned();
    for (task, batch, latency_ms, p99_ms) in [("encode", 1, 2, 3), ("encode", 4, 3, 4), ("generate", slots, 20, 60)] {
        csv += &format!("rag,{task},v,{HARDWARE},{batch},{latency_ms},{p99_ms},1\n");
    }
    csv
}

/// The answer to a question whose numbers sum up to `length`.
async fn ask(cluster: &Cluster, at: usize, length: u32) -> Value {
    let mut question = vec![0; usize::from(QUESTION_LEN)];
    question[at % usize::from(QUESTION_LEN)] = length;
    let input = json!({"name": "question", "datatype": "FP32", "shape": [1, QUESTION_LEN], "data": question});
    let url = format!("{}/v2/models/rag/infer", cluster.ingress(at % AGENTS));
    let answer = cluster.client().post(url).json(&json!({"inputs": [input]})).send().await.expect("an answer");
    answer.json().await.expect("JSON")
}

#[test]
fn a_decoder_is_profiled_by_whole_queries() {
    let Some(library) = need(Need::Onnx, find_library(None)) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("decoder.onnx");
    std::fs::write(&file, decoder()).expect("a file");
    let running = ExecutionSettings::on_cpu(THREADS_DEFAULT);
    let lengths: Vec<u8> = [3.0_f32, 5.0].iter().flat_map(|length| length.to_le_bytes()).collect();
    let input = Tensor { name: "length".into(), datatype: Datatype::Fp32, shape: vec![2, 1], data: lengths.into() };
    let used = peak_memory_mib(&library, running, &file, &[input]).expect("two queries, each of its own length");
    assert!(used.is_some_and(|mib| mib >= 0.0), "{used:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decoder_answers_each_query_after_its_own_steps() {
    if need(Need::Onnx, find_library(None)).is_none() {
        return;
    }
    let cluster = Cluster::start_with(AGENTS, 2, Backend::Onnx).await;
    let (encoder, decoder) = (cluster.upload(encoder()).await, cluster.upload(decoder()).await);
    cluster.register(&pipeline(&encoder, &decoder), &profile(SLOTS)).await;
    let plan = cluster.plan(&json!({"pipelines": [{"name": "rag", "demand_qps": 50.0}]})).await;
    cluster.apply(&plan).await;
    cluster.ready("rag").await;
    // Long and short answers in turns: a short one does not wait for the long one before it.
    let lengths: Vec<u32> = (0..QUESTIONS).map(|n| if n % 2 == 0 { 500 + n } else { 1 + n }).collect();
    let cluster = std::sync::Arc::new(cluster);
    let asked: Vec<_> = lengths
        .iter()
        .enumerate()
        .map(|(at, length)| {
            let (cluster, length) = (cluster.clone(), *length);
            tokio::spawn(async move { ask(&cluster, at, length).await })
        })
        .collect();
    for (length, answer) in lengths.into_iter().zip(asked) {
        let answer = answer.await.expect("one answer");
        assert_eq!(answer["outputs"][0]["name"], "answer", "{answer}");
        assert_eq!(answer["outputs"][0]["data"], json!([f64::from(length)]), "{answer}");
    }
}

/// The answer to a question of this length, by gRPC.
async fn infer(mut client: GrpcInferenceServiceClient<Channel>, length: f32) -> Result<ModelInferResponse, Status> {
    let fp32_contents = [vec![length], vec![0.0; usize::from(QUESTION_LEN) - 1]].concat();
    let input = InferInputTensor {
        name: "question".into(),
        datatype: "FP32".into(),
        shape: vec![1, i64::from(QUESTION_LEN)],
        contents: Some(InferTensorContents { fp32_contents, ..Default::default() }),
        ..Default::default()
    };
    let request = ModelInferRequest { model_name: "rag".into(), inputs: vec![input], ..Default::default() };
    client.model_infer(request).await.map(tonic::Response::into_inner)
}

/// A number of the agent about its decoder; none if it is not there. `with` is a part of the labels.
async fn sample(cluster: &Cluster, name: &str, with: &str) -> Option<u64> {
    let page = cluster.client().get(format!("{}/metrics", cluster.ingress(0))).send().await.ok()?.text().await.ok()?;
    let is_it = |line: &&str| {
        line.starts_with(&format!("{name}{{")) && line.contains("task_name=\"generate\"") && line.contains(with)
    };
    page.lines().find(is_it)?.rsplit(' ').next()?.parse().ok()
}

/// Waits until a number of the agent about its decoder is this one.
async fn until(cluster: &Cluster, name: &str, with: &str, expected: u64) {
    let begun = Instant::now();
    loop {
        let found = sample(cluster, name, with).await;
        if found == Some(expected) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{name} is {found:?}: expected {expected}\n{}", cluster.log("agent-0"));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_call_leaves_its_slot_to_the_next_query() {
    /// Numbers of steps are whole, so an answer of this length never ends: the query would fail after 4,096 steps.
    const ENDLESS: f32 = 0.5;
    if need(Need::Onnx, find_library(None)).is_none() {
        return;
    }
    let cluster = Cluster::start_with(1, 2, Backend::Onnx).await;
    let (encoder, decoder) = (cluster.upload(encoder()).await, cluster.upload(slow_decoder()).await);
    cluster.register(&pipeline(&encoder, &decoder), &profile(1)).await;
    let plan = cluster.plan(&json!({"pipelines": [{"name": "rag", "demand_qps": 1.0}]})).await;
    cluster.apply(&plan).await;
    cluster.ready("rag").await;
    let address = cluster.until("/v1/agents", |list| Some(list[0]["ingress_grpc"].as_str()?.to_owned())).await;
    let client = GrpcInferenceServiceClient::connect(format!("http://{address}")).await.expect("connects");
    // The only slot is taken, and the next query waits for it.
    let long = tokio::spawn(infer(client.clone(), ENDLESS));
    until(&cluster, "apportion_batch_queries_total", "", 1).await;
    let short = tokio::spawn(infer(client, 3.0));
    until(&cluster, "apportion_replica_queries", "", 2).await;
    long.abort();
    let answer = short.await.expect("no panic").expect("an answer");
    let output = answer.outputs.iter().find(|output| output.name == "answer").and_then(|o| o.contents.clone());
    assert_eq!(output.expect("typed contents").fp32_contents, [3.0]);
    // The long query did not come to its last step: it would have failed there.
    until(&cluster, "apportion_queries_dropped_total", "reason=\"cancelled\"", 1).await;
    until(&cluster, "apportion_batch_queries_total", "", 2).await;
    assert_eq!(sample(&cluster, "apportion_batches_failed_total", "").await, Some(0));
}
