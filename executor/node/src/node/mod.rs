//! What does an agent do about each event?
//!
//! The agent's loop owns one [`Node`]. [`Node::handle`] takes an event, and [`Node::flush`] returns the actions that the
//! loop carries out. So nothing here waits, reads a clock or touches a socket. The same events at the same times give the
//! same actions.
//!
//! Example: a replica's agent is lost while it holds a query. The sender has kept the query, because `Taken` has not come
//! back. It sends the query to another ready replica. So a query can run twice, and its part of the request can come back
//! twice; the gateway recognises the second one by its credit (`Covered`).
//!
//! An agent that has taken a query, and is lost before it passed the query's children on, loses them without a trace. So
//! each gateway that loses an agent runs its unanswered requests again (`Attempt` of the gateway). A request whose parts
//! still do not come back is given up after a while. Every request gets exactly one answer.
//!
//! The parts: [`Node`] hands each event to one of three parts. `traffic` decides the way of each query. `swap` brings the
//! replicas from one target to the next. `steering` adapts them to the load between two targets. They stand over
//! concerns, each of which owns its state: the site (clock, number, actions), the fleet (target, agents, routes), the
//! replicas, the central queues, the gateway (clients' requests), the tallies, the cancelled requests and the times of
//! hops.

mod cancelled;
pub mod counts;
mod covered;
mod driver;
mod event;
mod fleet;
mod gateway;
mod hops;
mod queues;
mod replicas;
pub mod request;
pub mod route;
mod site;
mod spans;
pub mod split;
mod steering;
mod swap;
mod tallies;
mod traffic;
mod transitions;
mod work;

pub use cancelled::CANCELLED_MAX;
pub use driver::Node;
pub use event::{Action, NodeEvent, RefusedMessage, RenumberedReplica, RunSpread};
pub use gateway::{SUSPECTS_MAX, WAITING_MAX};
pub use hops::{ANSWER_NS_MAX, HOP_SAMPLES_MAX, MeasuredHop, PINGS_PER_SECOND_MAX};
pub use replicas::replica;
pub use steering::HostedHeadroom;
pub use traffic::{MEETINGS_MAX, OFFLINE_MAX, PARKED_MAX};
pub use work::{LocalQuery, QuerySender};

#[cfg(test)]
mod tests;
