//! Which of the plan's own replicas does the current load not need?
//!
//! Example: at night a quarter of the planned load comes. The plan's ladder needs one of four replicas for it, so the
//! three youngest replicas are released.
//!
//! InferLine's tuner removes replicas as well as it adds them (SoCC'20, section 5). Here the plan's ladder says how many
//! replicas a lower rate needs. A released replica leaves like a replica of an old target: it takes no new queries,
//! serves those that it has, and is unloaded. It keeps its number and its place. When the load rises it comes back, and
//! extra replicas on its device go elsewhere.

use super::hosted::HostedSteward;
use super::view::FleetView;
use crate::layout::{LayoutPipeline, LayoutReplica};
use crate::steering::{DevicePlace, FreeShares, SLACK};
use apportion_protocol::v1;
use std::cmp::Reverse;

/// Takes an extra replica's share of its device, if that is left; a device of which nothing is known has room.
pub fn occupy(free: &mut FreeShares, of: &LayoutPipeline, extra: &v1::ReplicaTarget) -> bool {
    let Some(left) = free.get_mut(&DevicePlace { agent: extra.agent, device: extra.device }) else { return true };
    let share = of.groups[&extra.group].share;
    let fits = *left + SLACK >= share;
    *left -= if fits { share } else { 0.0 };
    fits
}

impl HostedSteward {
    /// The plan's replicas that a pipeline can do without: of each group as many as it has beyond the wanted ones. Released
    /// replicas stay so; then replicas go that do not serve yet, and then the youngest.
    pub fn replicas_to_release(&self, view: &FleetView<'_>, of: &LayoutPipeline, had: &[u64]) -> Vec<u64> {
        let mut released = Vec::new();
        for (staffed, &wanted) in of.staffed().iter().zip(&self.wanted) {
            let stays = |r: &&LayoutReplica| !view.is_gone(r.agent) && !self.moves.replicas().contains(&r.id);
            let mut own: Vec<&LayoutReplica> = of.replicas.iter().filter(|r| r.group == staffed.id).filter(stays).collect();
            own.sort_by_key(|r| (!had.contains(&r.id), view.serves(r.agent, r.id), Reverse(r.id)));
            let spare = own.len().saturating_sub(wanted as usize);
            released.extend(own[..spare].iter().map(|r| r.id));
        }
        released.sort_unstable();
        released
    }

    /// The plan's replicas that come back take their shares; extras on whose devices they, or those of other pipelines,
    /// leave no room are given up.
    pub fn yield_to_plan(
        &self,
        of: &LayoutPipeline,
        released: &[u64],
        free: &mut FreeShares,
        extras: &mut Vec<v1::ReplicaTarget>,
    ) {
        let before = &self.last.released;
        let returning = |r: &&LayoutReplica| before.contains(&r.id) && !released.contains(&r.id);
        for replica in of.replicas.iter().filter(returning) {
            if let Some(left) = free.get_mut(&DevicePlace { agent: replica.agent, device: replica.device }) {
                *left -= of.groups[&replica.group].share;
            }
        }
        let mut left = free.clone();
        extras.retain(|extra| occupy(&mut left, of, extra));
    }
}
