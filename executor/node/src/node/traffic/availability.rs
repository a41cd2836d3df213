//! How do the agents and replicas that come and go change the way of queries?
//!
//! Example: agent 2 is lost. The routes lead to other replicas from then on, the queries that agent 2 had taken go there,
//! and the requests of this gateway run again if they stay unanswered.

use super::state::TrafficState;
use crate::node::event::Action;
use crate::node::fleet::Announcement;

impl TrafficState {
    /// A connection to an agent is up.
    pub fn connect_peer(&mut self, agent: u64) {
        self.fleet.peers_mut().connect(agent, self.site.now_ns());
        self.fleet.announce(&mut self.site, &self.replicas);
        self.reroute();
    }

    /// An agent is lost: its replicas get no more queries, and the queries that it had taken go elsewhere.
    pub fn handle_peer_loss(&mut self, agent: u64) {
        if !self.fleet.peers_mut().disconnect(agent) {
            return;
        }
        self.reroute();
        self.resend_queries_of(agent);
        self.gateway.plan_retries(&self.site, &self.fleet);
    }

    /// An agent has announced its replicas.
    pub fn receive_announcement(&mut self, agent: u64, announcement: Announcement) {
        let is_back = self.fleet.peers_mut().note_heard_from(agent, self.site.now_ns());
        if self.fleet.peers_mut().replace_announcement(agent, announcement) || is_back {
            self.reroute();
        }
    }

    /// Ends the period in which the loads were measured: choosers, other agents and the control plane hear of them.
    pub fn announce_loads(&mut self) {
        self.share_queue_lengths();
        if self.replicas.roll_loads(self.site.now_ns()) {
            self.site.push(Action::Acknowledge);
        }
        self.gateway.report_loads(&self.site, &self.fleet, &self.replicas);
        self.fleet.announce(&mut self.site, &self.replicas);
    }

    /// A replica of each central queue here says how many queries wait in it.
    fn share_queue_lengths(&mut self) {
        self.replicas.iter_mut().for_each(|replica| replica.in_group_queue = 0);
        for queue in self.queues.iter() {
            if let Some(replica) = self.replicas.iter_mut().find(|replica| queue.is_of(replica)) {
                replica.in_group_queue = queue.waiting();
            }
        }
    }

    /// Announces the replicas if that is due, and gives up the agents that have been silent for too long.
    pub fn check_silence(&mut self) {
        let now_ns = self.site.now_ns();
        self.fleet.peers_mut().tick(now_ns);
        self.fleet.announce_if_due(&mut self.site, &self.replicas);
        for agent in self.fleet.peers().newly_silent(now_ns) {
            tracing::warn!(agent, "an agent has missed three announcements: it is lost until it speaks");
            self.handle_peer_loss(agent);
            self.fleet.peers_mut().mark_silent(agent);
        }
    }

    /// Makes the routes anew, and sends the queries on that waited for a replica.
    fn reroute(&mut self) {
        self.fleet.reroute(&self.site, &self.replicas);
        self.queues.mark_stale();
        self.resume_parked();
    }

    /// Replicas here have come, gone or changed: routes, other agents and the control plane follow.
    pub fn publish_replica_changes(&mut self) {
        self.reroute();
        self.fleet.announce(&mut self.site, &self.replicas);
        self.site.push(Action::Acknowledge);
    }
}
