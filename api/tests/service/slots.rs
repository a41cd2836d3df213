//! Continuous tasks, and agents whose variants run on another server: the one that comes last is refused.

use crate::support::agent::{Agent, attach, register, try_attach};
use crate::support::{Service, profiles, service, spec};
use apportion_protocol::v1::{self, agent_message, control_message, refused::Reason};
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
async fn an_agent_before_another_server_is_refused() {
    let s = service().await;
    assert_eq!(s.put("/v1/pipelines/digits", &in_slots()).await.0, 201);
    assert_eq!(s.put("/v1/pipelines/digits/profiles", &profiles()).await.0, 200);
    let (reason, detail) = attach(&s, of_backend(&s, "b", "demo", "remote")).await.refused().await;
    assert_eq!(reason, Reason::Invalid);
    let words = ["backend: remote", "task read of pipeline digits", "latencies for demo", "--backend onnx"];
    assert!(words.iter().all(|word| detail.contains(word)), "{detail}");
    assert_eq!(s.get("/v1/agents").await.1, json!([]), "it is not registered");
    // Agents with slots are welcome, and so is an agent of an older release, which does not say its backend.
    for (name, hardware, backend) in
        [("b", "far", "remote"), ("c", "demo", "onnx"), ("d", "demo", "emulated"), ("e", "demo", "")]
    {
        let agent = joined(&s, name, hardware, backend).await;
        agent.say(agent_message::Message::Leaving(v1::Leaving {})).await;
    }
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_pipeline_and_an_agent_at_once_one_is_refused() {
    let s = service().await;
    assert_eq!(s.put("/v1/pipelines/digits", &spec()).await.0, 201);
    assert_eq!(s.put("/v1/pipelines/digits/profiles", &profiles()).await.0, 200);
    let document = in_slots();
    let agent = of_backend(&s, "b", "demo", "remote");
    let (put, answer) = tokio::join!(s.put("/v1/pipelines/digits", &document), try_attach(&s, agent));
    let is_welcome = matches!(answer, Some(control_message::Message::Welcome(_)));
    assert_ne!(put.0 == 200, is_welcome, "{put:?} {answer:?}");
    s.running.stop().await;
}
