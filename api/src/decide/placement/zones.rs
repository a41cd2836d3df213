//! In which zones are the replicas of a group?

use super::facts::{Device, DeviceSlot, PlacedGroup, Placement, Spread, WantedGroup};
use std::collections::{BTreeMap, BTreeSet};

/// The zones of a hardware type; `None` if there are not two, or the zone of one of its devices is not known.
#[must_use]
pub fn zones_of<'a>(devices: &'a [Device], hardware: &str) -> Option<BTreeSet<&'a str>> {
    let of_type = devices.iter().filter(|d| d.hardware == hardware);
    let zones: BTreeSet<&str> = of_type.map(|d| d.zone.as_str()).collect();
    (zones.len() > 1 && !zones.contains("")).then_some(zones)
}

/// The number of a group's replicas in each zone that has any.
#[must_use]
pub fn replicas_by_zone<'a>(placement: &Placement, group: u64, devices: &'a [Device]) -> BTreeMap<&'a str, u32> {
    let zones = zone_of(devices);
    let mut counts = BTreeMap::new();
    for zone in placement.replicas.iter().filter(|r| r.group == group).filter_map(|r| zones.get(&r.slot())) {
        *counts.entry(*zone).or_default() += 1;
    }
    counts
}

/// The zone of every device.
pub(super) fn zone_of(devices: &[Device]) -> BTreeMap<DeviceSlot, &str> {
    devices.iter().map(|d| (d.slot(), d.zone.as_str())).collect()
}

/// Most replicas of a group in one zone if they are spread evenly; `None` if they need not be, or zones are not known.
pub(super) fn even_share(want: &WantedGroup, devices: &[Device]) -> Option<u32> {
    if want.spread == Spread::New {
        return None;
    }
    let zones = zones_of(devices, &want.key.group.hardware)?;
    Some(want.replicas.div_ceil(zones.len() as u32))
}

/// The replicas beyond an even share in the fullest zone of each group.
pub(super) fn unevenness(placement: &Placement, wanted: &[WantedGroup], devices: &[Device]) -> u32 {
    let of_group = |(want, group): (&WantedGroup, &PlacedGroup)| {
        let share = even_share(want, devices)?;
        let fullest = replicas_by_zone(placement, group.id, devices).into_values().max()?;
        Some(fullest.saturating_sub(share))
    };
    wanted.iter().zip(&placement.groups).filter_map(of_group).sum()
}
