//! What does an agent do about each event?
//!
//! The agent's loop owns one [`Node`]. [`Node::handle`] takes an event, and [`Node::flush`] returns the actions that the
//! loop carries out. So nothing here waits, reads a clock or touches a socket. The same events at the same times give the
//! same actions.
//!
//! Example: a replica's agent is lost while it holds a query. The sender has kept the query, because `Taken` has not come
//! back. It sends the query to another ready replica. So a query can run twice, and its part of the request can come back
//! twice; the gateway recognises the second one by its credit ([`request::Covered`]).
//!
//! An agent that has taken a query, and is lost before it passed the query's children on, loses them without a trace. So
//! each gateway that loses an agent runs its unanswered requests again ([`request::Attempt`]). A request whose parts
//! still do not come back is given up after a while. Every request gets exactly one answer.

mod alone;
mod availability;
mod batch;
mod cancel;
mod cancelled;
mod choose;
pub mod counts;
mod deliver;
mod event;
mod extras;
mod ingress;
mod load;
mod meet;
mod meetings;
mod moves;
mod offline;
mod parked;
pub mod peers;
mod release;
mod renumber;
pub mod replica;
mod replicas;
pub mod request;
mod requests;
pub mod route;
mod sent;
mod spans;
pub mod split;
mod state;
mod steer;
mod steers;
mod suspects;
mod swap;
mod work;

pub use cancelled::CANCELLED_MAX;
pub use event::{Action, Event, RefusedMessage};
pub use meetings::MEETINGS_MAX;
pub use offline::OFFLINE_MAX;
pub use parked::PARKED_MAX;
pub use state::Node;
pub use suspects::SUSPECTS_MAX;
pub use work::{Sender, Work};

use crate::wire::Message;
use peers::Announcement;

impl Node {
    /// Takes an event at `now_ns` of the agent's clock; [`Node::flush`] follows after all events of one moment.
    pub fn handle(&mut self, now_ns: u64, event: Event) {
        self.now_ns = self.now_ns.max(now_ns);
        match event {
            Event::Target(layout) => self.apply_target(layout),
            Event::AgentNumber(agent) => self.set_agent_number(agent),
            Event::Arrive { pipeline, inputs, terms, caller } => self.accept_request(pipeline, inputs, terms, caller),
            Event::Message(message) => self.receive_message(message),
            Event::Unsent { hop, why } => self.shed_query(hop, &why),
            Event::PeerUp(agent) => {
                self.peers.connect(agent, self.now_ns);
                self.announce();
                self.reroute();
            }
            Event::PeerDown(agent) => self.handle_peer_loss(agent),
            Event::Replica(replica, happened) => self.handle_replica_event(replica, happened),
            Event::Tick => self.tick(),
            Event::Wake => self.wake(),
            Event::Announce => {
                self.roll_loads();
                self.report_to_choosers();
                self.announce();
            }
            Event::Leave => self.stop_taking_work(),
        }
        self.cancel_queued_queries();
    }

    /// Starts batches and gives what is to be done for all events since the last call.
    pub fn flush(&mut self) -> Vec<Action> {
        while !self.touched.is_empty() || !self.misfits.is_empty() {
            self.start_batches();
            self.fail_misfits();
            self.cancel_queued_queries();
        }
        std::mem::take(&mut self.actions)
    }

    fn receive_message(&mut self, message: Message) {
        match message {
            Message::Ready { agent, replicas, coming, yielding, loads, failed } => {
                let is_back = self.peers.note_heard_from(agent, self.now_ns);
                let (loads, failed) = (loads.into_iter().collect(), failed.into_iter().collect());
                let announcement = Announcement { ready: replicas, coming, yielding, loads, failed };
                if self.peers.replace_announcement(agent, announcement) || is_back {
                    self.reroute();
                }
            }
            Message::Query { from, hop, query } => {
                self.peers.note_heard_from(from, self.now_ns);
                let deadline_ns = self.now_ns.cast_signed().saturating_add(query.budget_ns);
                self.accept_query(Work {
                    query,
                    deadline_ns,
                    from: Sender::Agent { agent: from, hop },
                    arrived_ns: self.now_ns,
                });
            }
            Message::Taken { hop } => {
                if let Some(sent) = self.sent.remove(hop) {
                    self.end_hop(&sent, None);
                    self.release_ticket(&sent.query, sent.ticket);
                }
            }
            Message::Return(part) => self.receive_return(part),
            Message::Part(part) => self.receive_join_part(part),
            Message::Cancel { origin, request } => self.cancel(origin, request),
            Message::Measured(told) => self.receive_measurement(&told),
            Message::Steering(told) => self.receive_steering(told),
        }
    }
}

#[cfg(test)]
mod tests;
