//! Which devices, groups and replicas are there?

use apportion_domain::{GroupName, Share};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use utoipa::ToSchema;

/// One device of a live agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its agent's number.
    pub agent: u64,
    /// Its position at that agent.
    pub device: u32,
    /// Its hardware type.
    pub hardware: String,
    /// The zone of its agent; empty if it is not known.
    pub zone: String,
}

/// The key of a group in the fleet. The digest belongs to it: another model file makes another group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupKey {
    /// The pipeline.
    pub pipeline: String,
    /// The group in its pipeline.
    pub group: GroupName,
    /// SHA-256 of the model file, hex; empty if there is none.
    pub digest: String,
}

/// A group with the number of replicas that the plans want.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedGroup {
    /// The group.
    pub key: GroupKey,
    /// Its replicas.
    pub replicas: u32,
    /// Whether loaded ones move to other zones.
    pub spread: Spread,
}

/// How are the replicas of a group spread over zones?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spread {
    /// New ones go to other zones than the others where they can. Loaded ones stay.
    #[default]
    New,
    /// As evenly as the devices allow: loaded ones move for it.
    Even,
}

/// A group with its number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PlacedGroup {
    /// Its number, unique in the fleet for ever.
    pub id: u64,
    /// The pipeline.
    pub pipeline: String,
    /// The task.
    pub task: String,
    /// The variant.
    pub variant: String,
    /// The hardware type.
    pub hardware: String,
    /// Fraction of a device.
    pub share: f64,
    /// SHA-256 of the model file.
    #[serde(default)]
    pub digest: String,
}

/// A replica on its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlacedReplica {
    /// Its number, unique in the fleet for ever.
    pub id: u64,
    /// Its group.
    pub group: u64,
    /// The agent.
    pub agent: u64,
    /// The device of that agent.
    pub device: u32,
}

/// A device on which a replica of a group could not be loaded, or died. No other replica of the group is placed there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Refused {
    /// The group.
    pub group: u64,
    /// The agent.
    pub agent: u64,
    /// The device of that agent.
    pub device: u32,
}

/// All groups and replicas with their devices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Placement {
    /// Lower than every number to come.
    pub next_id: u64,
    /// Groups with their numbers.
    pub groups: Vec<PlacedGroup>,
    /// Replicas on devices.
    pub replicas: Vec<PlacedReplica>,
    /// Groups of no plan that requests may have loaded, with their numbers. They may have replicas, too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub offered: Vec<PlacedGroup>,
    /// Devices on which replicas could not be loaded since plans were last applied.
    #[serde(default)]
    pub refused: Vec<Refused>,
}

impl Default for Placement {
    fn default() -> Self {
        Self { next_id: 1, groups: Vec::new(), replicas: Vec::new(), offered: Vec::new(), refused: Vec::new() }
    }
}

impl Placement {
    /// The group with this number.
    #[must_use]
    pub fn group(&self, id: u64) -> Option<&PlacedGroup> {
        self.groups.iter().chain(&self.offered).find(|g| g.id == id)
    }

    /// The numbers of the groups here, in a plan or on offer. Of two with one key, that of the plan counts.
    pub(crate) fn numbers(&self) -> BTreeMap<GroupKey, u64> {
        let mut numbers = BTreeMap::new();
        for group in self.groups.iter().chain(&self.offered) {
            if let Some(key) = group.key() {
                numbers.entry(key).or_insert(group.id);
            }
        }
        numbers
    }

    /// Whether a replica of this group failed on this device.
    #[must_use]
    pub fn refuses(&self, group: u64, slot: DeviceSlot) -> bool {
        self.refused.contains(&Refused { group, agent: slot.agent, device: slot.device })
    }

    /// Notes that these replicas failed on their devices: they need other ones.
    pub fn refuse_failed(&mut self, failed: &BTreeSet<u64>) {
        for r in self.replicas.iter().filter(|r| failed.contains(&r.id)) {
            let refused = Refused { group: r.group, agent: r.agent, device: r.device };
            if !self.refused.contains(&refused) {
                self.refused.push(refused);
            }
        }
    }

    /// A number that nothing had before.
    pub(crate) fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id - 1
    }
}

impl PlacedGroup {
    /// Its key; `None` if the stored share is invalid.
    #[must_use]
    pub fn key(&self) -> Option<GroupKey> {
        let group = GroupName {
            task: self.task.clone(),
            variant: self.variant.clone(),
            hardware: self.hardware.clone(),
            share: Share::new(self.share)?,
        };
        Some(GroupKey { pipeline: self.pipeline.clone(), group, digest: self.digest.clone() })
    }
}

/// A group for which devices are missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// The group.
    pub key: GroupKey,
    /// Replicas wanted.
    pub wanted: u32,
    /// Replicas that found a device.
    pub placed: u32,
    /// Devices on which a replica could not be loaded.
    pub refused: u32,
}

/// The place of one device in the fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceSlot {
    /// Its agent's number.
    pub agent: u64,
    /// Its position at that agent.
    pub device: u32,
}

impl Device {
    /// A device in a zone that is not known.
    #[must_use]
    pub fn new(agent: u64, device: u32, hardware: &str) -> Self {
        Self { agent, device, hardware: hardware.to_owned(), zone: String::new() }
    }

    /// Its place.
    #[must_use]
    pub fn slot(&self) -> DeviceSlot {
        DeviceSlot { agent: self.agent, device: self.device }
    }
}

impl PlacedReplica {
    /// Its place.
    #[must_use]
    pub fn slot(&self) -> DeviceSlot {
        DeviceSlot { agent: self.agent, device: self.device }
    }
}
