//! What does an agent do about each event? The driver hands it to the concern that decides.

use super::counts::ReportCounts;
use super::event::{Action, NodeEvent};
use super::fleet::Announcement;
use super::gateway::Arrival;
use super::hops::{HopMeter, MeasuredHop};
use super::replicas::LocalReplica;
use super::steering::{HostedHeadroom, SteeringState};
use super::swap::{PlanSwap, handle_replica_event};
use super::traffic::TrafficState;
use crate::layout::Layout;
use crate::wire::Message;
use std::sync::Arc;

/// One agent: its traffic, its change from target to target, and its steering between two targets.
pub struct Node {
    pub(super) traffic: TrafficState,
    pub(super) swap: PlanSwap,
    pub(super) steering: SteeringState,
    pub(super) hops: HopMeter,
}

impl Node {
    /// An agent without a target. `first_request` must differ between the lives of an agent, so that an answer to an
    /// earlier life's request is not taken for one of this life's.
    #[must_use]
    pub fn new(agent: u64, first_request: u64) -> Self {
        Self {
            traffic: TrafficState::new(agent, first_request),
            swap: PlanSwap::default(),
            steering: SteeringState::default(),
            hops: HopMeter::default(),
        }
    }

    /// Takes an event at `now_ns` of the agent's clock; [`Node::flush`] follows after all events of one moment.
    pub fn handle(&mut self, now_ns: u64, event: NodeEvent) {
        let traffic = &mut self.traffic;
        traffic.site.advance_clock(now_ns);
        match event {
            NodeEvent::Target(layout) => self.apply_target(layout),
            NodeEvent::AgentNumber(agent) => traffic.site.set_agent_number(agent),
            NodeEvent::Arrive { pipeline, inputs, terms, caller } => {
                traffic.accept_request(Arrival { pipeline, inputs, terms, caller });
            }
            NodeEvent::ClientGone(caller) => traffic.abandon_request(caller),
            NodeEvent::Message(message) => self.receive_message(message),
            NodeEvent::Unsent { hop, why } => traffic.shed_query(hop, &why),
            NodeEvent::PeerUp(agent) => traffic.connect_peer(agent),
            NodeEvent::PeerDown(agent) => traffic.handle_peer_loss(agent),
            NodeEvent::Replica { replica, event } => handle_replica_event(traffic, replica, event),
            NodeEvent::Tick => self.tick(),
            NodeEvent::Wake => traffic.wake_stations(),
            NodeEvent::Announce => traffic.announce_loads(),
            NodeEvent::Leave => self.stop_taking_work(),
        }
        self.traffic.cancel_queued_queries();
    }

    /// Starts batches and gives what is to be done for all events since the last call.
    pub fn flush(&mut self) -> Vec<Action> {
        self.traffic.run_batches();
        self.traffic.site.take_actions()
    }

    fn receive_message(&mut self, message: Message) {
        let traffic = &mut self.traffic;
        match message {
            Message::Ready { agent, replicas, coming, yielding, loads, failed } => {
                let (loads, failed) = (loads.into_iter().collect(), failed.into_iter().collect());
                traffic.receive_announcement(agent, Announcement { ready: replicas, coming, yielding, loads, failed });
            }
            Message::Query { from, hop, query } => traffic.receive_query(from, hop, query),
            Message::Batch { from, queries } => traffic.receive_batch(from, queries),
            Message::Taken { hop } => traffic.end_hop(hop),
            Message::Return(part) => traffic.receive_return(part),
            Message::Part(part) => traffic.receive_join_part(part),
            Message::Cancel { origin, request } => traffic.cancel(origin, request),
            Message::Measured(told) => {
                self.steering.receive_measurement(&told, &mut traffic.site, &traffic.fleet);
            }
            Message::Steering(told) => self.steering.receive_steering(told, traffic),
            Message::Ping { from: asker, number } => {
                let from = traffic.site.agent();
                traffic.site.send(asker, Message::Pong { from, number });
            }
            Message::Pong { from, number } => self.hops.receive_answer(from, number, traffic.site.now_ns()),
        }
    }

    /// When the next station is due, in nanoseconds of the agent's clock. The loop feeds [`NodeEvent::Wake`] at that
    /// moment.
    #[must_use]
    pub fn wake_ns(&self) -> Option<u64> {
        self.traffic.replicas.wake_ns().into_iter().chain(self.traffic.queues.wake_ns()).min()
    }

    /// The target in force.
    #[must_use]
    pub fn layout(&self) -> &Arc<Layout> {
        self.traffic.fleet.layout()
    }

    /// The replicas of this agent, in the order of their numbers.
    pub fn replicas(&self) -> impl Iterator<Item = &LocalReplica> {
        self.traffic.replicas.iter()
    }

    /// Whether requests for the pipeline are taken and all its tasks can be reached.
    #[must_use]
    pub fn ready(&self, pipeline: &str) -> bool {
        !self.traffic.site.is_leaving() && self.traffic.fleet.reaches_all_tasks(pipeline)
    }

    /// Whether each of the target's replicas here has come up or failed. Extra replicas do not count.
    #[must_use]
    pub fn is_target_applied(&self) -> bool {
        self.traffic.replicas.is_target_applied()
    }

    /// Requests that are not yet answered, queries that wait or run here, and those whose next agent has not yet finished
    /// them.
    #[must_use]
    pub fn unfinished(&self) -> usize {
        self.traffic.unfinished()
    }

    /// How long messages take to the other agents, by their numbers.
    pub fn hops(&self) -> impl Iterator<Item = MeasuredHop> {
        self.hops.hops()
    }

    /// The headrooms of the ladders whose stewards this agent hosts, as far as the misses move them, by pipeline.
    pub fn headrooms(&self) -> impl Iterator<Item = (&String, HostedHeadroom)> {
        self.steering.headrooms()
    }

    /// What was counted since the last call.
    pub fn take_counts(&mut self) -> ReportCounts {
        self.traffic.tallies.take_counts()
    }
}
