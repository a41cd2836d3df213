//! What does the host of a steward see of the fleet while it decides?

use super::lost::LostAgents;
use crate::layout::{LayoutPipeline, LayoutReplica};
use crate::node::fleet::FleetState;
use crate::node::replicas::LocalReplicas;
use crate::node::site::Site;
use crate::steering::{DevicePlace, FreeShares, free_shares};
use apportion_protocol::v1;
use std::collections::{BTreeMap, BTreeSet};

/// The fleet at one moment, to read.
#[derive(Clone, Copy)]
pub struct FleetView<'v> {
    /// This agent.
    pub site: &'v Site,
    /// The target and the other agents.
    pub fleet: &'v FleetState,
    /// The replicas here.
    pub replicas: &'v LocalReplicas,
    /// The lost agents.
    pub lost: &'v LostAgents,
}

impl FleetView<'_> {
    /// Whether an agent is taken to be gone.
    pub fn is_gone(&self, agent: u64) -> bool {
        self.lost.is_gone(self.site, agent)
    }

    /// Whether a replica takes queries, as its agent says.
    pub fn serves(&self, agent: u64, id: u64) -> bool {
        self.fleet.serves(self.site, self.replicas, agent, id)
    }

    /// Whether a replica was said to have failed by the agent that should have it.
    pub fn has_failed(&self, place: &v1::ReplicaTarget) -> bool {
        self.fleet.has_failed(self.site, self.replicas, place.agent, place.replica)
    }

    /// Whether a replica is slower than profiled, though it is not overloaded, and shares its device.
    pub fn is_disturbed_by_neighbours(&self, place: &LayoutReplica) -> bool {
        self.fleet.is_disturbed(self.site, self.replicas, place) && self.shares_device(place)
    }

    /// Whether another replica, of any pipeline, stands on its device.
    fn shares_device(&self, place: &LayoutReplica) -> bool {
        let all = self.fleet.layout().pipelines.values().flat_map(|p| &p.replicas);
        all.filter(|other| (other.agent, other.device) == (place.agent, place.device)).any(|other| other.id != place.id)
    }

    /// The hardware type of a device, where the target says.
    pub fn hardware_of(&self, place: &DevicePlace) -> Option<&str> {
        self.fleet.layout().devices.get(&place.agent).map(|devices| devices.hardware.as_str())
    }

    /// The free fractions of the usable devices without these extra replicas.
    pub fn free_without(&self, of: &LayoutPipeline, extras: &[v1::ReplicaTarget]) -> FreeShares {
        let is_usable = |agent: u64| self.fleet.is_reached(self.site, agent) && !self.is_gone(agent);
        let mut free = free_shares(self.fleet.layout(), is_usable);
        for extra in extras {
            if let Some(left) = free.get_mut(&DevicePlace { agent: extra.agent, device: extra.device }) {
                *left += of.groups[&extra.group].share;
            }
        }
        free
    }

    /// Ready replicas of each group, of this target.
    pub fn ready_by_group(&self, of: &LayoutPipeline) -> BTreeMap<u64, u32> {
        let here = self.replicas.ready().map(|r| r.id);
        let connected = self.fleet.peers().connected();
        let there = connected.flat_map(|(_, announced)| announced.ready.iter().map(|r| r.replica));
        let ready: BTreeSet<u64> = here.chain(there).collect();
        let mut counts = BTreeMap::new();
        for replica in of.replicas.iter().filter(|r| ready.contains(&r.id)) {
            *counts.entry(replica.group).or_default() += 1;
        }
        counts
    }
}
