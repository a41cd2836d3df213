//! What can happen to a node, and what can it ask its loop to do?

use super::request::{RequestAnswer, RequestTerms};
use crate::layout::Layout;
use crate::replica_event::ReplicaEvent;
use crate::tensor::Tensor;
use crate::trace::TraceSpan;
use crate::wire::Message;
use apportion_protocol::v1;
use std::sync::Arc;
use std::time::Duration;

/// What can happen to an agent.
#[derive(Debug)]
pub enum NodeEvent {
    /// A target that the loop has checked. It is newer than the one in force.
    Target(Arc<Layout>),
    /// The control plane gives this agent another number. It holds from the next target on.
    AgentNumber(u64),
    /// A request at the gateway, with at least one row and valid inputs.
    Arrive {
        /// The pipeline.
        pipeline: String,
        /// Its inputs.
        inputs: Vec<Tensor>,
        /// What the request says beyond its inputs.
        terms: RequestTerms,
        /// The loop's number of the client, which [`Action::Answer`] repeats.
        caller: u64,
    },
    /// The client with this number (see [`NodeEvent::Arrive`]) has gone before its answer.
    ClientGone(u64),
    /// A message of another agent.
    Message(Message),
    /// The query of this hop could not be sent.
    Unsent {
        /// This agent's number of the hop.
        hop: u64,
        /// Why not.
        why: String,
    },
    /// A connection to this agent is up.
    PeerUp(u64),
    /// The connection to this agent is lost.
    PeerDown(u64),
    /// A report of a replica's thread.
    Replica {
        /// The replica's number.
        replica: u64,
        /// The report.
        event: ReplicaEvent,
    },
    /// Time has passed.
    Tick,
    /// The moment that [`super::Node::wake_ns`] named has come.
    Wake,
    /// It is time to announce the replicas again.
    Announce,
    /// The agent is about to stop. It finishes its queries and takes no new ones.
    Leave,
}

/// What the loop must do for the node.
#[derive(Debug, PartialEq)]
pub enum Action {
    /// Send a message to another agent.
    Send {
        /// The agent's number.
        agent: u64,
        /// The message.
        message: Message,
    },
    /// Fetch the file with this digest and load the replica.
    Load {
        /// The replica's number.
        replica: u64,
        /// The file's digest, hex.
        digest: String,
    },
    /// Run a batch on a replica.
    Run {
        /// The replica's number.
        replica: u64,
        /// The server of its station that runs the batch: 0, or a slot of a continuous task.
        server: u32,
        /// The batch's inputs.
        inputs: Vec<Tensor>,
        /// The profile's time for it. An agent that paces holds the device so long.
        expected: Duration,
        /// Of a query in a slot, which takes a time of its own around `expected`: the 99th percentile of such times, zero
        /// if it is not known. None for a batch.
        slot_p99: Option<Duration>,
    },
    /// Let the query of a slot leave between two steps: nobody waits for it. The report of the slot's thread follows, and
    /// only then the slot is free.
    LeaveSlot {
        /// The replica's number.
        replica: u64,
        /// The slot.
        server: u32,
    },
    /// Fetch the files with these digests: replicas that need them may come.
    Prefetch(Vec<String>),
    /// Unload the replica.
    Unload(u64),
    /// Replicas get other numbers, all at once.
    Renumber(Vec<RenumberedReplica>),
    /// Acknowledge the target: it, or the state of a replica, has changed.
    Acknowledge,
    /// Export a span that has ended.
    Span(Box<TraceSpan>),
    /// Give the answer of its request to the client with this number.
    Answer {
        /// The number of [`NodeEvent::Arrive`].
        caller: u64,
        /// Its answer.
        answer: RequestAnswer,
    },
    /// Tell the control plane that requests need variants which are not loaded.
    Want(v1::VariantWant),
    /// Count a refused message of another agent.
    CountRefused(RefusedMessage),
}

/// A loaded replica that gets another number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RenumberedReplica {
    /// Its number until now.
    pub from: u64,
    /// Its number from now on.
    pub to: u64,
}

/// A message of another agent that is refused because its numbers are implausible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedMessage {
    /// A steering whose numbers jump, or that adds a replica of an unknown group.
    Steering,
    /// A measurement that nobody can have made.
    Measurement,
}
