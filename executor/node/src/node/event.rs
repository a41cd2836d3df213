//! What can happen to a node, and what can it ask its loop to do?

use super::request::{Answer, Terms};
use crate::layout::Layout;
use crate::replica_event::ReplicaEvent;
use crate::tensor::Tensor;
use crate::trace::Span;
use crate::wire::Message;
use std::sync::Arc;
use std::time::Duration;

/// What happens to an agent.
#[derive(Debug)]
pub enum Event {
    /// A checked target that is newer than the one in force.
    Target(Arc<Layout>),
    /// The control plane's number of this agent, from the target on that follows.
    AgentNumber(u64),
    /// A request at the gateway, with at least one row and valid inputs.
    Arrive {
        /// The pipeline.
        pipeline: String,
        /// Its inputs.
        inputs: Vec<Tensor>,
        /// What it says beyond them.
        terms: Terms,
        /// The loop's number of the client, which [`Action::Answer`] repeats.
        caller: u64,
    },
    /// From another agent.
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
    /// From a replica's thread.
    Replica(u64, ReplicaEvent),
    /// Time has passed.
    Tick,
    /// The moment has come that [`Node::wake_ns`] named.
    Wake,
    /// Say again what is ready.
    Announce,
    /// The agent is about to stop: it finishes what it has and takes nothing new.
    Leave,
}

/// What the loop has to do.
#[derive(Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "moved once each; a box would cost an allocation for every query")]
pub enum Action {
    /// To another agent.
    Send(u64, Message),
    /// Fetch the file with this digest and start a slot with it.
    Load(u64, String),
    /// Run a batch on a slot and hold it for as long as its profile says, if the agent paces.
    Run(u64, Vec<Tensor>, Duration),
    /// Fetch the files with these digests, for replicas that may come.
    Prefetch(Vec<String>),
    /// Drop the slot.
    Unload(u64),
    /// Replicas have other numbers from now on: each from the first of a pair to the second, all at once.
    Renumber(Vec<(u64, u64)>),
    /// The replicas' states or the target in force changed: acknowledge.
    Acknowledge,
    /// Send out a span that has ended.
    Span(Box<Span>),
    /// Give the answer of its request to the client with this number.
    Answer(u64, Answer),
    /// Count a refused message of another agent.
    CountRefused(RefusedMessage),
}

/// A message of another agent that is refused because its numbers are implausible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedMessage {
    /// A steering whose numbers jump.
    Steering,
    /// A measurement that nobody can have made.
    Measurement,
}
