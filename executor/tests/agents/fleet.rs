//! Agents serve together: fan-out over connections, changes of the target under load, and the loss of an agent.

use crate::support::agents::{Agent, output};
use crate::support::control::{Control, TOKEN};
use crate::support::{Group, target, until};
use apportion_executor::agent::AgentCommand;
use serde_json::{Value, json};
use std::sync::Arc;

const WORDS: [&str; 4] = ["split", "sum", "double", "sum 5"];

/// Control plane and agents `a1 ..`, numbered from 1 in this order.
async fn fleet(agents: u64, folder: &tempfile::TempDir) -> (Control, Vec<Agent>) {
    let control = Control::start(&WORDS).await;
    let mut all = Vec::new();
    for n in 1..=agents {
        let name = format!("a{n}");
        all.push(Agent::start(&name, &control.url, folder.path()));
        until("it registers", || (control.heard(&name).number == n).then_some(())).await;
    }
    (control, all)
}

fn addresses(agents: &[Agent]) -> Vec<(u64, String)> {
    agents.iter().zip(1..).map(|(a, n)| (n, a.data.clone())).collect()
}

fn group<'a>(id: u64, task: u32, variant: &'a str, agents: &'a [u64]) -> Group<'a> {
    Group { id, task, variant, agents }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fanned_out_request_returns_in_order() {
    let folder = tempfile::tempdir().expect("a folder");
    let (control, agents) = fleet(3, &folder).await;
    let groups = [group(1, 0, "split", &[1]), group(2, 1, "sum", &[2, 3])];
    control.send(target(1, &addresses(&agents), &groups));
    for (agent, name) in agents.iter().zip(["a1", "a2", "a3"]) {
        control.applied(name, 1).await;
        agent.ready("toy").await;
    }
    for agent in &agents {
        let (status, body) = agent.infer(&[[2.0, 10.0], [0.0, 20.0], [3.0, 30.0]]).await;
        assert_eq!(status, 200, "{body}");
        assert_eq!((&body["id"], &body["parameters"]["outcome"]), (&json!("q"), &json!("ok")));
        assert_eq!(output(&body, "s"), (&json!([5]), &json!([10.0, 11.0, 30.0, 31.0, 32.0])));
        assert_eq!(output(&body, "parent"), (&json!([5]), &json!([0, 0, 2, 2, 2])));
        let (status, body) = agent.infer(&[[0.0, 20.0]]).await;
        assert_eq!((status, output(&body, "s")), (200, (&json!([0]), &json!([]))));
        assert_eq!(output(&body, "parent"), (&json!([0]), &json!([])));
        let (status, body) = agent.infer(&[[-1.0, 0.0]]).await;
        assert_eq!(status, 500);
        assert!(body["reason"].as_str().is_some_and(|r| r.contains("negative number of children")), "{body}");
    }
    // Three rows, one and one; the failed request is not among those answered in time.
    until("all is reported", || (control.heard("a2").offered == 5 && control.heard("a2").ok == 2).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_request_is_answered_when_an_agent_dies_under_load() {
    let folder = tempfile::tempdir().expect("a folder");
    let (control, mut agents) = fleet(3, &folder).await;
    let groups = [group(1, 0, "split", &[1, 3]), group(2, 1, "sum 5", &[2, 3])];
    control.send(target(1, &addresses(&agents), &groups));
    for name in ["a1", "a2", "a3"] {
        control.applied(name, 1).await;
    }
    let mut third = agents.pop().expect("three agents");
    let first = Arc::new(agents.remove(0));
    first.ready("toy").await;
    let both = || first.handle.view.borrow().queues.len() == 1;
    assert!(both(), "the gateway has one replica of its own");
    let mut answers = Vec::new();
    for i in 0..300u32 {
        let first = first.clone();
        answers.push(tokio::spawn(async move { first.infer(&[[3.0, i as f32]]).await }));
        if i == 150 {
            third.kill();
        }
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    for (i, answer) in answers.into_iter().enumerate() {
        let (status, body) = answer.await.expect("one answer");
        assert_eq!(status, 200, "request {i}: {body}");
        let i = i as f64;
        assert_eq!(output(&body, "s").1, &json!([i, i + 1.0, i + 2.0]), "each once");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_variants_under_load_loses_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let (control, agents) = fleet(2, &folder).await;
    let before = [group(1, 0, "split", &[1]), group(2, 1, "sum", &[2])];
    control.send(target(1, &addresses(&agents), &before));
    agents[0].ready("toy").await;
    let mut seen = Vec::new();
    for i in 0..400 {
        if i == 50 {
            // The new variant goes where the root was, and the root goes to the other agent.
            let after = [group(3, 0, "split", &[2]), group(4, 1, "double", &[1])];
            control.send(target(2, &addresses(&agents), &after));
        }
        let (status, body) = agents[0].infer(&[[1.0, 7.0]]).await;
        assert_eq!(status, 200, "request {i}: {body}");
        seen.push(output(&body, "s").1[0].as_f64().expect("a number"));
        if i > 50 && seen.last() == Some(&14.0) && agents[0].handle.view.borrow().queues.len() == 1 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert_eq!((seen.first(), seen.last()), (Some(&7.0), Some(&14.0)));
    control.applied("a1", 2).await;
    control.applied("a2", 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leaving_agent_finishes_its_queries() {
    let folder = tempfile::tempdir().expect("a folder");
    let (control, mut agents) = fleet(2, &folder).await;
    let groups = [group(1, 0, "split", &[1]), group(2, 1, "sum 5", &[2])];
    control.send(target(1, &addresses(&agents), &groups));
    agents[0].ready("toy").await;
    let second = agents.pop().expect("two agents");
    let first = Arc::new(agents.remove(0));
    let begun: Vec<_> = (0..40u32)
        .map(|i| {
            let first = first.clone();
            tokio::spawn(async move { first.infer(&[[3.0, i as f32]]).await })
        })
        .collect();
    until("all have begun", || (control.heard("a1").offered == 40).then_some(())).await;
    first.handle.commands.send(AgentCommand::Leave).await.expect("the loop runs");
    let without = [group(3, 0, "split", &[2]), group(2, 1, "sum 5", &[2])];
    control.send(target(2, &[(2, second.data.clone())], &without));
    // What overtakes the command is still served.
    let (mut status, mut body) = first.infer(&[[1.0, 1.0]]).await;
    for _ in 0..100 {
        if status == 200 {
            (status, body) = first.infer(&[[1.0, 1.0]]).await;
        }
    }
    assert!(status == 503 && body["reason"].as_str().is_some_and(|r| r.contains("stopping")), "{status} {body}");
    for (i, answer) in begun.into_iter().enumerate() {
        let (status, body) = answer.await.expect("one answer");
        assert_eq!(status, 200, "request {i}: {body}");
    }
    second.ready("toy").await;
    assert_eq!(second.infer(&[[1.0, 1.0]]).await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_target_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let (control, agents) = fleet(1, &folder).await;
    let groups = [group(1, 0, "split", &[1]), group(2, 1, "sum", &[1])];
    control.send(target(5, &addresses(&agents), &groups));
    control.applied("a1", 5).await;
    control.send(target(4, &addresses(&agents), &[]));
    let refusal = until("it is refused", || {
        control.heard("a1").acks.into_iter().find(|a| a.fence.is_some_and(|f| f.generation == 4))
    });
    let refusal = refusal.await;
    assert!(!refusal.applied && !refusal.error.is_empty(), "{refusal:?}");
    assert_eq!(agents[0].infer(&[[1.0, 1.0]]).await.0, 200);
    let generation = agents[0].handle.view.borrow().layout.fence.map(|f| f.generation.0);
    assert_eq!(generation, Some(5));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_agent_serves_without_the_control_plane() {
    let folder = tempfile::tempdir().expect("a folder");
    {
        let (control, agents) = fleet(1, &folder).await;
        let groups = [group(1, 0, "split", &[1]), group(2, 1, "sum", &[1])];
        control.send(target(3, &addresses(&agents), &groups));
        control.applied("a1", 3).await;
    }
    let again = Agent::start("a1", "http://127.0.0.1:1", folder.path());
    again.ready("toy").await;
    let (status, body) = again.infer(&[[1.0, 1.0]]).await;
    assert_eq!((status, output(&body, "s").1), (200, &json!([1.0])));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_variant_that_cannot_load_is_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let control = Control::start(&["split", "nonsense"]).await;
    let agent = Agent::start("a1", &control.url, folder.path());
    let groups = [group(1, 0, "split", &[1]), group(2, 1, "nonsense", &[1])];
    control.send(target(1, &[(1, agent.data.clone())], &groups));
    let ack = until("it fails", || control.heard("a1").acks.into_iter().find(|a| !a.error.is_empty())).await;
    assert!(!ack.applied && ack.error.contains("no such word"), "{ack:?}");
    let response = reqwest::get(format!("http://{}/v2/models/toy/ready", agent.http)).await.expect("an answer");
    assert_eq!(response.status(), 503);
    assert!(response.headers().contains_key("retry-after"));
    // Its root is there, so the request begins, and fails with a reason.
    let (status, body) = agent.infer(&[[1.0, 1.0]]).await;
    assert!(status >= 500 && body["reason"].as_str().is_some_and(|r| r.contains("sum")), "{status} {body}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_token_ends_the_agents_attempts() {
    let folder = tempfile::tempdir().expect("a folder");
    let control = Control::start(&WORDS).await;
    let loader = apportion_executor::backend::BackendLoader::files(crate::support::toy::load);
    let mut agent = Agent::start_with("a1", &control.url, "wrong", folder.path(), loader);
    let error = agent.attending.take().expect("it attends").await.expect("no panic").expect_err("refused");
    assert!(error.to_string().contains("not one of us"), "{error}");
    assert_ne!(TOKEN, "wrong");
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_requests_are_told_what_is_expected() {
    let folder = tempfile::tempdir().expect("a folder");
    let (control, agents) = fleet(1, &folder).await;
    let groups = [group(1, 0, "split", &[1]), group(2, 1, "sum", &[1])];
    control.send(target(1, &addresses(&agents), &groups));
    control.applied("a1", 1).await;
    agents[0].ready("toy").await;
    let input = |name: &str, datatype: &str, shape: Value, data: Value| json!({"inputs": [{"name": name, "datatype": datatype, "shape": shape, "data": data}]});
    let cases = [
        (input("z", "FP32", json!([1, 2]), json!([1, 2])), "expected x"),
        (input("x", "INT64", json!([1, 2]), json!([1, 2])), "expected FP32"),
        (input("x", "FP32", json!([1, 3]), json!([1, 2, 3])), "[-1, 2]"),
        (input("x", "FP32", json!([1, 2]), json!([1])), "expected 2"),
        (input("x", "FP32", json!([1, 2]), json!([1, "two"])), "data"),
        (input("x", "FP32", json!([0, 2]), json!([])), "no rows"),
        (json!({"inputs": []}), "missing"),
        (json!({"outputs": []}), "inputs"),
    ];
    for (body, expected) in cases {
        let (status, answer) = agents[0].post("toy", &body).await;
        let error = answer["error"].as_str().unwrap_or_default();
        assert!(status == 400 && error.contains(expected), "{body}: {status} {answer}");
    }
    let (status, answer) = agents[0].post("other", &json!({"inputs": []})).await;
    assert!(status == 404 && answer["error"].as_str().is_some_and(|e| e.contains("toy")), "{status} {answer}");
    let get = async |path: &str| {
        let response = reqwest::get(format!("http://{}{path}", agents[0].http)).await.expect("an answer");
        (response.status().as_u16(), response.text().await.expect("text"))
    };
    assert_eq!(get("/v2/health/live").await.0, 200);
    assert_eq!(get("/v2/health/ready").await.0, 200);
    let (status, metadata) = get("/v2/models/toy").await;
    let metadata: Value = serde_json::from_str(&metadata).expect("JSON");
    assert_eq!((status, &metadata["inputs"][0]["shape"]), (200, &json!([-1, 2])));
    let outputs: Vec<_> = metadata["outputs"].as_array().expect("outputs").iter().map(|o| o["name"].clone()).collect();
    assert_eq!(outputs, ["s", "parent"]);
    assert!(get("/metrics").await.1.contains("# TYPE apportion_requests counter"));
}
