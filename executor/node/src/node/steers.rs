//! What does an agent know of the steering of its pipelines?

use crate::layout::Layout;
use apportion_protocol::v1;
use apportion_serving::Steward;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// After a target has come, so long until an agent takes those that it cannot reach for lost: connections take a moment.
const SETTLE_NS: u64 = 2_000_000_000;
/// What an agent measured of one pipeline since its last report.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) bins: BTreeMap<u64, u32>,
    /// By group: queries that ended, and what they made by child.
    pub(super) made: BTreeMap<u64, (u64, Vec<u64>)>,
}

/// A pipeline whose steward this agent hosts.
pub(super) struct Hosted {
    pub(super) steward: Steward,
    /// Replicas that each group should have, by its position.
    pub(super) wanted: Vec<u32>,
    pub(super) last: v1::Steering,
    /// Extra replicas that this host has given numbers to.
    pub(super) numbered: u64,
    pub(super) moves: Moves,
    /// Devices on which a group's extra replica could not be loaded.
    pub(super) refused: BTreeSet<(u64, (u64, u32))>,
}

/// What an agent knows of steering.
#[derive(Default)]
pub(super) struct Steers {
    /// The target as it was commanded.
    pub(super) plan: Arc<Layout>,
    pub(super) obeyed_ns: u64,
    pub(super) steered: BTreeSet<String>,
    pub(super) tallies: BTreeMap<String, Tally>,
    pub(super) hosted: BTreeMap<String, Hosted>,
    /// Stewards that this agent hosted for the last target, with the numbers of their groups.
    pub(super) former: BTreeMap<String, (Steward, Vec<u64>)>,
    /// What is in force, by pipeline.
    pub(super) applied: BTreeMap<String, v1::Steering>,
    /// Since when agents are lost.
    pub(super) lost_ns: BTreeMap<u64, u64>,
    pub(super) reported_ns: u64,
    pub(super) period_ns: u64,
}

impl Steers {
    /// The target as it was commanded.
    pub fn plan(&self) -> &Arc<Layout> {
        &self.plan
    }

    /// Whether a target has come so lately that not everybody can have been heard of.
    pub fn is_settling(&self, now_ns: u64) -> bool {
        now_ns < self.obeyed_ns + SETTLE_NS
    }
}

/// The replicas of the plan that extras stand in for, or will.
#[derive(Debug, Default)]
pub(super) struct Moves {
    pub(super) replicas: BTreeSet<u64>,
    pub(super) ended_ns: u64,
    /// Those for which there is no room, and that was said.
    pub(super) stuck: BTreeSet<u64>,
}

impl Moves {
    /// Those of the steering that is in force when a host begins.
    pub fn of(last: &v1::Steering, now_ns: u64) -> Self {
        Self { replicas: last.moved.iter().copied().collect(), ended_ns: now_ns, stuck: BTreeSet::new() }
    }

    /// Those that leave or have left.
    pub fn replicas(&self) -> &BTreeSet<u64> {
        &self.replicas
    }
}
