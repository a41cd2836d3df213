//! Which events change several concerns of an agent at once, and in which order?
//!
//! Example: a new target renumbers the loaded replicas first. Then it comes into force, is steered, and the replicas follow
//! it.

use super::driver::Node;
use super::swap::{drain_all_replicas, follow_layout, unload_failed_replicas, unload_retired_replicas};
use crate::layout::Layout;
use std::collections::BTreeSet;
use std::sync::Arc;

impl Node {
    /// A new target comes into force.
    pub(super) fn apply_target(&mut self, layout: Arc<Layout>) {
        let traffic = &mut self.traffic;
        if traffic.site.is_leaving() {
            return;
        }
        unload_failed_replicas(traffic);
        self.swap.renumber_replicas(traffic, &layout);
        traffic.fleet.replace_target(&layout, traffic.site.now_ns());
        traffic.gateway.forget_choosers();
        self.steering.follow_target(&layout, traffic);
        follow_layout(traffic, None);
        self.swap.remember_ready_counts(&traffic.fleet);
    }

    /// Time has passed.
    pub(super) fn tick(&mut self) {
        let traffic = &mut self.traffic;
        traffic.check_silence();
        self.swap.drain_yielding_replica(traffic);
        unload_retired_replicas(traffic);
        self.steering.tick(traffic);
        let (peers, layout) = (traffic.fleet.peers(), traffic.fleet.layout());
        let reached = peers.connected().map(|(agent, _)| agent).filter(|agent| layout.agents.contains_key(agent));
        let reached: BTreeSet<u64> = reached.collect();
        self.hops.ping_if_due(&mut traffic.site, &reached);
        traffic.expire_meetings();
        traffic.expire_parked_queries();
        traffic.check_due_requests();
        traffic.resume_waiting_requests();
        traffic.run_offline();
    }

    /// From now on the agent takes no requests, no queries of other agents and no targets.
    pub(super) fn stop_taking_work(&mut self) {
        self.traffic.site.leave();
        drain_all_replicas(&mut self.traffic);
    }
}
