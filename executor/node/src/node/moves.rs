//! Which disturbed replica moves to another device (INFaaS section 4.1, "mitigating performance degradation")?
//!
//! The host of a pipeline's steward acts when a replica is slower than profiled and shares its device. It adds an extra
//! replica on another device. When the extra replica is ready, the plan's own replica leaves. Replicas move one at a
//! time, so that the measurements are still true when the next one moves.

use super::Node;
use crate::layout::{Pipeline, Replica};
use crate::steering::SLACK;
use apportion_protocol::v1;
use std::collections::BTreeSet;

/// After a move, so long until the next: the disturbed have to be measured anew.
const REST_NS: u64 = 5_000_000_000;

impl Node {
    /// Whether a replica was said to have failed by the agent that should have it.
    pub(super) fn has_failed(&self, r: &v1::ReplicaTarget) -> bool {
        let here = r.agent == self.agent && self.replicas.get(&r.replica).is_some_and(super::replica::Replica::has_failed);
        here || self.peers.has_failed(r.agent, r.replica)
    }

    fn is_disturbed(&self, r: &Replica) -> bool {
        if r.agent == self.agent {
            return self.replicas.get(&r.id).is_some_and(|r| r.load.is_disturbed);
        }
        let announced = self.peers.announcement(r.agent);
        announced.and_then(|announced| announced.loads.get(&r.id)).is_some_and(|load| load.is_disturbed)
    }

    /// Whether another replica, of any pipeline, stands on its device.
    fn shares_device(&self, r: &Replica) -> bool {
        let all = self.layout.pipelines.values().flat_map(|p| &p.replicas);
        all.filter(|other| (other.agent, other.device) == (r.agent, r.device)).any(|other| other.id != r.id)
    }

    /// Begins to move a disturbed replica, if there is one and the last move is over.
    pub(super) fn begin_move(&mut self, name: &str, of: &Pipeline) {
        let Some(hosted) = self.steers.hosted.get(name) else { return };
        let is_moving = hosted.moves.replicas.iter().any(|id| !hosted.last.moved.contains(id));
        if is_moving || self.now_ns < hosted.moves.ended_ns + REST_NS {
            return;
        }
        let stays = |r: &&Replica| !hosted.moves.replicas.contains(&r.id);
        let mut staying = of.replicas.iter().filter(stays);
        let Some(replica) = staying.find(|r| self.is_disturbed(r) && self.shares_device(r)) else { return };
        let group = &of.groups[&replica.group];
        let free = self.free_without(of, &[]);
        let has_room = free.iter().any(|(at, left)| {
            let hardware = self.layout.devices.get(&at.0).map(|(hardware, _)| hardware);
            *at != (replica.agent, replica.device) && hardware == Some(&group.hardware) && left + SLACK >= group.share
        });
        let (id, variant) = (replica.id, group.variant.clone());
        let Some(hosted) = self.steers.hosted.get_mut(name) else { return };
        if has_room {
            tracing::info!(pipeline = name, replica = id, variant, "a disturbed replica moves to another device");
            hosted.moves.replicas.insert(id);
        } else if hosted.moves.stuck.insert(id) {
            tracing::warn!(
                pipeline = name,
                replica = id,
                variant,
                "a replica is disturbed, and no other device has room for it"
            );
        }
    }

    /// The replicas that may be let go: those that were, and those whose stand-ins are ready, beyond the extras that the
    /// load needs.
    pub(super) fn end_moves(&mut self, name: &str, of: &Pipeline, extras: &[v1::ReplicaTarget]) -> Vec<u64> {
        let Some(hosted) = self.steers.hosted.get(name) else { return Vec::new() };
        let mut moved = hosted.last.moved.clone();
        let leaving = hosted.moves.replicas.iter().copied().find(|id| !moved.contains(id));
        let Some(replica) = leaving.and_then(|id| of.replicas.iter().find(|r| r.id == id)) else { return moved };
        let free = self.free_without(of, extras);
        let gone: BTreeSet<u64> = moved.iter().copied().collect();
        let goals = self.goals(of, &hosted.wanted, &free, &gone);
        let needed = goals.iter().find(|(id, _)| *id == replica.group).map_or(0, |(_, count)| *count);
        let is_ready = |r: &&v1::ReplicaTarget| r.group == replica.group && self.serves(r.agent, r.replica);
        if extras.iter().filter(is_ready).count() > needed {
            moved.push(replica.id);
            let now_ns = self.now_ns;
            if let Some(hosted) = self.steers.hosted.get_mut(name) {
                hosted.moves.ended_ns = now_ns;
            }
        }
        moved
    }

    /// Whether a replica takes queries, as its agent says.
    pub(super) fn serves(&self, agent: u64, id: u64) -> bool {
        if agent == self.agent {
            return self.replicas.get(&id).is_some_and(super::replica::Replica::takes);
        }
        let announced = self.peers.announcement(agent);
        announced.is_some_and(|announced| announced.ready.iter().any(|ready| ready.replica == id))
    }
}
