//! Which disturbed replica moves to another device (INFaaS section 4.1, "mitigating performance degradation")?
//!
//! Example: replicas 1 and 2 share a device, and replica 1 is slower than profiled. An extra replica is loaded on a free
//! device, and replica 1 leaves when the extra replica is ready.
//!
//! The host of a pipeline's steward acts when a replica is slower than profiled and shares its device. It adds an extra
//! replica on another device. When the extra replica is ready, the plan's own replica leaves. Replicas move one at a
//! time, so that the measurements are still true when the next one moves.

use super::extras::extra_goals;
use super::hosted::HostedSteward;
use super::view::FleetView;
use crate::layout::{LayoutPipeline, LayoutReplica};
use crate::steering::{DevicePlace, SLACK};
use apportion_protocol::v1;
use std::collections::BTreeSet;

/// After a move, so long until the next: the disturbed replicas have to be measured anew.
const REST_NS: u64 = 5_000_000_000;

impl HostedSteward {
    /// Begins to move a disturbed replica, if there is one and the last move is over.
    pub fn begin_move(&mut self, view: &FleetView<'_>, name: &str, of: &LayoutPipeline) {
        let moving = self.moves.replicas();
        let is_moving = moving.iter().any(|id| !self.last.moved.contains(id));
        if is_moving || view.site.now_ns() < self.moves.ended_ns() + REST_NS {
            return;
        }
        // Replicas of offered groups are the service's to place.
        let stays = |r: &&LayoutReplica| !moving.contains(&r.id) && !of.groups[&r.group].is_offered;
        let mut staying = of.replicas.iter().filter(stays);
        let Some(replica) = staying.find(|r| view.is_disturbed_by_neighbours(r)) else { return };
        let group = &of.groups[&replica.group];
        let home = DevicePlace { agent: replica.agent, device: replica.device };
        let has_room = view.free_without(of, &[]).iter().any(|(place, left)| {
            *place != home && view.hardware_of(place) == Some(&group.hardware) && left + SLACK >= group.share
        });
        let (id, variant) = (replica.id, &group.variant);
        if has_room {
            tracing::info!(pipeline = name, replica = id, variant, "a disturbed replica moves to another device");
            self.moves.begin(id);
        } else if self.moves.note_stuck(id) {
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
    pub fn end_moves(&mut self, view: &FleetView<'_>, of: &LayoutPipeline, extras: &[v1::ReplicaTarget]) -> Vec<u64> {
        let mut moved = self.last.moved.clone();
        let leaving = self.moves.replicas().iter().copied().find(|id| !moved.contains(id));
        let Some(replica) = leaving.and_then(|id| of.replicas.iter().find(|r| r.id == id)) else { return moved };
        let free = view.free_without(of, extras);
        let gone: BTreeSet<u64> = moved.iter().copied().collect();
        let goals = extra_goals(view, of, &self.wanted, &free, &gone);
        let needed = goals.iter().find(|goal| goal.group == replica.group).map_or(0, |goal| goal.count);
        let is_ready = |r: &&v1::ReplicaTarget| r.group == replica.group && view.serves(r.agent, r.replica);
        if extras.iter().filter(is_ready).count() > needed {
            moved.push(replica.id);
            self.moves.end(view.site.now_ns());
        }
        moved
    }
}
