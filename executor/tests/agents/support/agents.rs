//! Agents, each with a runtime of its own, so that one can die at once.

use super::control::TOKEN;
use apportion_executor::agent::{self, AgentHandle, AgentOptions};
use apportion_executor::backend::BackendLoader;
use apportion_executor::connector::ControlConnector;
use apportion_executor::control::{ControlError, Identity, attend};
use apportion_executor::files::Files;
use apportion_executor::telemetry::Tracer;
use apportion_executor::{gateway, peers};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A running agent.
pub struct Agent {
    pub http: String,
    pub grpc: String,
    pub data: String,
    pub handle: AgentHandle,
    pub attending: Option<JoinHandle<Result<(), ControlError>>>,
    runtime: Option<Runtime>,
}

impl Agent {
    /// Starts one with the toy backend.
    pub fn start(name: &str, join: &str, state: &Path) -> Agent {
        Self::start_with(name, join, TOKEN, state, BackendLoader::files(super::toy::load))
    }

    /// Starts one.
    pub fn start_with(name: &str, join: &str, token: &str, state: &Path, loader: BackendLoader) -> Agent {
        Self::start_limited(name, join, token, state, loader, gateway::GatewayLimits::default())
    }

    /// Starts one that is emulated, with so many devices, and recorded in the file `record` of its folder.
    pub fn start_recorded(name: &str, join: &str, state: &Path, devices: u32) -> Agent {
        let limits = gateway::GatewayLimits::default();
        Self::start_all(name, join, TOKEN, state, (BackendLoader::Emulated, devices, true, None), limits)
    }

    /// Starts one with the toy backend whose requests are traced.
    pub fn start_traced(name: &str, join: &str, state: &Path, tracer: Arc<Tracer>) -> Agent {
        let loader = BackendLoader::files(super::toy::load);
        Self::start_all(name, join, TOKEN, state, (loader, 1, false, Some(tracer)), gateway::GatewayLimits::default())
    }

    /// Starts one whose gateway takes so much.
    pub fn start_limited(
        name: &str,
        join: &str,
        token: &str,
        state: &Path,
        loader: BackendLoader,
        limits: gateway::GatewayLimits,
    ) -> Agent {
        Self::start_all(name, join, token, state, (loader, 1, false, None), limits)
    }

    fn start_all(
        name: &str,
        join: &str,
        token: &str,
        state: &Path,
        (loader, devices, is_recorded, tracer): (BackendLoader, u32, bool, Option<Arc<Tracer>>),
        limits: gateway::GatewayLimits,
    ) -> Agent {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let http = listener.local_addr().expect("its address").to_string();
        let files = Files::open(&state.join(name)).expect("a folder");
        let entered = runtime.enter();
        let data = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        data.set_nonblocking(true).expect("a socket");
        let data = tokio::net::TcpListener::from_std(data).expect("a socket");
        let data_address = data.local_addr().expect("its address").to_string();
        let record = is_recorded.then(|| state.join(name).join("record"));
        let handle =
            agent::start(AgentOptions { loader, pace: false, slowness: 1.0, files, record, tracer, may_sleep: true });
        tokio::spawn(peers::listen(data, handle.link_keys.clone(), handle.events.clone(), CancellationToken::new()));
        let gateway = gateway::Gateway::with_limits(handle.clone(), limits);
        tokio::spawn(gateway::http::serve(listener, gateway.clone()).expect("a server"));
        let grpc = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        grpc.set_nonblocking(true).expect("a socket");
        let grpc_listener = tokio::net::TcpListener::from_std(grpc).expect("a socket");
        let grpc = grpc_listener.local_addr().expect("its address").to_string();
        tokio::spawn(gateway::grpc::serve(grpc_listener, gateway, CancellationToken::new()));
        let identity = Identity {
            join: join.split(',').map(str::to_owned).collect(),
            connector: ControlConnector::default(),
            token: token.into(),
            name: name.into(),
            hardware: "cpu".into(),
            devices,
            zone: String::new(),
            ingress_http: http.clone(),
            ingress_grpc: grpc.clone(),
            data_address: data_address.clone(),
            process_id: format!("process of {name}"),
            agent_id: String::new(),
        };
        let attending = Some(tokio::spawn(attend(identity, handle.clone(), CancellationToken::new())));
        drop(entered);
        Agent { http, grpc, data: data_address, handle, attending, runtime: Some(runtime) }
    }

    /// Ends it as a crash would: no farewell, its connections break.
    pub fn kill(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }

    /// An inference request with the input `x` of these rows: status and body.
    pub async fn infer(&self, rows: &[[f32; 2]]) -> (u16, Value) {
        let flat: Vec<f32> = rows.concat();
        let input = json!({"name": "x", "datatype": "FP32", "shape": [rows.len(), 2], "data": flat});
        self.post("toy", &json!({"id": "q", "inputs": [input]})).await
    }

    /// Any inference request.
    pub async fn post(&self, pipeline: &str, body: &Value) -> (u16, Value) {
        let url = format!("http://{}/v2/models/{pipeline}/infer", self.http);
        let response = reqwest::Client::new().post(url).json(body).send().await.expect("an answer");
        (response.status().as_u16(), response.json().await.expect("JSON"))
    }

    /// Waits until a pipeline's tasks can all be reached from here.
    pub async fn ready(&self, pipeline: &str) {
        let view = &self.handle.view;
        super::until("ready", || view.borrow().ready.contains(pipeline).then_some(())).await;
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The values of an answer's output.
///
/// # Panics
/// If there is none of that name.
pub fn output<'a>(body: &'a Value, name: &str) -> (&'a Value, &'a Value) {
    let outputs = body["outputs"].as_array().expect("outputs");
    let output = outputs.iter().find(|o| o["name"] == name).unwrap_or_else(|| panic!("no output {name}: {body}"));
    (&output["shape"], &output["data"])
}
