//! Two clients at one gateway: whatever one of them sends, the other loses nothing.

use crate::support::agents::Agent;
use apportion_executor::gateway::proto::ModelInferRequest;
use apportion_executor::gateway::proto::grpc_inference_service_client::GrpcInferenceServiceClient;
use apportion_executor::gateway::proto::model_infer_request::InferInputTensor;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Requests of the good client, and how long between two of them.
const REQUESTS: usize = 150;
const GAP: Duration = Duration::from_millis(10);

fn body(row: &[f32]) -> Value {
    json!({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, row.len()], "data": row}]})
}

/// Sends rows to `rows` one after the other, and gives each status and body; says how long the answers took.
async fn send(agent: &Agent, count: usize, gap: Duration, row: &[f32]) -> Vec<(u16, Value)> {
    let url = format!("http://{}/v2/models/rows/infer", agent.http);
    let (client, body) = (reqwest::Client::new(), body(row));
    let mut under_way = Vec::new();
    for _ in 0..count {
        let request = client.post(&url).json(&body).send();
        under_way.push(tokio::spawn(async move {
            let begun = Instant::now();
            let answer = request.await.expect("an answer");
            (begun.elapsed(), (answer.status().as_u16(), answer.json().await.expect("JSON")))
        }));
        tokio::time::sleep(gap).await;
    }
    let done = futures::future::join_all(under_way).await.into_iter().map(|done| done.expect("no panic"));
    let (mut took, answers): (Vec<Duration>, Vec<_>) = done.unzip();
    took.sort_unstable();
    let (median, tail) = (took[count / 2], took[(count - 1) * 99 / 100]);
    eprintln!("{row:?}: {count} requests, median {median:?}, p99 {tail:?}");
    answers
}

fn all_are(answers: &[(u16, Value)], sum: f64) {
    let wrong: Vec<_> = answers.iter().filter(|(s, a)| *s != 200 || a["outputs"][0]["data"] != json!([sum])).collect();
    assert!(wrong.is_empty(), "{} of {} are not served: {:?}", wrong.len(), answers.len(), wrong[0]);
}

/// The value of a metric of `rows`, or of all.
async fn metric(agent: &Agent, name: &str) -> f64 {
    let url = format!("http://{}/metrics", agent.http);
    let text = reqwest::get(&url).await.expect("an answer").text().await.expect("text");
    let of_name = |line: &&str| line.starts_with(name) && (!line.contains("model_name") || line.contains("\"rows\""));
    text.lines().filter(of_name).filter_map(|l| l.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_two_shapes_are_all_served() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_control, agent) = crate::support::rows::start(folder.path()).await;
    let (three, five) = tokio::join!(
        send(&agent, REQUESTS, GAP, &[1.0, 2.0, 3.0]),
        send(&agent, REQUESTS, GAP, &[1.0, 1.0, 1.0, 1.0, 1.0])
    );
    all_are(&three, 6.0);
    all_are(&five, 5.0);
    assert_eq!(metric(&agent, "apportion_batches_failed_total").await, 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_neighbour_whose_inputs_make_batches_fail_costs_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_control, agent) = crate::support::rows::start(folder.path()).await;
    // They come from one address, so that they share batches to the end.
    let bad = send(&agent, REQUESTS / 10, 10 * GAP, &[-1.0, 2.0, 3.0]);
    let (good, bad) = tokio::join!(send(&agent, REQUESTS, GAP, &[1.0, 2.0, 3.0]), bad);
    all_are(&good, 6.0);
    for (status, body) in &bad {
        // Clients of the protocol show the error alone.
        let error = body["error"].as_str().unwrap_or_default();
        assert!(*status == 500 && error.contains("task rows") && error.contains("out of range"), "{status} {body}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_no_text_are_refused_at_the_gateway() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_control, agent) = crate::support::rows::start(folder.path()).await;
    let mut client = GrpcInferenceServiceClient::connect(format!("http://{}", agent.grpc)).await.expect("connects");
    let request = |text: &[u8]| {
        let input =
            InferInputTensor { name: "x".into(), datatype: "BYTES".into(), shape: vec![1, 1], ..Default::default() };
        let raw = [&(text.len() as u32).to_le_bytes(), text].concat();
        ModelInferRequest {
            model_name: "words".into(),
            inputs: vec![input],
            raw_input_contents: vec![raw.into()],
            ..Default::default()
        }
    };
    for wrong in [&b"\xff\xfe"[..], b"a\0b"] {
        let refused = client.model_infer(request(wrong)).await.expect_err("no text");
        assert!(refused.code() == tonic::Code::InvalidArgument && refused.message().contains("UTF-8"), "{refused}");
    }
    client.model_infer(request("zwölf".as_bytes())).await.expect("a text");
}
