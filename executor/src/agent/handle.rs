//! What can the other parts of an agent ask of its loop, and what do they see of its node?

use crate::backend::{BackendKind, BackendLoader, Provider};
use crate::devices::Devices;
use crate::files::{FileError, Files, Source};
use crate::peers::LinkKeys;
use crate::status::Status;
use crate::telemetry::Tracer;
use apportion_node::layout::Layout;
use apportion_node::node::counts::{Batches, ChoiceCounts, Labels};
use apportion_node::node::request::{RequestAnswer, RequestTerms};
use apportion_node::node::{HostedHeadroom, NodeEvent};
use apportion_node::tensor::Tensor;
use apportion_node::wire::ReplicaLoad;
use apportion_protocol::v1;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{broadcast, mpsc, oneshot, watch};

/// A command to the loop.
pub enum AgentCommand {
    /// The control plane has registered this agent: the agent's number, which holds from the next target on, and where
    /// the files are.
    Welcome(u64, Source),
    /// A new target of the control plane.
    Target(Box<v1::Target>),
    /// Measure one batch size for a profile job.
    Measure(Box<v1::Measure>),
    /// The claim with this number has ended.
    StopMeasuring(u64),
    /// The file of a replica is there, or cannot be fetched.
    File(FetchedFile),
    /// Keep the certificates for the next start: there is a new one.
    KeepCertificates,
    /// Send the counts since the last report.
    Report(oneshot::Sender<v1::Report>),
    /// Send the number of unfinished requests and queries.
    Unfinished(oneshot::Sender<usize>),
    /// Take nothing new. The agent is about to stop.
    Leave,
}

/// The file of a replica that is being loaded.
pub struct FetchedFile {
    /// The number of the loading.
    pub loading: u64,
    /// The file, or why there is none; `Ok(None)` if the backend needs no file.
    pub file: Result<Option<PathBuf>, Arc<FileError>>,
    /// How long it took until the file was here and checked.
    pub took: Duration,
}

/// A client's request on its way to the node.
pub struct ClientRequest {
    /// The pipeline.
    pub pipeline: String,
    /// At least one row, valid for the pipeline's root.
    pub inputs: Vec<Tensor>,
    /// What the client asks for beyond the inputs.
    pub terms: RequestTerms,
    /// Where the one answer goes.
    pub reply: oneshot::Sender<RequestAnswer>,
    /// Whether its client still waits for it.
    pub presence: ClientPresence,
}

/// Whether a client still waits for the answer of its request. The gateway says when it has gone.
#[derive(Clone, Debug, Default)]
pub struct ClientPresence(Arc<Mutex<Presence>>);

/// What is known of a client.
#[derive(Debug, Default)]
enum Presence {
    /// It waits, and the loop has not taken its request yet.
    #[default]
    New,
    /// It waits under this number of the loop, which hears of its end.
    Taken { caller: u64, gone: GoneClients },
    /// It has gone.
    Gone,
}

impl ClientPresence {
    /// The client has gone.
    pub fn end(&self) {
        let before = std::mem::replace(&mut *lock(&self.0), Presence::Gone);
        if let Presence::Taken { caller, gone } = before {
            gone.add(caller);
        }
    }

    /// The loop has taken the request of the client under this number, and looks for its end in `gone`.
    pub(super) fn take_as(&self, caller: u64, gone: &GoneClients) {
        let mut presence = lock(&self.0);
        if matches!(*presence, Presence::Gone) {
            gone.add(caller);
        } else {
            *presence = Presence::Taken { caller, gone: gone.clone() };
        }
    }

    /// Whether the client has gone.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        matches!(*lock(&self.0), Presence::Gone)
    }
}

/// The numbers of clients that have gone, until the loop takes them. There are no more than requests that the gateway has
/// admitted since the last tick.
#[derive(Clone, Debug, Default)]
pub(super) struct GoneClients(Arc<Mutex<Vec<u64>>>);

impl GoneClients {
    fn add(&self, caller: u64) {
        lock(&self.0).push(caller);
    }

    /// Those that have gone since the last call.
    pub(super) fn take(&self) -> Vec<u64> {
        std::mem::take(&mut *lock(&self.0))
    }
}

/// A thread that panicked here has changed nothing by half.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The state of the node, as the gateway sees it.
#[derive(Clone, Default)]
pub struct NodeView {
    /// The number of this agent in the target in force; 0 if there is none.
    pub agent: u64,
    /// The target in force.
    pub layout: Arc<Layout>,
    /// Pipelines whose tasks all have a ready replica.
    pub ready: Arc<BTreeSet<String>>,
    /// Replicas and the length of their queues, running queries included.
    pub queues: Arc<Vec<(u64, usize)>>,
    /// How the replicas were used up to the last announcement.
    pub loads: Arc<BTreeMap<u64, ReplicaLoad>>,
    /// Requests by pipeline since the agent's start: ok, late, dropped, failed.
    pub totals: Arc<BTreeMap<String, [u64; 4]>>,
    /// Choices of variants by pipeline since the agent's start.
    pub choices: Arc<BTreeMap<String, ChoiceCounts>>,
    /// Batches since the agent's start.
    pub batches: Arc<BTreeMap<Labels, Batches>>,
    /// The headrooms of the ladders whose stewards this agent hosts, as far as the misses move them, by pipeline.
    pub headrooms: Arc<BTreeMap<String, HostedHeadroom>>,
    /// How this agent's batches are run.
    pub backend: BackendKind,
    /// What its variants run on, where that is its to say.
    pub provider: Option<Provider>,
}

impl NodeView {
    /// Whether there is a target and all its pipelines are ready.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.layout.fence.is_some() && self.layout.pipelines.keys().all(|p| self.ready.contains(p))
    }
}

/// Ends of the loop.
#[derive(Clone)]
pub struct AgentHandle {
    /// Events of the node, save requests.
    pub events: mpsc::Sender<NodeEvent>,
    /// Requests to the node.
    pub requests: mpsc::Sender<ClientRequest>,
    /// Into the loop.
    pub commands: mpsc::Sender<AgentCommand>,
    /// What the gateway sees.
    pub view: watch::Receiver<NodeView>,
    /// The latest acknowledgement.
    pub ack: watch::Receiver<Option<v1::Ack>>,
    /// Variants that requests wait for, as they are wanted.
    pub wants: broadcast::Sender<v1::VariantWant>,
    /// What became of the latest order to measure.
    pub measured: watch::Receiver<Option<v1::Measurement>>,
    /// Since when the agent's clock runs.
    pub started: Instant,
    /// What can say how the agent's devices are; [`super::start`] knows of none.
    pub devices: Devices,
    /// Where its spans go.
    pub tracer: Option<Arc<Tracer>>,
    /// The keys and certificates of its links, and their protection as the target in force says.
    pub link_keys: LinkKeys,
    /// Whether its parts run, and what the control plane says.
    pub status: Arc<Status>,
}

/// How an agent runs its replicas.
#[derive(Clone)]
pub struct AgentOptions {
    /// How variants are loaded.
    pub loader: BackendLoader,
    /// Batches take at least as long as their profile says.
    pub pace: bool,
    /// Batches of emulated devices take this many times their profile, at least 1.
    pub slowness: f64,
    /// The state directory.
    pub files: Files,
    /// Where all that the node is told is recorded, and what it does.
    pub record: Option<PathBuf>,
    /// Where spans go, if anywhere.
    pub tracer: Option<Arc<Tracer>>,
    /// Processors may sleep between requests, however many come ([`crate::wake_lock`]).
    pub may_sleep: bool,
}
