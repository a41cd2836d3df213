//! Which replicas of the whole fleet can this agent use, and what does it announce of its own?

use super::replica::Replica;
use super::state::{Node, REPAIR_NS};
use super::{Action, Sender, Work};
use crate::wire::{Announced, Coming, Load, Message};

/// Longest time between two announcements of the replicas here, in nanoseconds.
const ANNOUNCE_NS: u64 = 400_000_000;

impl Node {
    /// Whether requests for the pipeline are taken and all its tasks can be reached.
    #[must_use]
    pub fn ready(&self, pipeline: &str) -> bool {
        !self.leaving
            && self
                .layout
                .pipelines
                .get(pipeline)
                .is_some_and(|p| p.tasks.iter().all(|t| self.routes.reaches(pipeline, &t.name)))
    }

    pub(super) fn handle_peer_loss(&mut self, agent: u64) {
        if !self.peers.disconnect(agent) {
            return;
        }
        self.reroute();
        for sent in self.sent.remove_to(agent) {
            self.end_hop(&sent, Some("its agent was lost"));
            // What was to meet others there cannot meet them elsewhere: its gateway runs the request again.
            if sent.query.waits() {
                continue;
            }
            let (from, arrived_ns) = (Sender::Here(sent.ticket), self.now_ns);
            let work = Work { query: sent.query, deadline_ns: sent.deadline_ns, from, arrived_ns };
            self.pass_on(work, "its agent was lost");
        }
        self.plan_retries();
    }

    /// Announces the replicas if that is due, and gives up the agents that have been silent for too long.
    pub(super) fn check_silence(&mut self) {
        self.peers.tick(self.now_ns);
        if self.now_ns >= self.announced_ns + ANNOUNCE_NS {
            self.announce();
        }
        for agent in self.peers.newly_silent(self.now_ns) {
            tracing::warn!(agent, "an agent has missed three announcements: it is lost until it speaks");
            self.handle_peer_loss(agent);
            self.peers.mark_silent(agent);
        }
    }

    /// Says to all peers which replicas here take queries.
    pub(super) fn announce(&mut self) {
        self.announced_ns = self.now_ns;
        let replicas: Vec<Announced> = self.replicas.values().filter(|r| r.takes()).map(Replica::announced).collect();
        let coming: Vec<Coming> = self.replicas.values().filter_map(Replica::coming).collect();
        let yielding = self.yielding();
        let loads: Vec<(u64, Load)> = self.replicas.values().filter(|r| r.takes()).map(|r| (r.id, r.load)).collect();
        let failed: Vec<u64> = self.replicas.values().filter(|r| r.has_failed()).map(|r| r.id).collect();
        for listener in self.peers.listeners() {
            let (replicas, coming, yielding) = (replicas.clone(), coming.clone(), yielding.clone());
            let (loads, failed) = (loads.clone(), failed.clone());
            let ready = Message::Ready { agent: self.agent, replicas, coming, yielding, loads, failed };
            self.actions.push(Action::Send(listener, ready));
        }
    }

    pub(super) fn reroute(&mut self) {
        let here = self.replicas.values().filter(|r| r.takes()).map(|r| (self.agent, r.announced()));
        // An agent that is not in the target keeps its connection, for what it has asked for, but gets nothing new.
        let usable = |agent: u64| agent != self.agent && self.layout.agents.contains_key(&agent);
        let connected = self.peers.connected().filter(|(agent, _)| usable(*agent));
        let there = connected.flat_map(|(agent, announced)| announced.ready.iter().map(move |r| (agent, r.clone())));
        self.routes.set(self.now_ns, here.chain(there));
        // What nobody else takes goes to a replica that drains here: it still serves what it is given.
        for draining in self.replicas.values().filter(|r| r.is_up() && !r.takes()) {
            self.routes.add_last(self.agent, draining.announced());
        }
        self.swap.changed_ns = self.now_ns;
        self.resume_parked();
    }

    /// Whether a replica of the task, none of which is ready although one was, will be: one is loaded or about to be, or
    /// the last one was lost so lately that a new plan may be on its way. Its queries wait for that.
    pub(super) fn is_coming(&self, pipeline: &str, task: &str) -> bool {
        let Some(of) = self.layout.pipelines.get(pipeline) else { return false };
        let Some(at) = of.position(task) else { return false };
        let is_loading = |id: u64| {
            let here = self.replicas.get(&id).is_some_and(|r| r.coming().is_some());
            here || self.peers.connected().any(|(_, announced)| announced.coming.iter().any(|c| c.replica == id))
        };
        let Some(lost_ns) = self.routes.lost_ns(pipeline, task) else { return false };
        // Others' replicas of a new target are not known to be coming before those have said so.
        let is_new = self.steers.is_settling(self.now_ns) || self.now_ns < lost_ns + REPAIR_NS;
        of.replicas.iter().filter(|r| of.groups[&r.group].task == at).any(|r| is_new || is_loading(r.id))
    }
}
