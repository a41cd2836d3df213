//! What does an agent know of a pipeline whose steward it hosts?

use super::outcomes::FleetOutcomes;
use crate::steering::DevicePlace;
use apportion_protocol::v1;
use apportion_serving::Steward;
use std::collections::BTreeSet;

/// A device on which an extra replica of a group could not be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RefusedPlace {
    /// Number of the group.
    pub group: u64,
    /// The device.
    pub place: DevicePlace,
}

/// A pipeline whose steward this agent hosts.
pub struct HostedSteward {
    /// Its steward.
    pub(super) steward: Steward,
    /// Replicas that each group should have, by its position.
    pub(super) wanted: Vec<u32>,
    /// The last decision.
    pub(super) last: v1::Steering,
    /// Extra replicas that this host has given numbers to.
    pub(super) numbered: u64,
    /// Replicas that move to other devices.
    pub(super) moves: ReplicaMoves,
    /// Devices on which a group's extra replica could not be loaded.
    pub(super) refused: BTreeSet<RefusedPlace>,
    /// The requests that ended at all gateways.
    pub(super) outcomes: FleetOutcomes,
}

/// The headroom of a ladder whose steward an agent hosts, and which the misses move.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HostedHeadroom {
    /// The factor on the load.
    pub headroom: f64,
    /// The factor on the load, or on its long mean if that is less, that holds leaps of the load.
    pub leap_reserve: f64,
    /// The part of the permitted misses that is left; below 0 more requests missed than may.
    pub budget_left_ratio: f64,
    /// Whether the headroom is at its maximum and more requests miss than may.
    pub is_saturated: bool,
}

impl HostedSteward {
    /// This agent hosts a steward from now on. `last` is the decision in force.
    pub fn new(steward: Steward, wanted: Vec<u32>, last: v1::Steering, now_ns: u64) -> Self {
        let moves = ReplicaMoves::of(&last, now_ns);
        let outcomes = FleetOutcomes::default();
        Self { steward, wanted, last, numbered: 0, moves, refused: BTreeSet::new(), outcomes }
    }

    /// The headroom of its ladder, if the misses move it.
    pub fn headroom(&self) -> Option<HostedHeadroom> {
        let controller = self.steward.feedback()?;
        Some(HostedHeadroom {
            headroom: controller.headroom(),
            leap_reserve: controller.leap().factor(),
            budget_left_ratio: controller.budget().left_ratio(),
            is_saturated: controller.is_saturated(),
        })
    }
}

/// The replicas of the plan that extras stand in for, or will.
#[derive(Debug, Default)]
pub struct ReplicaMoves {
    replicas: BTreeSet<u64>,
    ended_ns: u64,
    /// Replicas for which there is no room, and that was said.
    stuck: BTreeSet<u64>,
}

impl ReplicaMoves {
    /// The moves of the steering that is in force when a host begins.
    fn of(last: &v1::Steering, now_ns: u64) -> Self {
        Self { replicas: last.moved.iter().copied().collect(), ended_ns: now_ns, stuck: BTreeSet::new() }
    }

    /// The replicas that leave or have left.
    pub fn replicas(&self) -> &BTreeSet<u64> {
        &self.replicas
    }

    /// When the last move ended, in nanoseconds of the agent's clock.
    pub fn ended_ns(&self) -> u64 {
        self.ended_ns
    }

    /// A replica moves from now on.
    pub fn begin(&mut self, id: u64) {
        self.replicas.insert(id);
    }

    /// A move has ended.
    pub fn end(&mut self, now_ns: u64) {
        self.ended_ns = now_ns;
    }

    /// There is no room for a replica elsewhere. Whether this is new.
    pub fn note_stuck(&mut self, id: u64) -> bool {
        self.stuck.insert(id)
    }
}
