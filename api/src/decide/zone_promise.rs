//! Does a plan survive the loss of zones, and what must it have spare for it?
//!
//! Example: a pipeline with `survive: 1` needs four replicas of a group for its load, and the fleet has three zones. One
//! spare replica would do for a lost device: five replicas. In three zones they stand as 2, 2 and 1, and a lost zone leaves
//! three. So the pipeline is planned again with two spare replicas: 2, 2 and 2. A lost zone leaves four.
//!
//! In general a group that needs `c` replicas and must survive `k` of `z` zones has `s = k * ceil(c / (z - k))` spare ones.
//! Where the devices of a zone are too few for an even spread, the placement says how many replicas a loss takes.
//!
//! A hardware type counts if the zones of all its devices are known and there are more than `k`. A group on another type
//! has `survive` spare replicas, as in a problem file.

use super::placement::{
    Device, GroupKey, Placement, PlacementOutcome, Spread, WantedGroup, place_replicas, replicas_by_zone, zones_of,
};
use apportion_domain::{Assignment, GroupName};

/// How often a pipeline is planned again with more spare replicas, at most. Another plan may have larger groups.
pub const RAISES_MAX: u32 = 4;

/// What a pipeline promises about zones.
#[derive(Clone, Copy, Debug)]
pub struct ZonePromise<'a> {
    /// Zones that may be lost together: `survive` of the pipeline.
    zones_lost: u32,
    /// The devices on which its plans are placed.
    devices: &'a [Device],
}

/// What the loss of the worst zones takes from a group.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ZoneLoss {
    group: GroupName,
    replicas: u32,
    lost: u32,
    /// The zones of its hardware type.
    zones: u32,
}

impl<'a> ZonePromise<'a> {
    /// The promise of a pipeline with this value of `survive`, on these devices.
    #[must_use]
    pub fn new(survive: u32, devices: &'a [Device]) -> Self {
        Self { zones_lost: survive, devices }
    }

    /// The groups whose zones are known.
    fn losses(&self, groups: &[Assignment]) -> Vec<ZoneLoss> {
        if self.zones_lost == 0 || self.devices.iter().all(|device| device.zone.is_empty()) {
            return Vec::new();
        }
        let want = |a: &Assignment| WantedGroup {
            key: GroupKey { pipeline: String::new(), group: a.group.clone(), digest: String::new() },
            replicas: a.replicas,
            spread: Spread::Even,
        };
        let wanted: Vec<WantedGroup> = groups.iter().map(want).collect();
        let PlacementOutcome { placement, .. } = place_replicas(&Placement::default(), &wanted, self.devices);
        let loss = |(a, placed): (&Assignment, _)| self.loss(a, placed, &placement);
        groups.iter().zip(placement.groups.iter().map(|group| group.id)).filter_map(loss).collect()
    }

    fn loss(&self, group: &Assignment, placed: u64, placement: &Placement) -> Option<ZoneLoss> {
        let zones = zones_of(self.devices, &group.group.hardware)?.len() as u32;
        if zones <= self.zones_lost {
            return None;
        }
        let mut counts: Vec<u32> = replicas_by_zone(placement, placed, self.devices).into_values().collect();
        counts.sort_unstable();
        let lost = counts.iter().rev().take(self.zones_lost as usize).sum();
        Some(ZoneLoss { group: group.group.clone(), replicas: group.replicas, lost, zones })
    }

    /// The `survive` with which a plan must be made again. `None`: it keeps the promise, because no loss takes more from a
    /// group than the `survive` with which the plan was made.
    #[must_use]
    pub fn raised(&self, groups: &[Assignment], survive: u32) -> Option<u32> {
        let losses = self.losses(groups);
        let needed = losses.iter().filter(|loss| loss.lost > survive).map(|loss| {
            let carrying = loss.replicas.saturating_sub(survive);
            let spare = self.zones_lost.saturating_mul(carrying.div_ceil(loss.zones - self.zones_lost));
            spare.max(loss.lost)
        });
        needed.max()
    }

    /// The addition to the reason of a plan that was made with this value of `survive`; empty if zones do not matter.
    #[must_use]
    pub fn describe(&self, groups: &[Assignment], survive: u32) -> String {
        let losses = self.losses(groups);
        let zones = match self.zones_lost {
            1 => "any one zone".to_owned(),
            count => format!("any {count} zones"),
        };
        match losses.iter().find(|loss| loss.lost > survive) {
            Some(ZoneLoss { group, replicas, lost, .. }) => {
                format!("; it does not survive the loss of {zones}: that may take {lost} of {replicas} replicas of {group}")
            }
            None if losses.is_empty() => String::new(),
            None => format!("; it survives the loss of {zones}"),
        }
    }
}

#[cfg(test)]
mod tests;
