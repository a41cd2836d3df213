//! On which device does each replica stand?
//!
//! A loaded replica stays on its device under its number, because every move costs a load. New replicas go to devices where
//! nothing must be unloaded first. They are spread over zones and agents, so that the loss of one loses little. A number is
//! never used again for another group or place.
//!
//! Example: a group that must survive the loss of a zone has four replicas, and three of them stand in zone `a`. The fourth
//! is in `b`, which has a free device. So one replica of `a` moves there.

mod facts;
mod room;
mod zones;

pub use facts::{
    Device, DeviceSlot, GroupKey, PlacedGroup, PlacedReplica, Placement, Refused, Shortage, Spread, WantedGroup,
};
pub use zones::{replicas_by_zone, zones_of};

use apportion_domain::Share;
use room::Room;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use zones::{even_share, unevenness};

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

/// What happens to loaded replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loaded {
    /// They stay on their devices where they can.
    Stay,
    /// Those beyond an even share of their zone may move.
    StayEven,
    /// They may move.
    Move,
}

/// Places `wanted` on `devices`. Replicas of `current` on the right devices stay.
#[must_use]
pub fn place_replicas(current: &Placement, wanted: &[WantedGroup], devices: &[Device]) -> PlacementOutcome {
    let faults = |outcome: &PlacementOutcome| (outcome.missing(), unevenness(&outcome.placement, wanted, devices));
    let numbers = current.numbers();
    let mut best = place(current, &numbers, wanted, devices, Loaded::Stay);
    let mut fewest = faults(&best);
    let has_fractions = wanted.iter().any(|w| w.key.group.share != Share::WHOLE);
    let others: &[Loaded] = match fewest {
        (_, 1..) => &[Loaded::StayEven, Loaded::Move],
        // Loaded fractions may be so scattered that a larger one fits nowhere. Placed again, largest first, they pack.
        (1.., 0) if has_fractions => &[Loaded::Move],
        _ => &[],
    };
    for loaded in others {
        if fewest == (0, 0) {
            break;
        }
        let outcome = place(current, &numbers, wanted, devices, *loaded);
        let found = faults(&outcome);
        // A placement that is no better moves nothing.
        if found < fewest {
            (fewest, best) = (found, outcome);
        }
    }
    best
}

fn place(
    current: &Placement,
    numbers: &BTreeMap<GroupKey, u64>,
    wanted: &[WantedGroup],
    devices: &[Device],
    loaded: Loaded,
) -> PlacementOutcome {
    let refused = current.refused.clone();
    let mut next = Placement { next_id: current.next_id, refused, ..Placement::default() };
    let mut room = Room::new(current, devices);
    let mut placed = Vec::with_capacity(wanted.len());
    for want in wanted {
        let id = numbers.get(&want.key).copied().unwrap_or_else(|| next.new_id());
        next.groups.push(placed_group(id, &want.key));
        let kept = match loaded {
            Loaded::Stay => room.keep_loaded(id, want, None),
            Loaded::StayEven => room.keep_loaded(id, want, even_share(want, devices)),
            Loaded::Move => Vec::new(),
        };
        placed.push(kept.len() as u32);
        next.replicas.extend(kept);
    }
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    // What must be spread evenly has the first choice.
    order.sort_by_key(|&i| (Reverse(wanted[i].key.group.share), wanted[i].spread == Spread::New));
    for i in order {
        let group = next.groups[i].id;
        while placed[i] < wanted[i].replicas {
            let Some(slot) = room.choose(&wanted[i], group, &next) else { break };
            room.take(slot, &wanted[i]);
            let back = room.back_on(slot, group, &next);
            let id = back.unwrap_or_else(|| next.new_id());
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

#[cfg(test)]
mod tests;
