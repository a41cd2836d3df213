//! Agents in one process, with a real control stream, real connections and a backend that is made for tests.

use crate::support::keyed;
use apportion_executor::agent::{self, AgentHandle, AgentOptions};
use apportion_executor::backend::{Backend, BackendError, BackendLoader, Signature};
use apportion_executor::connector::ControlConnector;
use apportion_executor::control::{Identity, attend};
use apportion_executor::files::Files;
use apportion_executor::tensor::{Datatype, Tensor, TensorSignature};
use apportion_executor::{gateway, peers};
use apportion_protocol::v1::{self, agent_message, control_message, control_server};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tokio_util::sync::CancellationToken;

/// A number `x` becomes `floor(x)` children, each of them `x`; the file's text says whether it is the last task, which
/// doubles `x` instead.
struct Numbers {
    signature: Signature,
    last: bool,
}

fn numbers(file: &Path) -> Result<Box<dyn Backend>, BackendError> {
    let spec = |name: &str| TensorSignature { name: name.into(), datatype: Datatype::Fp32, shape: vec![-1, 1] };
    let signature = Signature { inputs: vec![spec("x")], outputs: vec![spec("y")] };
    let text = std::fs::read_to_string(file).map_err(|e| BackendError::Runtime(e.to_string()))?;
    Ok(Box::new(Numbers { signature, last: text == "last" }))
}

fn tensor(name: &str, values: &[f32]) -> Tensor {
    let data: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    Tensor { name: name.into(), datatype: Datatype::Fp32, shape: vec![values.len(), 1], data: data.into() }
}

impl Backend for Numbers {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
        let values: Vec<f32> =
            inputs[0].data.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        std::thread::sleep(Duration::from_millis(1));
        if self.last {
            return Ok(vec![tensor("y", &values.iter().map(|v| v * 2.0).collect::<Vec<_>>())]);
        }
        let (mut rows, mut parents) = (Vec::new(), Vec::new());
        for (parent, value) in values.iter().enumerate() {
            for _ in 0..*value as usize {
                rows.push(*value);
                parents.extend((parent as i64).to_le_bytes());
            }
        }
        let shape = vec![rows.len()];
        let parent = Tensor { name: "parent".into(), datatype: Datatype::Int64, shape, data: parents.into() };
        Ok(vec![tensor("y", &rows), parent])
    }
}

/// A control plane that numbers agents by their names and pushes what the test says.
struct Fake {
    target: watch::Receiver<Option<v1::Target>>,
    acks: Arc<Mutex<Vec<(String, v1::Ack)>>>,
}

#[tonic::async_trait]
impl control_server::Control for Fake {
    type AttachStream = ReceiverStream<Result<v1::ControlMessage, tonic::Status>>;
    type FetchStream = ReceiverStream<Result<v1::FileChunk, tonic::Status>>;

    async fn fetch(&self, _: tonic::Request<v1::FileRequest>) -> Result<tonic::Response<Self::FetchStream>, tonic::Status> {
        Err(tonic::Status::not_found("the agents have their files"))
    }

    async fn attach(
        &self,
        request: tonic::Request<tonic::Streaming<v1::AgentMessage>>,
    ) -> Result<tonic::Response<Self::AttachStream>, tonic::Status> {
        let (outbox, messages) = mpsc::channel(16);
        let (mut inbox, mut target, acks) = (request.into_inner(), self.target.clone(), self.acks.clone());
        tokio::spawn(async move {
            let say = |message| Ok(v1::ControlMessage { message: Some(message) });
            let Ok(Some(v1::AgentMessage { message: Some(agent_message::Message::Register(who)) })) = inbox.message().await
            else {
                return;
            };
            let agent = who.name.parse().expect("the tests' agents are numbers");
            let welcome = v1::Welcome { agent, report_ms: 100, files_url: "http://127.0.0.1:1".into() };
            let mut alive = outbox.send(say(control_message::Message::Welcome(welcome))).await.is_ok();
            target.mark_changed();
            while alive {
                tokio::select! {
                    _ = target.changed() => {
                        let message = target.borrow_and_update().clone().map(|target| keyed(target, agent));
                        let message = message.map(control_message::Message::Target);
                        if let Some(message) = message {
                            alive = outbox.send(say(message)).await.is_ok();
                        }
                    }
                    message = inbox.message() => match message {
                        Ok(Some(v1::AgentMessage { message: Some(agent_message::Message::Ack(ack)) })) => {
                            acks.lock().expect("no panic holds it").push((who.name.clone(), ack));
                        }
                        Ok(Some(_)) => {}
                        _ => return,
                    }
                }
            }
        });
        Ok(tonic::Response::new(ReceiverStream::new(messages)))
    }
}

fn digest(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|b| format!("{b:02x}")).collect()
}

struct Fleet {
    target: watch::Sender<Option<v1::Target>>,
    acks: Arc<Mutex<Vec<(String, v1::Ack)>>>,
    agents: BTreeMap<u64, Agent>,
}

struct Agent {
    http: String,
    data: String,
    handle: AgentHandle,
    runtime: Option<tokio::runtime::Runtime>,
    _directory: tempfile::TempDir,
}

impl Fleet {
    async fn start(count: u64) -> Fleet {
        let (target, pushed) = watch::channel(None);
        let acks = Arc::new(Mutex::new(Vec::new()));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let join = format!("http://{}", listener.local_addr().expect("bound"));
        let service = control_server::ControlServer::new(Fake { target: pushed, acks: acks.clone() });
        tokio::spawn(
            tonic::transport::Server::builder().add_service(service).serve_with_incoming(TcpListenerStream::new(listener)),
        );
        let agents = (1..=count).map(|n| (n, start_agent(n, &join))).collect();
        Fleet { target, acks, agents }
    }

    /// Task `a` on agent 1 and task `b` on all others, as this generation.
    fn target(&self, generation: u64) -> v1::Target {
        let spec = |name: &str| v1::TensorSpec { name: name.into(), datatype: "FP32".into(), shape: vec![-1, 1] };
        let task = |name: &str| v1::TaskTarget {
            name: name.into(),
            inputs: vec![spec("x")],
            outputs: vec![spec("y")],
            ..Default::default()
        };
        let group = |group: u64, task: u32, text: &str| v1::GroupTarget {
            group,
            task,
            variant: text.into(),
            batch: 4,
            file_digest: digest(text),
            ..Default::default()
        };
        let replica = |agent: u64| v1::ReplicaTarget { replica: agent, group: agent.min(2), agent, device: 0 };
        let table =
            |from, to_task, group| v1::Table { from, to_task, entries: vec![v1::TableEntry { group, fraction: 1.0 }] };
        let pipeline = v1::PipelineTarget {
            name: "p".into(),
            slo_ns: 5_000_000_000,
            tasks: vec![task("a"), task("b")],
            edges: vec![v1::EdgeTarget {
                from: 0,
                to: 1,
                map: [("x".to_string(), "y".to_string())].into(),
                ..Default::default()
            }],
            groups: vec![group(1, 0, "first"), group(2, 1, "last")],
            replicas: self.agents.keys().map(|n| replica(*n)).collect(),
            tables: vec![table(None, 0, 1), table(Some(1), 1, 2)],
            ..Default::default()
        };
        let peer = |(n, a): (&u64, &Agent)| v1::Peer { agent: *n, data_address: a.data.clone(), ..Default::default() };
        let fence = Some(v1::Fence { incarnation: 1, generation });
        v1::Target {
            fence,
            agents: self.agents.iter().map(peer).collect(),
            pipelines: vec![pipeline],
            ..Default::default()
        }
    }

    async fn wait_ready(&self, agent: u64) {
        wait("the pipeline to be ready", || self.agents[&agent].handle.view.borrow().ready.contains("p")).await;
    }
}

async fn wait(what: &str, mut until: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !until() {
        assert!(begun.elapsed() < Duration::from_secs(30), "waited too long for {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// An agent with a runtime of its own, so that it can be killed.
fn start_agent(number: u64, join: &str) -> Agent {
    let directory = tempfile::tempdir().expect("a directory");
    for text in ["first", "last"] {
        std::fs::write(directory.path().join(format!("{}.onnx", digest(text))), text).expect("writes");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let http = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = http.local_addr().expect("bound").to_string();
    let (handle, data) = std::thread::scope(|scope| {
        scope
            .spawn(|| {
                runtime.block_on(async {
                    let data = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
                    let own = data.local_addr().expect("bound").to_string();
                    let files = Files::open(directory.path()).expect("opens");
                    let handle = agent::start(AgentOptions {
                        loader: BackendLoader::files(numbers),
                        pace: false,
                        slowness: 1.0,
                        files,
                        record: None,
                        tracer: None,
                        may_sleep: true,
                    });
                    let keys = handle.link_keys.clone();
                    tokio::spawn(peers::listen(data, keys, handle.events.clone(), CancellationToken::new()));
                    let identity = Identity {
                        join: vec![join.to_string()],
                        connector: ControlConnector::default(),
                        token: "t".into(),
                        name: number.to_string(),
                        hardware: "cpu".into(),
                        devices: 1,
                        zone: String::new(),
                        ingress_http: address.clone(),
                        ingress_grpc: String::new(),
                        data_address: own.clone(),
                        process_id: number.to_string(),
                        agent_id: String::new(),
                    };
                    tokio::spawn(attend(identity, handle.clone(), CancellationToken::new()));
                    (handle, own)
                })
            })
            .join()
            .expect("starts")
    });
    let server = gateway::http::serve(http, gateway::Gateway::new(handle.clone()));
    runtime.spawn(server.expect("serves"));
    Agent { http: address, data, handle, runtime: Some(runtime), _directory: directory }
}

async fn infer(http: &str, inputs: Value) -> (u16, Value) {
    let url = format!("http://{http}/v2/models/p/infer");
    let response =
        reqwest::Client::new().post(url).json(&json!({"id": "q", "inputs": inputs})).send().await.expect("an answer");
    let (status, text) = (response.status().as_u16(), response.text().await.expect("a body"));
    let body = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{status} {text}: {e}"));
    (status, body)
}

fn xs(values: &[f32]) -> Value {
    json!([{"name": "x", "datatype": "FP32", "shape": [values.len(), 1], "data": values}])
}

#[tokio::test]
async fn a_fanned_out_request_returns_in_order() {
    let fleet = Fleet::start(3).await;
    fleet.target.send_replace(Some(fleet.target(1)));
    fleet.wait_ready(1).await;
    let (status, body) = infer(&fleet.agents[&1].http, xs(&[2.0, 0.0, 3.0])).await;
    assert_eq!(status, 200, "{body}");
    assert_eq!(body["id"], "q");
    assert_eq!(body["outputs"][0]["data"], json!([4.0, 4.0, 6.0, 6.0, 6.0]), "{body}");
    assert_eq!(body["outputs"][1]["data"], json!([0, 0, 2, 2, 2]), "{body}");
    let (status, body) = infer(&fleet.agents[&1].http, xs(&[0.0])).await;
    assert_eq!((status, &body["outputs"][0]["shape"]), (200, &json!([0, 1])), "{body}");
    // Another agent's gateway serves the same.
    fleet.wait_ready(3).await;
    let (status, body) = infer(&fleet.agents[&3].http, xs(&[1.0])).await;
    assert_eq!((status, &body["outputs"][0]["data"]), (200, &json!([2.0])), "{body}");
    let (status, body) = infer(&fleet.agents[&1].http, json!([])).await;
    assert_eq!(status, 400, "{body}");
}

#[tokio::test]
async fn an_older_target_is_refused_and_the_newer_stays() {
    let fleet = Fleet::start(1).await;
    fleet.target.send_replace(Some(fleet.target(5)));
    let acked = |generation, applied, error: &str| {
        let acks = fleet.acks.lock().expect("no panic holds it");
        let fits = |a: &v1::Ack| a.fence.map(|f| f.generation) == Some(generation) && a.applied == applied;
        acks.iter().any(|(_, a)| fits(a) && a.error.contains(error))
    };
    wait("the target to be applied", || acked(5, true, "")).await;
    fleet.target.send_replace(Some(fleet.target(4)));
    wait("the older target to be refused", || acked(4, false, "newer")).await;
    let fence = fleet.agents[&1].handle.view.borrow().layout.fence.expect("a target");
    assert_eq!(fence.generation.0, 5);
}

#[tokio::test]
async fn every_request_is_answered_when_an_agent_dies_under_load() {
    let mut fleet = Fleet::start(3).await;
    fleet.target.send_replace(Some(fleet.target(1)));
    fleet.wait_ready(1).await;
    let applied = |name: &str| {
        let acks = fleet.acks.lock().expect("no panic holds it");
        acks.iter().any(|(who, a)| who == name && a.applied)
    };
    wait("all replicas to be ready", || applied("2") && applied("3")).await;
    let http = fleet.agents[&1].http.clone();
    let load: Vec<_> = (0..40)
        .map(|i| {
            let http = http.clone();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(10 * i)).await;
                infer(&http, xs(&[2.0, 3.0])).await
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(150)).await;
    fleet.agents.get_mut(&3).and_then(|a| a.runtime.take()).expect("it runs").shutdown_background();
    let (mut ok, mut failures) = (0, Vec::new());
    for request in load {
        let (status, body) = request.await.expect("no panic");
        match status {
            200 => {
                assert_eq!(body["outputs"][0]["data"], json!([4.0, 4.0, 6.0, 6.0, 6.0]), "{body}");
                ok += 1;
            }
            _ => {
                assert!(matches!(status, 500 | 503 | 504) && body["reason"].is_string(), "{status} {body}");
                failures.push(body);
            }
        }
    }
    assert!(ok >= 36, "only {ok} of 40 were served: {failures:?}");
    let (status, body) = infer(&http, xs(&[1.0])).await;
    assert_eq!(status, 200, "{body}");
}

impl Drop for Agent {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
