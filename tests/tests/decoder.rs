//! A real encoder and a real decoder with state, from files to answers: the decoder's queries share its steps.

use apportion_needs::{Need, need};
use apportion_profiler::{Datatype, ExecutionSettings, THREADS_DEFAULT, Tensor, find_library, peak_memory_mib};
use apportion_tests::cluster::{Backend, Cluster, HARDWARE};
use apportion_tests::onnx::{QUESTION_LEN, decoder, encoder};
use serde_json::{Value, json};

const AGENTS: usize = 2;
/// Questions at once: several times as many as there are slots.
const QUESTIONS: u32 = 60;

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

fn profile() -> String {
    let mut csv = "pipeline,task,variant,hardware,batch_size,latency_ms,p99_ms,accuracy\n".to_owned();
    for (task, batch, latency_ms, p99_ms) in [("encode", 1, 2, 3), ("encode", 4, 3, 4), ("generate", 4, 20, 60)] {
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
    cluster.register(&pipeline(&encoder, &decoder), &profile()).await;
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
