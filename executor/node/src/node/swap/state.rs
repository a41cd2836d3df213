//! How does a new plan take over devices that are full?
//!
//! Example: a device is full with replica 1, and the new target wants replica 2 there. Replica 1 drains first, if its task
//! has another replica, and replica 2 loads then.
//!
//! A new replica loads beside the old ones where there is room. Where there is none it is blocked, and an old replica
//! leaves first: one drains, one loads. Each task keeps all its replicas but one. Agents agree without a leader: each
//! announces which of its replicas would yield. After a moment, in which the others hear it, the replica with the lowest
//! number of its task leaves, if the task can spare it.

use super::renumber::Renumbering;
use crate::layout::Layout;
use crate::node::fleet::FleetState;
use crate::node::replicas::{LocalReplica, ReplicaPhase};
use crate::node::traffic::TrafficState;
use crate::wire::PendingReplica;
use std::collections::BTreeMap;

/// From when a replica would yield to when it may: others hear of it meanwhile.
const HEARD_NS: u64 = 100_000_000;
/// After so long without any change of the ready or loading replicas, a task gives up more than one of its replicas. Then
/// tasks wait for each other, or a replica of another agent has failed.
const STALLED_NS: u64 = 1_000_000_000;

/// An agent's memory of a change of plan.
#[derive(Debug, Default)]
pub struct PlanSwap {
    /// Ready replicas of each (pipeline, task) when the target came, at most as many as it wants.
    had: BTreeMap<(String, String), usize>,
    /// Since when a replica here would yield.
    yields: BTreeMap<u64, u64>,
    renumbering: Renumbering,
}

impl PlanSwap {
    /// A new target has come: remembers how many replicas each task has.
    pub fn remember_ready_counts(&mut self, fleet: &FleetState) {
        self.had.clear();
        self.yields.clear();
        for (name, of) in &fleet.layout().pipelines {
            for (at, task) in of.tasks.iter().enumerate() {
                let wanted = of.replicas.iter().filter(|r| of.groups[&r.group].task == at).count();
                let ready = fleet.routes().replicas(name, &task.name).count();
                self.had.insert((name.clone(), task.name.clone()), wanted.min(ready));
            }
        }
    }

    /// Gives the loaded replicas the numbers that a new target has for them.
    pub fn renumber_replicas(&mut self, traffic: &mut TrafficState, layout: &Layout) {
        self.renumbering.renumber_replicas(traffic, layout);
    }

    /// Lets an old replica go where a new one waits for its room, if its task can spare it.
    pub fn drain_yielding_replica(&mut self, traffic: &mut TrafficState) {
        let now_ns = traffic.site.now_ns();
        let yielding = traffic.replicas.yielding();
        let before = self.yields.len();
        self.yields.retain(|id, _| yielding.contains(id));
        yielding.iter().for_each(|id| _ = self.yields.entry(*id).or_insert(now_ns));
        if self.yields.len() > before {
            traffic.fleet.announce(&mut traffic.site, &traffic.replicas);
        }
        let heard = |id: &u64| now_ns >= self.yields[id] + HEARD_NS;
        // One for each device at a time: the room that it frees may be enough.
        let is_draining = |r: &&LocalReplica| matches!(r.state, ReplicaPhase::Draining(_));
        let draining: Vec<u32> = traffic.replicas.iter().filter(is_draining).map(|r| r.device).collect();
        let goes = yielding.into_iter().find(|id| {
            let replica = traffic.replicas.get(*id);
            heard(id) && replica.is_some_and(|r| !draining.contains(&r.device) && self.is_spared(traffic, r))
        });
        if let Some(replica) = goes.and_then(|id| traffic.replicas.get_mut(id)) {
            replica.state = ReplicaPhase::Draining(now_ns);
            tracing::info!(replica = replica.id, "an old replica makes room for a new one");
            traffic.publish_replica_changes();
        }
    }

    /// Whether a replica that would yield is the first of its task to go, and its task can do without it.
    fn is_spared(&self, traffic: &TrafficState, replica: &LocalReplica) -> bool {
        let fleet = &traffic.fleet;
        let (pipeline, task) = (&replica.pipeline, &replica.task().name);
        let Some(of) = fleet.pipeline(pipeline) else { return true };
        let Some(at) = of.position(task) else { return true };
        let ready: Vec<u64> = fleet.routes().replicas(pipeline, task).collect();
        let others = fleet.peers().connected().flat_map(|(_, announced)| &announced.yielding);
        if others.chain(self.yields.keys()).any(|id| *id < replica.id && ready.contains(id)) {
            return false;
        }
        let left = ready.iter().filter(|id| **id != replica.id).count();
        let here = traffic.replicas.iter().filter_map(LocalReplica::coming_announcement);
        let there = fleet.peers().connected().flat_map(|(_, announced)| announced.coming.iter().copied());
        let coming: Vec<PendingReplica> = here.chain(there).collect();
        let is_quiet = traffic.site.now_ns() >= fleet.changed_ns() + STALLED_NS;
        let is_stalled = is_quiet && coming.iter().all(|c| c.is_blocked);
        let had = self.had.get(&(pipeline.clone(), task.clone())).copied().unwrap_or(0);
        let enough = if is_stalled { 1 } else { had.saturating_sub(1).max(1) };
        if left >= enough {
            return true;
        }
        // The last one goes only if its successors wait for nothing but its device: its queries wait meanwhile.
        let of_task = of.replicas.iter().filter(|r| of.groups[&r.group].task == at);
        let mut successors = of_task.filter(|r| coming.iter().any(|c| c.replica == r.id)).peekable();
        let place = (traffic.site.agent(), replica.device);
        let is_pressed = successors.peek().is_some() && successors.all(|r| (r.agent, r.device) == place);
        left == 0 && (is_pressed || is_stalled)
    }
}
