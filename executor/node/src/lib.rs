//! The agent's core: which replica serves a query, what happens to its outputs, and when a request is answered.
//!
//! The crate does no input or output. The agent's loop (crate `executor`) gives the [`node::Node`] events with their
//! times, and the node returns actions that the loop carries out. What belongs here: every decision of an agent, the
//! messages between agents, and their encoding. What never does: sockets, threads, files and clocks. The commonest
//! addition is a variant of [`node::NodeEvent`] or [`node::Action`], with its frame in [`record`].
pub mod chooser;
pub mod frames;
pub mod greeting;
pub mod ladder;
pub mod layout;
pub mod node;
pub mod policies;
pub mod record;
pub mod replica_event;
pub mod spare;
pub mod steering;
pub mod tensor;
pub mod trace;
pub mod transforms;
pub mod unwire;
pub mod wire;
