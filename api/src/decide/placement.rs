//! On which device does each replica stand?
//!
//! A loaded replica stays on its device under its number, because every move costs a load. New replicas go to devices where
//! nothing must be unloaded first. They are spread over agents, so that the loss of one agent loses little. A number is
//! never used again for another group or place.

use apportion_domain::{GroupName, Share};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
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

    /// The number of a group that has or had one here, in a plan or on offer.
    pub(super) fn number_of(&self, key: &GroupKey) -> Option<u64> {
        let known = self.groups.iter().chain(&self.offered).find(|g| g.key().as_ref() == Some(key));
        known.map(|group| group.id)
    }

    fn refuses(&self, group: u64, slot: Slot) -> bool {
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
    pub(super) fn new_id(&mut self) -> u64 {
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

/// The placement of wanted groups.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacementOutcome {
    /// Replicas on devices.
    pub placement: Placement,
    /// Groups for which devices are missing.
    pub shortages: Vec<Shortage>,
}

impl PlacementOutcome {
    /// The number of replicas without a device.
    fn missing(&self) -> u32 {
        self.shortages.iter().map(|s| s.wanted - s.placed).sum()
    }
}

/// One device of one agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Slot {
    agent: u64,
    device: u32,
}

impl Device {
    fn slot(&self) -> Slot {
        Slot { agent: self.agent, device: self.device }
    }
}

impl PlacedReplica {
    fn slot(&self) -> Slot {
        Slot { agent: self.agent, device: self.device }
    }
}

/// Free eighths of every device.
type Free = BTreeMap<Slot, u8>;

/// What happens to loaded replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loaded {
    /// They stay on their devices where they can.
    Stay,
    /// They may move.
    Move,
}

/// Places `wanted` on `devices`. Replicas of `current` on the right devices stay.
#[must_use]
pub fn place_replicas(current: &Placement, wanted: &[WantedGroup], devices: &[Device]) -> PlacementOutcome {
    let kept = place(current, wanted, devices, Loaded::Stay);
    let has_fractions = wanted.iter().any(|w| w.key.group.share != Share::WHOLE);
    if kept.shortages.is_empty() || !has_fractions {
        return kept;
    }
    // Loaded fractions may be so scattered that a larger one fits nowhere. Placed again, largest first, they pack.
    let packed = place(current, wanted, devices, Loaded::Move);
    if packed.missing() < kept.missing() { packed } else { kept }
}

fn place(current: &Placement, wanted: &[WantedGroup], devices: &[Device], loaded: Loaded) -> PlacementOutcome {
    let refused = current.refused.clone();
    let mut next = Placement { next_id: current.next_id, refused, ..Placement::default() };
    let mut free: Free = devices.iter().map(|d| (d.slot(), Share::WHOLE.eighths())).collect();
    let mut placed = Vec::with_capacity(wanted.len());
    for want in wanted {
        let id = current.number_of(&want.key).unwrap_or_else(|| next.new_id());
        next.groups.push(placed_group(id, &want.key));
        let kept = match loaded {
            Loaded::Stay => keep_loaded(current, id, want, devices, &mut free),
            Loaded::Move => Vec::new(),
        };
        placed.push(kept.len() as u32);
        next.replicas.extend(kept);
    }
    let loaded: BTreeSet<Slot> = current.replicas.iter().map(PlacedReplica::slot).collect();
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by_key(|&i| Reverse(wanted[i].key.group.share));
    for i in order {
        while placed[i] < wanted[i].replicas {
            let Some(slot) = choose_device(&wanted[i], next.groups[i].id, &next, devices, &free, &loaded) else {
                break;
            };
            let eighths = wanted[i].key.group.share.eighths();
            *free.get_mut(&slot).expect("a device of the list") -= eighths;
            let (id, group) = (next.new_id(), next.groups[i].id);
            next.replicas.push(PlacedReplica { id, group, agent: slot.agent, device: slot.device });
            placed[i] += 1;
        }
    }
    next.replicas.sort_by_key(|r| r.id);
    next.refused.retain(|r| next.groups.iter().any(|g| g.id == r.group));
    let shortage = |((want, &placed), group): ((&WantedGroup, &u32), &PlacedGroup)| {
        let refused = next.refused.iter().filter(|r| r.group == group.id).count() as u32;
        (placed < want.replicas).then(|| Shortage { key: want.key.clone(), wanted: want.replicas, placed, refused })
    };
    let shortages = wanted.iter().zip(&placed).zip(&next.groups).filter_map(shortage).collect();
    PlacementOutcome { placement: next, shortages }
}

pub(super) fn placed_group(id: u64, key: &GroupKey) -> PlacedGroup {
    PlacedGroup {
        id,
        pipeline: key.pipeline.clone(),
        task: key.group.task.clone(),
        variant: key.group.variant.clone(),
        hardware: key.group.hardware.clone(),
        share: key.group.share.value(),
        digest: key.digest.clone(),
    }
}

/// The loaded replicas of one group that stay on their devices: the oldest first, as many as are wanted.
fn keep_loaded(
    current: &Placement,
    id: u64,
    want: &WantedGroup,
    devices: &[Device],
    free: &mut Free,
) -> Vec<PlacedReplica> {
    let eighths = want.key.group.share.eighths();
    let mut kept = Vec::new();
    for replica in current.replicas.iter().filter(|r| r.group == id) {
        let slot = replica.slot();
        let is_right = devices.iter().any(|d| d.slot() == slot && d.hardware == want.key.group.hardware);
        if kept.len() as u32 == want.replicas || !is_right || free[&slot] < eighths || current.refuses(id, slot) {
            continue;
        }
        *free.get_mut(&slot).expect("a device of the list") -= eighths;
        kept.push(*replica);
    }
    kept
}

/// The device for one more replica: the fullest device with room, so that fractions pack. Of several, one with nothing to
/// unload comes first, then the agent with the fewest replicas of this group, then the agent with the fewest replicas.
fn choose_device(
    want: &WantedGroup,
    group: u64,
    next: &Placement,
    devices: &[Device],
    free: &Free,
    loaded: &BTreeSet<Slot>,
) -> Option<Slot> {
    let share = want.key.group.share.eighths();
    let replicas = &next.replicas;
    let fits =
        |d: &&Device| d.hardware == want.key.group.hardware && free[&d.slot()] >= share && !next.refuses(group, d.slot());
    let rank = |d: &&Device| {
        let slot = d.slot();
        let of_group = replicas.iter().filter(|r| r.agent == d.agent && r.group == group).count();
        let of_agent = replicas.iter().filter(|r| r.agent == d.agent).count();
        (free[&slot], loaded.contains(&slot), of_group, of_agent, slot)
    };
    devices.iter().filter(fits).min_by_key(rank).map(Device::slot)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(variant: &str, share: Share) -> GroupKey {
        let group = GroupName { task: "t".into(), variant: variant.into(), hardware: "h".into(), share };
        GroupKey { pipeline: "p".into(), group, digest: String::new() }
    }

    fn want(variant: &str, replicas: u32) -> WantedGroup {
        WantedGroup { key: key(variant, Share::WHOLE), replicas }
    }

    fn devices(list: &[(u64, u32)]) -> Vec<Device> {
        list.iter()
            .flat_map(|&(agent, n)| (0..n).map(move |device| Device { agent, device, hardware: "h".into() }))
            .collect()
    }

    /// `variant@agent.device` of each replica.
    fn places(placement: &Placement) -> Vec<String> {
        let name = |r: &PlacedReplica| placement.group(r.group).expect("its group").variant.clone();
        let mut all: Vec<_> = placement.replicas.iter().map(|r| format!("{}@{}.{}", name(r), r.agent, r.device)).collect();
        all.sort();
        all
    }

    #[test]
    fn new_replicas_spread_over_agents() {
        let PlacementOutcome { placement: placed, shortages: missing } =
            place_replicas(&Placement::default(), &[want("a", 3)], &devices(&[(1, 2), (2, 2), (3, 2)]));
        assert_eq!(places(&placed), ["a@1.0", "a@2.0", "a@3.0"]);
        assert!(missing.is_empty());
    }

    #[test]
    fn placing_again_changes_nothing() {
        let fleet = devices(&[(1, 2), (2, 2)]);
        let wanted = [want("a", 2), want("b", 2)];
        let PlacementOutcome { placement: first, .. } = place_replicas(&Placement::default(), &wanted, &fleet);
        let again = place_replicas(&first, &wanted, &fleet);
        assert_eq!(again, PlacementOutcome { placement: first, shortages: vec![] });
    }

    #[test]
    fn growth_keeps_loaded_replicas_and_their_numbers() {
        let fleet = devices(&[(1, 2), (2, 2)]);
        let PlacementOutcome { placement: first, .. } = place_replicas(&Placement::default(), &[want("a", 2)], &fleet);
        let PlacementOutcome { placement: second, .. } = place_replicas(&first, &[want("a", 3), want("b", 1)], &fleet);
        assert!(first.replicas.iter().all(|r| second.replicas.contains(r)));
        assert!(second.replicas.iter().filter(|r| !first.replicas.contains(r)).all(|r| r.id >= first.next_id));
        assert_eq!(second.replicas.len(), 4);
    }

    #[test]
    fn replicas_of_a_dead_agent_move_to_empty_devices() {
        let PlacementOutcome { placement: first, .. } =
            place_replicas(&Placement::default(), &[want("a", 1), want("b", 1)], &devices(&[(1, 1), (2, 2)]));
        assert_eq!(places(&first), ["a@1.0", "b@2.0"]);
        let PlacementOutcome { placement: second, shortages: missing } =
            place_replicas(&first, &[want("a", 1), want("b", 1)], &devices(&[(2, 2)]));
        assert_eq!(places(&second), ["a@2.1", "b@2.0"]);
        assert!(missing.is_empty());
        let moved = second.replicas.iter().find(|r| r.device == 1).expect("the moved one");
        assert!(moved.id >= first.next_id, "another place is another replica");
    }

    #[test]
    fn missing_devices_are_reported_and_the_rest_is_placed() {
        let PlacementOutcome { placement: placed, shortages: missing } =
            place_replicas(&Placement::default(), &[want("a", 2), want("b", 2)], &devices(&[(1, 3)]));
        assert_eq!(placed.replicas.len(), 3);
        assert_eq!(missing, [Shortage { key: key("b", Share::WHOLE), wanted: 2, placed: 1, refused: 0 }]);
    }

    #[test]
    fn a_failed_replica_moves_until_no_device_is_left() {
        let fleet = devices(&[(1, 1), (2, 1), (3, 1)]);
        let wanted = [want("a", 1), want("b", 1)];
        let PlacementOutcome { placement: mut placed, .. } = place_replicas(&Placement::default(), &wanted, &fleet);
        assert_eq!(places(&placed), ["a@1.0", "b@2.0"]);
        let fail_a = |placed: &mut Placement| {
            let of_a = placed.replicas.iter().find(|r| placed.group(r.group).is_some_and(|g| g.variant == "a"));
            placed.refuse_failed(&of_a.map(|r| r.id).into_iter().collect());
        };
        fail_a(&mut placed);
        let PlacementOutcome { placement: mut second, shortages: missing } = place_replicas(&placed, &wanted, &fleet);
        assert_eq!((places(&second), missing), (vec!["a@3.0".to_string(), "b@2.0".into()], vec![]));
        let number = |p: &Placement| p.replicas.iter().map(|r| r.id).max();
        assert!(number(&second) > number(&placed), "another place is another replica");
        fail_a(&mut second);
        let PlacementOutcome { placement: third, shortages: missing } = place_replicas(&second, &wanted, &fleet);
        assert_eq!(places(&third), ["b@2.0"], "the only other device is taken");
        assert_eq!(missing, [Shortage { key: key("a", Share::WHOLE), wanted: 1, placed: 0, refused: 2 }]);
        let again = PlacementOutcome { placement: third.clone(), shortages: missing };
        assert_eq!(place_replicas(&third, &wanted, &fleet), again, "and again nothing changes");
        let PlacementOutcome { placement: fourth, .. } =
            place_replicas(&third, &wanted, &devices(&[(1, 1), (2, 1), (3, 1), (4, 1)]));
        assert_eq!(places(&fourth), ["a@4.0", "b@2.0"]);
        let PlacementOutcome { placement: gone, .. } = place_replicas(&fourth, &wanted[1..], &fleet);
        assert_eq!(gone.refused, [], "a group that is gone leaves nothing behind");
    }

    #[test]
    fn replicas_need_their_hardware_type() {
        let mut fleet = devices(&[(1, 1)]);
        fleet[0].hardware = "other".into();
        let PlacementOutcome { placement: placed, shortages: missing } =
            place_replicas(&Placement::default(), &[want("a", 1)], &fleet);
        assert!(placed.replicas.is_empty());
        assert_eq!(missing.len(), 1);
    }

    #[test]
    fn another_model_file_makes_another_replica() {
        let fleet = devices(&[(1, 1)]);
        let PlacementOutcome { placement: first, .. } = place_replicas(&Placement::default(), &[want("a", 1)], &fleet);
        let mut other = want("a", 1);
        other.key.digest = "f00d".into();
        let PlacementOutcome { placement: second, shortages: missing } = place_replicas(&first, &[other], &fleet);
        assert!(missing.is_empty());
        assert!(second.replicas[0].id >= first.next_id && second.groups[0].id >= first.next_id);
    }

    #[test]
    fn scattered_fractions_are_packed_for_a_whole_device() {
        let fleet = devices(&[(1, 1), (2, 1)]);
        let half = WantedGroup { key: key("half", Share::new(0.5).expect("a share")), replicas: 2 };
        let scattered = Placement {
            next_id: 4,
            groups: vec![placed_group(1, &half.key)],
            replicas: vec![
                PlacedReplica { id: 2, group: 1, agent: 1, device: 0 },
                PlacedReplica { id: 3, group: 1, agent: 2, device: 0 },
            ],
            ..Placement::default()
        };
        let PlacementOutcome { placement: placed, shortages: missing } =
            place_replicas(&scattered, &[half, want("a", 1)], &fleet);
        assert!(missing.is_empty(), "{missing:?}");
        assert_eq!(placed.replicas.len(), 3);
    }
}
