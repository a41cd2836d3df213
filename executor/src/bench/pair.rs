//! Which agents are measured? Two, as `apportion-agent` runs them, each with its loop in a thread of its own.
//!
//! They get their target before they start, so no control plane takes part.

use super::{BenchError, BenchOptions};
use crate::agent::{self, AgentHandle, AgentOptions, ClientPresence, ClientRequest};
use crate::backend::BackendLoader;
use crate::certificates::LocalAuthority;
use crate::files::{FileError, Files};
use crate::gateway::{self, Gateway};
use crate::peers::{self, LinkProtection};
use apportion_certificates::IssueError;
use apportion_node::greeting::LINK_KEY_BYTES;
use apportion_node::node::request::{RequestAnswer, RequestTerms};
use apportion_node::tensor::{Datatype, Tensor};
use apportion_protocol::v1::{self, target::Links};
use bytes::Bytes;
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

/// A task at the gateway's own agent, one at the other, one with large tensors there, and one with a few numbers here.
pub(super) const NEAR: &str = "near";
pub(super) const FAR: &str = "far";
pub(super) const LARGE: &str = "large";
pub(super) const FEW: &str = "few";
/// Bytes of a tensor of a hop, and of a large one.
pub(super) const HOP_BYTES: usize = 4_096;
pub(super) const LARGE_BYTES: usize = 5_000_000;
/// Numbers of a tensor at the ingress.
pub(super) const FEW_NUMBERS: usize = 16;
/// How long the agents may take to come up.
const READY_MAX: Duration = Duration::from_secs(20);

/// The agents.
pub(super) struct Pair {
    /// Of the first one, whose gateway is used.
    pub(super) handle: AgentHandle,
    pub(super) http: SocketAddr,
    pub(super) grpc: SocketAddr,
    stop: CancellationToken,
    threads: Vec<std::thread::JoinHandle<()>>,
    _state: tempfile::TempDir,
}

/// What agents are started with.
pub(super) struct Setup<'a> {
    pub(super) loader: BackendLoader,
    /// Files of the variants, which both have.
    pub(super) models: &'a [Vec<u8>],
    pub(super) pipelines: Vec<v1::PipelineTarget>,
    pub(super) may_sleep: bool,
    pub(super) links: LinkProtection,
}

struct Sockets {
    data: TcpListener,
    http: TcpListener,
    grpc: TcpListener,
}

impl Sockets {
    fn bind() -> std::io::Result<Self> {
        let any = || TcpListener::bind("127.0.0.1:0");
        let sockets = Self { data: any()?, http: any()?, grpc: any()? };
        sockets.data.set_nonblocking(true)?;
        sockets.grpc.set_nonblocking(true)?;
        Ok(sockets)
    }
}

impl Pair {
    /// Starts them with variants that take no time, and waits until all pipelines are ready at the first.
    pub(super) fn start(options: &BenchOptions) -> Result<Self, BenchError> {
        let BenchOptions { may_sleep, links, .. } = *options;
        Self::with(&Setup { loader: BackendLoader::Emulated, models: &[], pipelines: pipelines(), may_sleep, links })
    }

    /// Starts them with this and waits until all pipelines are ready at the first.
    pub(super) fn with(setup: &Setup<'_>) -> Result<Self, BenchError> {
        let state = tempfile::tempdir()?;
        let (first, second) = (Sockets::bind()?, Sockets::bind()?);
        let (http, grpc) = (first.http.local_addr()?, first.grpc.local_addr()?);
        let mut target = target([first.data.local_addr()?, second.data.local_addr()?], setup.pipelines.clone());
        target.set_links(if setup.links == LinkProtection::Tls { Links::Tls } else { Links::Plain });
        let fleet = LocalAuthority::new("bench").map_err(certificates)?;
        let (stop, mut threads, mut handles) = (CancellationToken::new(), Vec::new(), Vec::new());
        for (number, sockets) in [(1, first), (2, second)] {
            let files = Files::open(&state.path().join(number.to_string())).map_err(disk)?;
            files.keep_target(number, &target).map_err(disk)?;
            fleet.certify(&files.certificates(), number).map_err(certificates)?;
            for model in setup.models {
                files.add(model).map_err(disk)?;
            }
            let (loader, may_sleep) = (setup.loader.clone(), setup.may_sleep);
            let options = AgentOptions { loader, pace: false, slowness: 1.0, files, record: None, tracer: None, may_sleep };
            let (up, started) = std::sync::mpsc::channel();
            let stopped = stop.clone();
            threads.push(std::thread::spawn(move || {
                actix_web::rt::System::new().block_on(serve(sockets, options, up, stopped));
            }));
            handles.push(started.recv().map_err(|_| BenchError::Agents("an agent did not start".into()))??);
        }
        let handle = handles.remove(0);
        let pair = Self { handle, http, grpc, stop, threads, _state: state };
        let begun = Instant::now();
        while !pair.handle.view.borrow().is_ready() {
            if begun.elapsed() > READY_MAX {
                return Err(BenchError::Agents(format!("they were not ready after {READY_MAX:?}")));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(pair)
    }

    /// Puts a request to the first agent's loop and waits for its answer.
    pub(super) async fn ask(&self, pipeline: &str, inputs: Vec<Tensor>) -> Result<u64, BenchError> {
        latency_ns(self.put(pipeline, inputs)?.await)
    }

    /// Puts a request to the first agent's loop; its answer comes here.
    pub(super) fn put(&self, pipeline: &str, inputs: Vec<Tensor>) -> Result<oneshot::Receiver<RequestAnswer>, BenchError> {
        let (reply, answer) = oneshot::channel();
        let (terms, presence) = (RequestTerms::default(), ClientPresence::default());
        let request = ClientRequest { pipeline: pipeline.into(), inputs, terms, reply, presence };
        let error =
            |e: mpsc::error::TrySendError<ClientRequest>| BenchError::Agents(format!("the loop takes no request: {e}"));
        self.handle.requests.try_send(request).map_err(error).map(|()| answer)
    }
}

/// Latency of a request that was answered, by the clock of its gateway.
pub(super) fn latency_ns<E: std::fmt::Debug>(answer: Result<RequestAnswer, E>) -> Result<u64, BenchError> {
    match answer {
        Ok(RequestAnswer::Done { latency_ns, .. }) => Ok(latency_ns),
        other => Err(BenchError::Agents(format!("a request was not answered: {other:?}"))),
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.stop.cancel();
        for thread in self.threads.drain(..) {
            // A panic there has been printed, and the figures that it spoiled are errors already.
            let _ended = thread.join();
        }
    }
}

fn certificates(error: IssueError) -> BenchError {
    BenchError::Agents(format!("they have no certificates: {error}"))
}

fn disk(error: FileError) -> BenchError {
    BenchError::System(std::io::Error::other(error))
}

async fn serve(
    sockets: Sockets,
    options: AgentOptions,
    up: std::sync::mpsc::Sender<std::io::Result<AgentHandle>>,
    stop: CancellationToken,
) {
    let started = (|| {
        let data = tokio::net::TcpListener::from_std(sockets.data)?;
        let grpc = tokio::net::TcpListener::from_std(sockets.grpc)?;
        let handle = agent::start(options);
        let gateway = Gateway::new(handle.clone());
        tokio::spawn(peers::listen(data, handle.link_keys.clone(), handle.events.clone(), stop.clone()));
        tokio::spawn(gateway::grpc::serve(grpc, gateway.clone(), stop.clone()));
        let server = gateway::http::serve(sockets.http, gateway)?;
        let stopping = server.handle();
        tokio::spawn(server);
        Ok((handle, stopping))
    })();
    match started {
        Ok((handle, stopping)) => {
            // The starting thread waits for this.
            let _there = up.send(Ok(handle));
            stop.cancelled().await;
            stopping.stop(false).await;
        }
        Err(error) => {
            let _there = up.send(Err(error));
        }
    }
}

/// One row of a tensor `x` of bytes.
pub(super) fn row(bytes: &Bytes) -> Vec<Tensor> {
    vec![Tensor { name: "x".into(), datatype: Datatype::Uint8, shape: vec![1, bytes.len()], data: bytes.clone() }]
}

fn target(addresses: [SocketAddr; 2], pipelines: Vec<v1::PipelineTarget>) -> v1::Target {
    let peers = addresses.iter().zip(1..).map(|(address, agent)| v1::Peer {
        agent,
        data_address: address.to_string(),
        // They live for as long as the measurement, on loopback.
        link_keys: vec![vec![1; LINK_KEY_BYTES]],
        ..Default::default()
    });
    let fence = Some(v1::Fence { incarnation: 1, generation: 1 });
    v1::Target { fence, agents: peers.collect(), pipelines, ..Default::default() }
}

fn pipelines() -> Vec<v1::PipelineTarget> {
    vec![
        pipeline(NEAR, 1, 1, ("UINT8", HOP_BYTES), ("UINT8", HOP_BYTES), 8),
        pipeline(FAR, 2, 2, ("UINT8", HOP_BYTES), ("UINT8", HOP_BYTES), 8),
        pipeline(LARGE, 3, 2, ("UINT8", LARGE_BYTES), ("UINT8", 1), 1),
        pipeline(FEW, 4, 1, ("FP32", FEW_NUMBERS), ("FP32", FEW_NUMBERS), 8),
    ]
}

/// A pipeline of one task and one replica whose batches take no time.
fn pipeline(
    name: &str,
    id: u64,
    agent: u64,
    input: (&str, usize),
    output: (&str, usize),
    batch: u32,
) -> v1::PipelineTarget {
    let spec = |name: &str, (datatype, size): (&str, usize)| v1::TensorSpec {
        name: name.into(),
        datatype: datatype.into(),
        shape: vec![-1, size as i64],
    };
    let group = v1::GroupTarget {
        group: id,
        variant: name.into(),
        hardware: "none".into(),
        batch,
        service: vec![v1::ServicePoint { batch: 1, latency_ns: 0 }],
        ..Default::default()
    };
    v1::PipelineTarget {
        name: name.into(),
        slo_ns: 60_000_000_000,
        tasks: vec![v1::TaskTarget {
            name: name.into(),
            inputs: vec![spec("x", input)],
            outputs: vec![spec("y", output)],
            ..Default::default()
        }],
        groups: vec![group],
        replicas: vec![v1::ReplicaTarget { replica: id, group: id, agent, device: 0 }],
        tables: vec![v1::Table { from: None, to_task: 0, entries: vec![v1::TableEntry { group: id, fraction: 1.0 }] }],
        ..Default::default()
    }
}
