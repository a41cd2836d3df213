//! What do agents say to each other, and how is it written? A message is a small header and raw tensor bytes. Tensor
//! bytes are copied neither to be written nor to be read. [`crate::frames`] cuts messages into chunks for a connection.

mod announced;
mod credit;

pub use announced::{Announced, PendingReplica, ReplicaLoad};
pub use credit::Credit;

use crate::frames::Pieces;
use crate::tensor::{Datatype, Tensor};
use crate::trace::TraceContext;
use apportion_protocol::v1;
use bytes::{BufMut, BytesMut};
use prost::Message as _;

/// Smallest tensor, in bytes, that is not copied. Copying a smaller one costs less than a piece of its own.
const SHARED_BYTES_MIN: usize = 2_048;
/// Most dimensions of a tensor.
pub const RANK_MAX: usize = 16;
/// Most queries of a batch that one agent sends to another: no plan has larger batches.
pub const DISPATCHED_MAX: u32 = apportion_domain::pipeline::BATCH_MAX;

/// One query on its way to a replica.
#[derive(Clone, Debug, PartialEq)]
pub struct RoutedQuery {
    /// The pipeline.
    pub pipeline: String,
    /// Name of the task it is for.
    pub task: String,
    /// The replica that its sender chose; 0 if none.
    pub replica: u64,
    /// The agent whose gateway waits for it.
    pub origin: u64,
    /// The gateway's number of the request.
    pub request: u64,
    /// Which row of the request it came from.
    pub row: u32,
    /// Its part of the request.
    pub credit: Credit,
    /// Nanoseconds left until the deadline when it was sent; negative if late. On arrival the receiver adds its own clock.
    pub budget_ns: i64,
    /// How many agents have passed it on because they had no such replica.
    pub hops: u8,
    /// The run of the request that it belongs to. The gateway begins another run when an agent is lost.
    pub attempt: u8,
    /// The group that made it; 0 if the gateway made it or an agent passed it on.
    pub group: u64,
    /// By how much it was late when it was made, in nanoseconds. The choice of its replica depends on it.
    pub behind_ns: u64,
    /// Its importance: the lowest number comes first (see [`crate::policies`]).
    pub level: u32,
    /// Queries with different values share no batch: 0, or the sender's number if it has lately made a batch fail.
    pub apart: u64,
    /// The group that serves it at each task, by position, if its request has chosen them; else empty.
    pub pins: Vec<u64>,
    /// The trace that it belongs to.
    pub trace: Option<TraceContext>,
    /// Forks above it whose joins wait for its results.
    pub scopes: Vec<Scope>,
    /// One row for each input of the task.
    pub inputs: Vec<Tensor>,
}

impl RoutedQuery {
    /// Whether it must wait for other queries at its join.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.scopes.iter().any(|s| s.join == self.task)
    }
}

/// A query of a batch that the holder of a central queue sends to a replica at another agent.
#[derive(Clone, Debug, PartialEq)]
pub struct DispatchedQuery {
    /// The holder's number of this hop.
    pub hop: u64,
    /// How long it has waited in the queue, in nanoseconds.
    pub waited_ns: u64,
    /// The query.
    pub query: RoutedQuery,
}

/// A query of a fork, as its descendants know it: where its parts meet, and which parts they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// Name of the join's task.
    pub join: String,
    /// Name of the fork's task.
    pub fork: String,
    /// The agent at which the parts meet.
    pub agent: u64,
    /// The replica of the join that the fork chose; 0 if none was ready.
    pub replica: u64,
    /// The fork's credit.
    pub credit: Credit,
    /// Which row of the fork's outputs it stems from.
    pub row: u32,
}

/// Tells a join that parts of a fork's query have ended over one edge, and brings their inputs.
#[derive(Clone, Debug, PartialEq)]
pub struct JoinPart {
    /// The pipeline.
    pub pipeline: String,
    /// The agent whose gateway waits for the request.
    pub origin: u64,
    /// The gateway's number of the request.
    pub request: u64,
    /// Row of the request.
    pub row: u32,
    /// Which run of the request it belongs to.
    pub attempt: u8,
    /// Name of the join's task.
    pub join: String,
    /// Name of the fork's task.
    pub fork: String,
    /// Name of the task from which the edge comes.
    pub parent: String,
    /// The fork's credit.
    pub scope: Credit,
    /// The parts of it that have ended.
    pub ended: Vec<Credit>,
    /// The inputs that they have brought.
    pub brought: Vec<JoinInputs>,
}

/// Inputs that one edge brings to the queries of a join.
#[derive(Clone, Debug, PartialEq)]
pub struct JoinInputs {
    /// Row of the fork's outputs from which they stem.
    pub row: u32,
    /// Orders the inputs of one row.
    pub order: u64,
    /// One row each.
    pub inputs: Vec<Tensor>,
}

/// How a part of a request ended.
#[derive(Clone, Debug, PartialEq)]
pub enum PartEnd {
    /// At a sink, with these rows (none: no child rows).
    Leaf {
        /// The sink's name; empty for a query that had no children.
        task: String,
        /// Its outputs.
        outputs: Vec<Tensor>,
    },
    /// The policy has dropped it; the reason.
    Dropped(String),
    /// It has failed; the reason.
    Failed(String),
    /// There was no replica for it.
    NotReady(String),
    /// It has made its batch fail: it failed alone too, while other members succeeded alone. The reason.
    Harmful(String),
}

/// A part of a request coming back to its gateway.
#[derive(Clone, Debug, PartialEq)]
pub struct CreditReturn {
    /// The gateway's number of the request.
    pub request: u64,
    /// Row of the request.
    pub row: u32,
    /// Which run of the request it belongs to.
    pub attempt: u8,
    /// The part that comes back.
    pub credit: Credit,
    /// How it ended.
    pub end: PartEnd,
}

/// A message between agents.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// An announcement of the sender's replicas. It replaces the sender's last one.
    Ready {
        /// The sender's number.
        agent: u64,
        /// Its replicas that take queries.
        replicas: Vec<Announced>,
        /// Replicas of the target in force that are not ready there yet.
        coming: Vec<PendingReplica>,
        /// Replicas of an earlier target that would leave now, to make room for a new one.
        yielding: Vec<u64>,
        /// The loads of its replicas.
        loads: Vec<(u64, ReplicaLoad)>,
        /// Replicas that could not be loaded there, or died.
        failed: Vec<u64>,
    },
    /// A query. The sender keeps it until `Taken` comes back.
    Query {
        /// Who sent it.
        from: u64,
        /// The sender's number of this hop.
        hop: u64,
        /// The query.
        query: RoutedQuery,
    },
    /// The queries of one batch, all for one replica, which runs them together. Each comes back as `Taken`, as a query that
    /// came alone.
    Batch {
        /// Who sent it: the holder of their group's queue.
        from: u64,
        /// The queries, at least one.
        queries: Vec<DispatchedQuery>,
    },
    /// The query of this hop is finished: its children are on their way or its part has been returned.
    Taken {
        /// The number that the query's sender gave to the hop.
        hop: u64,
    },
    /// A part of a request comes back to its gateway.
    Return(CreditReturn),
    /// Parts that a join waits for have ended.
    Part(JoinPart),
    /// A request is answered: its remaining queries are not needed.
    Cancel {
        /// The agent at whose gateway the request came.
        origin: u64,
        /// The gateway's number of it.
        request: u64,
    },
    /// Measurements of a pipeline, for the agent that steers it.
    Measured(v1::Measured),
    /// The steering that is in force between two plans.
    Steering(v1::Steering),
    /// Asks for a [`Message::Pong`] at once: it measures the time of a hop.
    Ping {
        /// Who asks.
        from: u64,
        /// The asker's number of this ping.
        number: u64,
    },
    /// Answers a ping.
    Pong {
        /// Who answers.
        from: u64,
        /// The number of the ping.
        number: u64,
    },
}

/// The agent that speaks, if the message says so.
#[must_use]
pub fn speaker(message: &Message) -> Option<u64> {
    match message {
        Message::Ready { agent, .. } => Some(*agent),
        Message::Query { from, .. } | Message::Batch { from, .. } => Some(*from),
        Message::Ping { from, .. } | Message::Pong { from, .. } => Some(*from),
        Message::Cancel { origin, .. } => Some(*origin),
        Message::Measured(measured) => Some(measured.agent),
        // A steering is also passed on by agents that do not host it.
        Message::Taken { .. } | Message::Return(_) | Message::Part(_) | Message::Steering(_) => None,
    }
}

/// Why a frame is malformed.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FrameError {
    /// It ends too early.
    #[error("the frame is too short")]
    Short,
    /// A field is not what it must be.
    #[error("{0} is not valid")]
    Field(&'static str),
}

/// A message that is being written: finished pieces, and the open one.
#[derive(Default)]
pub(crate) struct MessageWriter {
    pub(crate) pieces: Pieces,
    pub(crate) open: BytesMut,
}

impl MessageWriter {
    pub(crate) fn close(&mut self) {
        if !self.open.is_empty() {
            self.pieces.push_back(self.open.split().freeze());
        }
    }
}

/// The message's bytes.
#[must_use]
pub fn encode(message: &Message) -> Pieces {
    let mut out = MessageWriter::default();
    match message {
        Message::Ready { .. } => put_ready(&mut out, message),
        Message::Query { from, hop, query } => {
            out.open.put_u8(2);
            out.open.put_u64(*from);
            out.open.put_u64(*hop);
            put_query(&mut out, query);
        }
        Message::Batch { from, queries } => {
            out.open.put_u8(11);
            out.open.put_u64(*from);
            put_batch(&mut out, queries);
        }
        Message::Taken { hop } => {
            out.open.put_u8(3);
            out.open.put_u64(*hop);
        }
        Message::Return(part) => {
            out.open.put_u8(4);
            out.open.put_u64(part.request);
            out.open.put_u32(part.row);
            out.open.put_u8(part.attempt);
            put_credit(&mut out, part.credit);
            put_end(&mut out, &part.end);
        }
        Message::Part(part) => {
            out.open.put_u8(5);
            put_part(&mut out, part);
        }
        Message::Cancel { origin, request } => {
            out.open.put_u8(6);
            out.open.put_u64(*origin);
            out.open.put_u64(*request);
        }
        Message::Measured(measured) => {
            out.open.put_u8(7);
            out.open.put_slice(&measured.encode_to_vec());
        }
        Message::Steering(steering) => {
            out.open.put_u8(8);
            out.open.put_slice(&steering.encode_to_vec());
        }
        Message::Ping { from, number } => {
            out.open.put_u8(9);
            out.open.put_u64(*from);
            out.open.put_u64(*number);
        }
        Message::Pong { from, number } => {
            out.open.put_u8(10);
            out.open.put_u64(*from);
            out.open.put_u64(*number);
        }
    }
    out.close();
    out.pieces
}

/// Writes an announcement; nothing for any other message.
fn put_ready(out: &mut MessageWriter, message: &Message) {
    let Message::Ready { agent, replicas, coming, yielding, loads, failed } = message else { return };
    out.open.put_u8(1);
    out.open.put_u64(*agent);
    out.open.put_u32(replicas.len() as u32);
    for r in replicas {
        out.open.put_u64(r.replica);
        out.open.put_u64(r.group);
        put_text(out, &r.pipeline);
        put_text(out, &r.task);
        out.open.put_u32(r.accuracy_ppm);
    }
    out.open.put_u32(coming.len() as u32);
    for c in coming {
        out.open.put_u64(c.replica);
        out.open.put_u8(c.is_blocked.into());
    }
    out.open.put_u32(yielding.len() as u32);
    yielding.iter().for_each(|replica| out.open.put_u64(*replica));
    out.open.put_u32(loads.len() as u32);
    for (replica, load) in loads {
        out.open.put_u64(*replica);
        [load.queued, load.served_mqps, load.busy_ppm, load.slowness_ppm].iter().for_each(|n| out.open.put_u32(*n));
        out.open.put_u8(load.is_disturbed.into());
    }
    out.open.put_u32(failed.len() as u32);
    failed.iter().for_each(|replica| out.open.put_u64(*replica));
}

fn put_batch(out: &mut MessageWriter, queries: &[DispatchedQuery]) {
    out.open.put_u32(queries.len() as u32);
    for DispatchedQuery { hop, waited_ns, query } in queries {
        out.open.put_u64(*hop);
        out.open.put_u64(*waited_ns);
        put_query(out, query);
    }
}

fn put_query(out: &mut MessageWriter, query: &RoutedQuery) {
    put_text(out, &query.pipeline);
    put_text(out, &query.task);
    out.open.put_u64(query.replica);
    out.open.put_u64(query.origin);
    out.open.put_u64(query.request);
    out.open.put_u32(query.row);
    put_credit(out, query.credit);
    out.open.put_i64(query.budget_ns);
    out.open.put_u8(query.hops);
    out.open.put_u8(query.attempt);
    out.open.put_u64(query.group);
    out.open.put_u64(query.behind_ns);
    out.open.put_u32(query.level);
    out.open.put_u64(query.apart);
    out.open.put_u16(query.pins.len() as u16);
    query.pins.iter().for_each(|group| out.open.put_u64(*group));
    put_trace(out, query.trace);
    out.open.put_u16(query.scopes.len() as u16);
    for scope in &query.scopes {
        put_text(out, &scope.join);
        put_text(out, &scope.fork);
        out.open.put_u64(scope.agent);
        out.open.put_u64(scope.replica);
        put_credit(out, scope.credit);
        out.open.put_u32(scope.row);
    }
    put_tensors(out, &query.inputs);
}

fn put_part(out: &mut MessageWriter, part: &JoinPart) {
    put_text(out, &part.pipeline);
    out.open.put_u64(part.origin);
    out.open.put_u64(part.request);
    out.open.put_u32(part.row);
    out.open.put_u8(part.attempt);
    put_text(out, &part.join);
    put_text(out, &part.fork);
    put_text(out, &part.parent);
    put_credit(out, part.scope);
    out.open.put_u32(part.ended.len() as u32);
    part.ended.iter().for_each(|credit| put_credit(out, *credit));
    out.open.put_u32(part.brought.len() as u32);
    for brought in &part.brought {
        out.open.put_u32(brought.row);
        out.open.put_u64(brought.order);
        put_tensors(out, &brought.inputs);
    }
}

pub(crate) fn put_end(out: &mut MessageWriter, end: &PartEnd) {
    match end {
        PartEnd::Leaf { task, outputs } => {
            out.open.put_u8(0);
            put_text(out, task);
            put_tensors(out, outputs);
        }
        PartEnd::Dropped(reason) => {
            out.open.put_u8(1);
            put_text(out, reason);
        }
        PartEnd::Failed(reason) => {
            out.open.put_u8(2);
            put_text(out, reason);
        }
        PartEnd::NotReady(reason) => {
            out.open.put_u8(3);
            put_text(out, reason);
        }
        PartEnd::Harmful(reason) => {
            out.open.put_u8(4);
            put_text(out, reason);
        }
    }
}

pub(crate) fn put_trace(out: &mut MessageWriter, trace: Option<TraceContext>) {
    out.open.put_u8(trace.is_some().into());
    if let Some(TraceContext { id, parent }) = trace {
        out.open.put_u128(id);
        out.open.put_u64(parent);
    }
}

fn put_credit(out: &mut MessageWriter, credit: Credit) {
    out.open.put_u64(credit.start);
    out.open.put_u64(credit.len);
}

pub(crate) fn put_text(out: &mut MessageWriter, text: &str) {
    let end = text.floor_char_boundary(usize::from(u16::MAX));
    out.open.put_u16(end as u16);
    out.open.put_slice(&text.as_bytes()[..end]);
}

pub(crate) fn put_tensors(out: &mut MessageWriter, tensors: &[Tensor]) {
    out.open.put_u16(tensors.len() as u16);
    for tensor in tensors {
        put_text(out, &tensor.name);
        let datatype = Datatype::ALL.iter().position(|d| *d == tensor.datatype).expect("it is one of all");
        out.open.put_u8(datatype as u8);
        out.open.put_u8(tensor.shape.len() as u8);
        tensor.shape.iter().for_each(|d| out.open.put_u64(*d as u64));
        out.open.put_u64(tensor.data.len() as u64);
        if tensor.data.len() < SHARED_BYTES_MIN {
            out.open.put_slice(&tensor.data);
        } else {
            out.close();
            out.pieces.push_back(tensor.data.clone());
        }
    }
}
