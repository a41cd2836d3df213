//! Which device does the next replica get?

use super::facts::{Device, DeviceSlot, PlacedReplica, Placement, Spread, WantedGroup};
use super::zones::zone_of;
use apportion_domain::Share;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// The devices while replicas are placed on them.
pub(super) struct Room<'a> {
    current: &'a Placement,
    devices: &'a [Device],
    /// Free eighths of every device.
    free: BTreeMap<DeviceSlot, u8>,
    zone_of: BTreeMap<DeviceSlot, &'a str>,
    /// Devices with loaded replicas.
    loaded: BTreeSet<DeviceSlot>,
    /// The groups with loaded replicas on each device.
    held: BTreeSet<(u64, DeviceSlot)>,
}

impl<'a> Room<'a> {
    pub(super) fn new(current: &'a Placement, devices: &'a [Device]) -> Self {
        Self {
            current,
            devices,
            free: devices.iter().map(|d| (d.slot(), Share::WHOLE.eighths())).collect(),
            zone_of: zone_of(devices),
            loaded: current.replicas.iter().map(PlacedReplica::slot).collect(),
            held: current.replicas.iter().map(|r| (r.group, r.slot())).collect(),
        }
    }

    /// The loaded replicas of one group that stay on their devices: the oldest first, as many as are wanted, and no more of
    /// one zone than `zone_max`.
    pub(super) fn keep_loaded(&mut self, id: u64, want: &WantedGroup, zone_max: Option<u32>) -> Vec<PlacedReplica> {
        let Self { current, devices, .. } = *self;
        let eighths = want.key.group.share.eighths();
        let mut kept = Vec::new();
        let mut in_zone: BTreeMap<&str, u32> = BTreeMap::new();
        for replica in current.replicas.iter().filter(|r| r.group == id) {
            let slot = replica.slot();
            let is_right = devices.iter().any(|d| d.slot() == slot && d.hardware == want.key.group.hardware);
            let is_full = kept.len() as u32 == want.replicas;
            if is_full || !is_right || self.free[&slot] < eighths || current.refuses(id, slot) {
                continue;
            }
            let count = in_zone.entry(self.zone_of[&slot]).or_default();
            if zone_max.is_some_and(|most| *count >= most) {
                continue;
            }
            *count += 1;
            self.take(slot, want);
            kept.push(*replica);
        }
        kept
    }

    /// Takes a share of a device.
    pub(super) fn take(&mut self, slot: DeviceSlot, want: &WantedGroup) {
        *self.free.get_mut(&slot).expect("a device of the list") -= want.key.group.share.eighths();
    }

    /// The number of a loaded replica that comes back to its device.
    pub(super) fn back_on(&self, slot: DeviceSlot, group: u64, next: &Placement) -> Option<u64> {
        let is_there = |r: &&PlacedReplica| r.group == group && r.slot() == slot;
        let loaded = self.current.replicas.iter().filter(is_there);
        loaded.map(|r| r.id).find(|id| !next.replicas.iter().any(|placed| placed.id == *id))
    }

    /// The free eighths of a hardware type in each zone.
    fn free_by_zone(&self, hardware: &str) -> BTreeMap<&'a str, u32> {
        let mut free: BTreeMap<&str, u32> = BTreeMap::new();
        for device in self.devices.iter().filter(|d| d.hardware == hardware) {
            *free.entry(&device.zone).or_default() += u32::from(self.free[&device.slot()]);
        }
        free
    }

    /// The device for one more replica: the fullest device with room, so that fractions pack. Of several, one with nothing
    /// to unload comes first, then the zone and the agent with the fewest replicas of this group, then the agent with the
    /// fewest replicas. For a group that is spread evenly, zones come before everything else: that with the fewest replicas
    /// of it, and of several the emptiest. In small fleets no other order spreads groups better (see the tests).
    pub(super) fn choose(&self, want: &WantedGroup, group: u64, next: &Placement) -> Option<DeviceSlot> {
        let (share, hardware) = (want.key.group.share.eighths(), &want.key.group.hardware);
        let replicas = &next.replicas;
        let mut of_zone: BTreeMap<&str, usize> = BTreeMap::new();
        for replica in replicas.iter().filter(|r| r.group == group) {
            *of_zone.entry(self.zone_of[&replica.slot()]).or_default() += 1;
        }
        let zone_free = match want.spread {
            Spread::Even => self.free_by_zone(hardware),
            Spread::New => BTreeMap::new(),
        };
        let fits = |d: &&Device| d.hardware == *hardware && self.free[&d.slot()] >= share && !next.refuses(group, d.slot());
        let rank = |d: &&Device| {
            let (slot, zone) = (d.slot(), d.zone.as_str());
            let of_zone = of_zone.get(zone).copied().unwrap_or(0);
            let even = match want.spread {
                Spread::Even => (of_zone, Reverse(zone_free[zone])),
                Spread::New => (0, Reverse(0)),
            };
            let of_group = replicas.iter().filter(|r| r.agent == d.agent && r.group == group).count();
            let of_agent = replicas.iter().filter(|r| r.agent == d.agent).count();
            let (moves, unloads) = (!self.held.contains(&(group, slot)), self.loaded.contains(&slot));
            (even, self.free[&slot], moves, unloads, of_zone, of_group, of_agent, slot)
        };
        self.devices.iter().filter(fits).min_by_key(rank).map(Device::slot)
    }
}
