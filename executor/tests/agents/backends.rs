//! Agents that run no variants: one plays profiles back, and one asks it to run batches as it would ask any server of the
//! protocol. And what happens to both when far more comes than they can do.

use crate::support::agents::{Agent, output};
use crate::support::control::{Control, TOKEN};
use crate::support::{Group, target};
use apportion_executor::backend::{Backend as _, BackendLoader, RemoteBackend};
use apportion_executor::gateway::GatewayLimits;
use apportion_executor::tensor::{Datatype, Tensor};
use apportion_protocol::v1;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Requests that may wait at the gateway.
const WAITING_MAX: usize = 32;
/// Clients that ask without a pause: several times as many as may wait.
const CLIENTS: usize = 8 * WAITING_MAX;
/// Requests of each.
const EACH: usize = 20;

/// A pipeline of one task with two numbers in and one out, served by agent 1 under this name.
fn single(name: &str, data_address: &str, latency_ns: u64) -> v1::Target {
    let of = Group { id: 1, task: 0, variant: "sum", agents: &[1] };
    let mut target = target(1, &[(1, data_address.to_string())], &[of]);
    let pipeline = &mut target.pipelines[0];
    pipeline.name = name.into();
    pipeline.tasks.remove(0);
    pipeline.edges.clear();
    pipeline.tables.truncate(1);
    pipeline.groups[0].service = vec![v1::ServicePoint { batch: 4, latency_ns, ..Default::default() }];
    target
}

/// An agent with a control plane of its own that serves [`single`].
async fn serving(folder: &Path, pipeline: &str, loader: BackendLoader, latency_ns: u64) -> (Control, Agent) {
    let control = Control::start(&[]).await;
    let limits = GatewayLimits { requests_max: WAITING_MAX, ..GatewayLimits::default() };
    let agent = Agent::start_limited(pipeline, &control.url, TOKEN, folder, loader, limits);
    control.send(single(pipeline, &agent.data, latency_ns));
    agent.ready(pipeline).await;
    (control, agent)
}

fn body() -> Value {
    json!({"inputs": [{"name": "x", "datatype": "FP32", "shape": [2, 2], "data": [1, 2, 3, 4]}]})
}

async fn get(agent: &Agent, path: &str) -> String {
    let answer = reqwest::get(format!("http://{}{path}", agent.http)).await.expect("an answer");
    answer.text().await.expect("a text")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_emulated_says_so_everywhere() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_control, agent) = serving(folder.path(), "sum", BackendLoader::Emulated, 1_000_000).await;
    let (status, answer) = agent.post("sum", &body()).await;
    assert_eq!((status, output(&answer, "s")), (200, (&json!([2]), &json!([0.0, 0.0]))), "{answer}");
    let json = |text: String| serde_json::from_str::<Value>(&text).expect("JSON");
    assert_eq!(json(get(&agent, "/v2").await)["backend"], "emulated");
    assert_eq!(json(get(&agent, "/v2/models/sum").await)["platform"], "apportion_pipeline_emulated");
    assert_eq!(json(get(&agent, "/v2/models/sum/config").await)["backend"], "apportion_emulated");
    let metrics = get(&agent, "/metrics").await;
    assert!(metrics.contains("apportion_agent_info{backend=\"emulated\","), "{metrics}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_server_of_the_protocol_runs_the_batches() {
    let folder = tempfile::tempdir().expect("a folder");
    // The server has the variant `sum`: here it is a pipeline of another agent, with real sums.
    let control = Control::start(&["sum"]).await;
    let server = Agent::start("server", &control.url, folder.path());
    control.send(single("sum", &server.data, 1_000_000));
    server.ready("sum").await;
    let url = format!("http://{}", server.http);
    let (_control, agent) = serving(folder.path(), "front", BackendLoader::Remote(url), 1_000_000).await;
    let (status, answer) = agent.post("front", &body()).await;
    assert_eq!((status, output(&answer, "s")), (200, (&json!([2]), &json!([3.0, 7.0]))), "{answer}");
    // The server is lost: the next batch fails, and the answer says where.
    drop(server);
    let (status, answer) = agent.post("front", &body()).await;
    assert_eq!(status, 500, "{answer}");
    assert!(answer["reason"].as_str().is_some_and(|r| r.contains("/v2/models/sum/infer")), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_the_variant_is_refused_with_a_reason() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_other, server) = serving(folder.path(), "other", BackendLoader::Emulated, 1_000_000).await;
    for (url, said) in [
        (format!("http://{}", server.http), "/v2/models/sum: it is not ready: it answered 404"),
        ("http://127.0.0.1:1".to_string(), "the runtime is not available: http://127.0.0.1:1: "),
    ] {
        let control = Control::start(&[]).await;
        let name = format!("front of {url}").replace('/', "_");
        let agent = Agent::start_with(&name, &control.url, TOKEN, folder.path(), BackendLoader::Remote(url));
        control.send(single("front", &agent.data, 1_000_000));
        let error = || control.heard(&name).acks.last().map(|a| a.error.clone()).filter(|e| !e.is_empty());
        let error = crate::support::until("the replica fails", error).await;
        assert!(error.contains(said), "{error}: expected {said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_need_an_emulated_profile_or_a_model_with_state() {
    let folder = tempfile::tempdir().expect("a folder");
    let slots = |agent: &Agent| {
        let mut target = single("sum", &agent.data, 1_000_000);
        target.pipelines[0].tasks[0].continuous = true;
        target
    };
    let remote = BackendLoader::Remote("http://127.0.0.1:1".into());
    for (name, loader, said) in [("remote", Some(remote), "kind continuous"), ("files", None, "it has no state")] {
        let control = Control::start(&["sum"]).await;
        let agent = match loader {
            Some(loader) => Agent::start_with(name, &control.url, TOKEN, folder.path(), loader),
            None => Agent::start(name, &control.url, folder.path()),
        };
        control.send(slots(&agent));
        let error = || control.heard(name).acks.last().map(|a| a.error.clone()).filter(|e| !e.is_empty());
        let error = crate::support::until("it is refused", error).await;
        assert!(error.contains(said), "{name}: {error}: expected {said}");
    }
    let control = Control::start(&[]).await;
    let agent = Agent::start_with("slots", &control.url, TOKEN, folder.path(), BackendLoader::Emulated);
    control.send(slots(&agent));
    agent.ready("sum").await;
    let (status, answer) = agent.post("sum", &body()).await;
    assert_eq!((status, output(&answer, "s")), (200, (&json!([2]), &json!([0.0, 0.0]))), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_tells_its_tensors_and_statistics() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_control, agent) = serving(folder.path(), "sum", BackendLoader::Emulated, 1_000_000).await;
    let url = format!("http://{}", agent.http);
    // The backend has a runtime of its own.
    let found = tokio::task::spawn_blocking(move || {
        let mut backend = RemoteBackend::find(&url, "sum").expect("it is there");
        let data = [1.0_f32, 2.0, 3.0, 4.0].map(f32::to_le_bytes).concat().into();
        let batch = [Tensor { name: "x".into(), datatype: Datatype::Fp32, shape: vec![2, 2], data }];
        let outputs = backend.run(&batch).expect("it runs");
        let unknown = RemoteBackend::find(&url, "other").err().expect("it is not there").to_string();
        (outputs, backend.batch_max(), backend.statistics().expect("an answer"), unknown)
    });
    let (outputs, batch_max, statistics, unknown) = found.await.expect("it ends");
    assert_eq!((outputs[0].name.as_str(), outputs[0].rows()), ("s", 2));
    assert!(batch_max.is_none() && statistics.is_some(), "{batch_max:?} {statistics:?}");
    assert!(unknown.ends_with("there is no model \"other\": expected one of sum"), "{unknown}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_overloaded_gateway_answers_every_request() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_control, agent) = serving(folder.path(), "sum", BackendLoader::Emulated, 4_000_000).await;
    let (agent, most) = (Arc::new(agent), Arc::new(AtomicUsize::new(0)));
    let (watched, longest) = (agent.handle.view.clone(), most.clone());
    let watching = tokio::spawn(async move {
        let mut view = watched;
        while view.changed().await.is_ok() {
            let waiting = view.borrow().queues.iter().map(|(_, queries)| queries).sum();
            longest.fetch_max(waiting, Relaxed);
        }
    });
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..CLIENTS {
        let url = format!("http://{}/v2/models/sum/infer", agent.http);
        clients.spawn(async move {
            let (client, mut statuses) = (reqwest::Client::new(), Vec::new());
            for _ in 0..EACH {
                let answer = client.post(&url).json(&body()).send().await.expect("every request is answered");
                let (status, after) = (answer.status().as_u16(), answer.headers().get("Retry-After").cloned());
                let said: Value = answer.json().await.expect("JSON");
                let sheds = [429, 503].contains(&status);
                assert_eq!(after.is_some(), sheds, "{status}: those that were shed hear when to come again");
                assert!(status == 200 || said["reason"].is_string(), "{said}: those that were not served hear why");
                statuses.push(status);
            }
            statuses
        });
    }
    let mut counts: BTreeMap<u16, usize> = BTreeMap::new();
    for status in clients.join_all().await.concat() {
        *counts.entry(status).or_default() += 1;
    }
    assert_eq!(counts.values().sum::<usize>(), CLIENTS * EACH, "{counts:?}");
    assert!(counts.keys().all(|status| [200, 429].contains(status)), "served or shed at the door: {counts:?}");
    assert!(counts[&200] >= WAITING_MAX && counts[&429] > 0, "{counts:?}");
    // Each request has two rows, and each row is a query.
    let most = most.load(Relaxed);
    assert!(most <= 2 * WAITING_MAX, "{most} queries waited");
    watching.abort();
    // Nothing keeps a place: as many as may wait come in again.
    let body = body();
    let again = (0..WAITING_MAX).map(|_| agent.post("sum", &body));
    for (status, answer) in futures::future::join_all(again).await {
        assert_eq!(status, 200, "{answer}");
    }
}
