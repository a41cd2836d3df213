//! PARD's retrieval pipeline (section 7) on four real models: each answer is that of a plain calculation.
//!
//! `encode -> retrieve -> rerank -> generate`. The re-ranker joins what the retriever found with the encoder's vector. The
//! decoder has state, and its queries share single steps. `trials/rag.rs` has the times of large models instead.

use apportion_needs::{Need, need};
use apportion_profiler::find_library;
use apportion_tests::backend::Backend;
use apportion_tests::cluster::{Cluster, HARDWARE};
use apportion_tests::rag::{DOCUMENTS, ENCODING, LENGTHS, RETRIEVED, SIZE, encoder, generator, reranker, retriever};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

const AGENTS: usize = 2;
const DEMAND_QPS: f64 = 50.0;
/// Questions that are tried, and how many of them have one answer at least: the others have two documents at one place.
const QUESTIONS: (u32, usize) = (64, 50);
/// How far attainment may be from the plan's estimate.
const MOST: f64 = 0.04;

/// The answer to a question, and whether the re-ranker has chosen another document than the retriever's first.
#[derive(Clone, Copy, Debug)]
struct Expected {
    document: usize,
    is_reranked: bool,
}

/// The n-th question.
fn question(n: u32) -> [f32; SIZE] {
    let digit = |by: u32, base: u32| (n / by % base) as f32;
    [digit(1, 4) - 1.0, digit(4, 4) - 1.0, digit(16, 4) - 1.0, (n * 7 % 5) as f32 - 2.0]
}

/// Answers a question without the models; none if two documents are at one place in an order.
fn oracle(question: [f32; SIZE]) -> Option<Expected> {
    let vector: [f32; SIZE] = std::array::from_fn(|to| (0..SIZE).map(|from| question[from] * ENCODING[from][to]).sum());
    let product = |document: usize| (0..SIZE).map(|at| vector[at] * DOCUMENTS[document][at]).sum::<f32>();
    let distance = |document: usize| (0..SIZE).map(|at| (vector[at] - DOCUMENTS[document][at]).powi(2)).sum::<f32>();
    let mut all: Vec<usize> = (0..DOCUMENTS.len()).collect();
    all.sort_by(|a, b| product(*b).total_cmp(&product(*a)));
    if product(all[RETRIEVED - 1]).total_cmp(&product(all[RETRIEVED])).is_eq() {
        return None;
    }
    let mut retrieved = all[..RETRIEVED].to_vec();
    retrieved.sort_by(|a, b| distance(*a).total_cmp(&distance(*b)));
    let is_clear = distance(retrieved[0]) < distance(retrieved[1]);
    is_clear.then(|| Expected { document: retrieved[0], is_reranked: retrieved[0] != all[0] })
}

/// The pipeline of these model files.
fn pipeline([encoder, retriever, reranker, generator]: [&str; 4]) -> Value {
    let floats = |name: &str, size: usize| json!({"name": name, "datatype": "FP32", "shape": [-1, size]});
    let documents = json!({"name": "documents", "datatype": "INT64", "shape": [-1, RETRIEVED]});
    let vector = floats("vector", SIZE);
    let task = |name: &str, kind: &str, inputs: Value, output: &Value, digest: &str| {
        json!({
            "name": name, "kind": kind, "inputs": inputs, "outputs": [output],
            "variants": [{"name": "v", "model_digest": digest, "load_ms": 100.0}],
        })
    };
    json!({
        "name": "rag", "slo_ms": 60_000.0, "network_ms": 0.5, "serving": {"batching": "forming", "dropping": "pard"},
        "tasks": [
            task("encode", "batch", json!([floats("question", SIZE)]), &vector, encoder),
            task("retrieve", "batch", json!([vector]), &documents, retriever),
            task("rerank", "batch", json!([documents, vector]), &floats("length", 1), reranker),
            task("generate", "continuous", json!([floats("length", 1)]), &floats("answer", 1), generator),
        ],
        "edges": [
            {"from": "encode", "to": "retrieve", "map": {"vector": "vector"}},
            {"from": "retrieve", "to": "rerank", "map": {"documents": "documents"}, "primary": true},
            {"from": "encode", "to": "rerank", "map": {"vector": "vector"}, "primary": false},
            {"from": "rerank", "to": "generate", "map": {"length": "length"}},
        ],
    })
}

fn profile() -> String {
    let mut csv = "pipeline,task,variant,hardware,batch_size,latency_ms,p99_ms,accuracy\n".to_owned();
    for task in ["encode", "retrieve", "rerank"] {
        csv += &format!("rag,{task},v,{HARDWARE},1,2,3,1\nrag,{task},v,{HARDWARE},4,3,4,1\n");
    }
    csv + &format!("rag,generate,v,{HARDWARE},4,20,60,1\n")
}

/// What the cluster answers to a question.
async fn ask(cluster: &Cluster, at: usize, question: [f32; SIZE]) -> Value {
    let input = json!({"name": "question", "datatype": "FP32", "shape": [1, SIZE], "data": question});
    let url = format!("{}/v2/models/rag/infer", cluster.ingress(at % AGENTS));
    let answer = cluster.client().post(url).json(&json!({"inputs": [input]})).send().await.expect("an answer");
    answer.json().await.expect("JSON")
}

#[test]
fn the_questions_need_every_document_and_the_reranker() {
    let expected: Vec<Expected> = (0..QUESTIONS.0).filter_map(|n| oracle(question(n))).collect();
    assert!(expected.len() >= QUESTIONS.1, "{} questions have one answer", expected.len());
    let documents: BTreeSet<usize> = expected.iter().map(|expected| expected.document).collect();
    assert_eq!(documents.len(), DOCUMENTS.len(), "{documents:?}");
    assert!(expected.iter().filter(|expected| expected.is_reranked).count() > 10, "the re-ranker changes the first place");
}

#[tokio::test(flavor = "multi_thread")]
async fn four_models_answer_as_the_oracle_does() {
    if need(Need::Onnx, find_library(None)).is_none() {
        return;
    }
    let cluster = Cluster::start_with(AGENTS, 2, Backend::Onnx).await;
    let mut digests = Vec::new();
    for model in [encoder(), retriever(), reranker(), generator()] {
        digests.push(cluster.upload(model).await);
    }
    let digests: [&str; 4] = std::array::from_fn(|at| digests[at].as_str());
    cluster.register(&pipeline(digests), &profile()).await;
    let plan = cluster.plan(&json!({"pipelines": [{"name": "rag", "demand_qps": DEMAND_QPS}]})).await;
    cluster.apply(&plan).await;
    cluster.ready("rag").await;
    let cluster = Arc::new(cluster);
    let asked: Vec<_> = (0..QUESTIONS.0)
        .filter_map(|n| Some((question(n), oracle(question(n))?)))
        .enumerate()
        .map(|(at, (question, expected))| {
            let cluster = cluster.clone();
            (question, expected, tokio::spawn(async move { ask(&cluster, at, question).await }))
        })
        .collect();
    let (count, mut in_time) = (asked.len() as f64, 0.0);
    for (question, expected, answer) in asked {
        let answer = answer.await.expect("one answer");
        let found = (&answer["outputs"][0]["name"], &answer["outputs"][0]["data"]);
        let steps = json!([f64::from(LENGTHS[expected.document])]);
        assert_eq!(found, (&json!("answer"), &steps), "{question:?}: {expected:?}: {answer}");
        in_time += f64::from(u8::from(answer["parameters"]["outcome"] == "ok"));
    }
    let estimated = plan["plan"]["estimate"]["attainment"].as_f64().expect("an estimate");
    let attained = in_time / count;
    assert!((attained - estimated).abs() <= MOST, "{attained} were in time: expected about {estimated}");
}
