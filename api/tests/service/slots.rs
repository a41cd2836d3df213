//! Continuous tasks are refused on the hardware of agents whose variants run on another server.

use crate::support::agent::{Agent, attach, register};
use crate::support::{Service, profiles, service, spec};
use apportion_protocol::v1;
use serde_json::{Value, json};

/// The pipeline with slots in its second task.
fn in_slots() -> Value {
    let mut spec = spec();
    spec["tasks"][1]["kind"] = json!("continuous");
    spec
}

fn of_backend(s: &Service, name: &str, hardware: &str, backend: &str) -> v1::Register {
    v1::Register { hardware: hardware.into(), backend: backend.into(), ..register(s, name) }
}

/// An agent that has registered and reports.
async fn joined(s: &Service, name: &str, hardware: &str, backend: &str) -> Agent {
    let mut agent = attach(s, of_backend(s, name, hardware, backend)).await;
    agent.welcome().await;
    agent.report();
    agent
}

/// Asserts that a document is refused at this place, with these words.
fn assert_refused(answer: &(u16, Value), pointer: &str, words: &[&str]) {
    let (status, refusal) = answer;
    assert_eq!((*status, &refusal["errors"][0]["pointer"]), (422, &json!(pointer)), "{refusal:#}");
    let detail = refusal["detail"].as_str().unwrap_or_default();
    assert!(words.iter().all(|word| detail.contains(word)), "{detail}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_continuous_task_is_refused_before_another_server() {
    let s = service().await;
    let _far = joined(&s, "b", "demo", "remote").await;
    let refused = s.put("/v1/pipelines/digits", &in_slots()).await;
    assert_refused(&refused, "/tasks/1/kind", &["\"continuous\"", "agent b of hardware demo", "--backend onnx"]);
    assert_eq!(s.get("/v1/pipelines/digits").await.0, 404, "nothing is stored");
    assert_eq!(s.get("/v1/agents").await.1[0]["backend"], "remote");
    // An agent with slots is there: the task may run on it, and on no other type.
    let _near = joined(&s, "a", "other", "onnx").await;
    assert_eq!(s.put("/v1/pipelines/digits", &in_slots()).await.0, 201);
    let refused = s.put("/v1/pipelines/digits/profiles", &profiles()).await;
    assert_refused(&refused, "/rows/8/hardware", &["\"demo\"", "task \"read\"", "agent b"]);
    assert_eq!(s.get("/v1/pipelines/digits/profiles").await.0, 404, "nothing is stored");
    let mut elsewhere = profiles();
    for row in elsewhere["rows"].as_array_mut().expect("rows").iter_mut().filter(|row| row["task"] == "read") {
        row["hardware"] = json!("other");
    }
    assert_eq!(s.put("/v1/pipelines/digits/profiles", &elsewhere).await.0, 200);
    // In batches the task may run before another server.
    assert_eq!(s.put("/v1/pipelines/digits", &spec()).await.0, 200);
    assert_eq!(s.put("/v1/pipelines/digits/profiles", &profiles()).await.0, 200);
    let refused = s.put("/v1/pipelines/digits", &in_slots()).await;
    assert_refused(&refused, "/tasks/1/kind", &["agent b of hardware demo"]);
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_pipeline_keeps_an_agent_out() {
    let s = service().await;
    assert_eq!(s.put("/v1/pipelines/digits", &in_slots()).await.0, 201);
    assert_eq!(s.put("/v1/pipelines/digits/profiles", &profiles()).await.0, 200);
    let _far = joined(&s, "b", "demo", "remote").await;
    // The same pipeline again is refused, and keeps its place.
    let refused = s.put("/v1/pipelines/digits", &in_slots()).await;
    assert_refused(&refused, "/tasks/1/kind", &["agent b of hardware demo"]);
    assert_eq!(s.get("/v1/pipelines/digits").await.0, 200);
    // An agent of an older release does not say its backend.
    let _old = joined(&s, "e", "demo", "").await;
    s.running.stop().await;
}
