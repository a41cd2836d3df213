//! Which replicas are loaded because requests want them, and when do they go?
//!
//! Example: a request needs an accuracy that only the large variant has. No plan has it, `t4` has a free device, and less
//! than `replicas_max` such replicas are loaded. So one replica of the large variant is placed there. It goes when no query
//! has come for `idle_s`, or when a plan needs the device.
//!
//! Replicas of the plans never move or go for a request.

use super::placement::{
    Device, DeviceSlot, GroupKey, PlacedGroup, PlacedReplica, Placement, PlacementOutcome, Refused, WantedGroup,
    place_replicas, placed_group,
};
use apportion_domain::Share;
use apportion_wire::OnDemandSpec;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Time in which loads are counted against `loads_per_minute_max`.
const BUDGET_TIME: Duration = Duration::from_secs(60);
/// A refused want is noted again after this time.
const NOTE_AGAIN_AFTER: Duration = Duration::from_secs(60);

/// Places the groups of the plans, and what is left for requests: the groups on offer get numbers, and their replicas stay
/// where the plans leave room for them.
#[must_use]
pub fn place_with_offers(
    current: &Placement,
    wanted: &[WantedGroup],
    offers: &[GroupKey],
    devices: &[Device],
) -> PlacementOutcome {
    let mut placed = place_replicas(current, wanted, devices);
    let next = &mut placed.placement;
    let (planned, numbers): (BTreeSet<&GroupKey>, _) = (wanted.iter().map(|w| &w.key).collect(), current.numbers());
    for key in offers.iter().filter(|key| !planned.contains(key)) {
        let id = numbers.get(key).copied().unwrap_or_else(|| next.new_id());
        next.offered.push(placed_group(id, key));
    }
    let is_offered = |list: &[PlacedGroup], id: u64| list.iter().any(|g| g.id == id);
    let still: Vec<Refused> = current.refused.iter().filter(|r| is_offered(&next.offered, r.group)).copied().collect();
    next.refused.extend(still);
    let mut free = free_eighths(next, devices);
    for replica in current.replicas.iter().filter(|r| is_offered(&current.offered, r.group)) {
        let Some(group) = next.offered.iter().find(|g| g.id == replica.group) else { continue };
        let slot = replica.slot();
        let eighths = eighths_of(group);
        match free.get_mut(&slot) {
            Some(room) if room.hardware == group.hardware && room.eighths >= eighths && !next.refuses(group.id, slot) => {
                room.eighths -= eighths;
                next.replicas.push(*replica);
            }
            _ => {}
        }
    }
    next.replicas.sort_by_key(|r| r.id);
    placed
}

/// The room that a device has left.
#[derive(Clone, Copy, Debug)]
struct DeviceRoom<'d> {
    hardware: &'d str,
    eighths: u8,
}

fn eighths_of(group: &PlacedGroup) -> u8 {
    Share::new(group.share).unwrap_or(Share::WHOLE).eighths()
}

/// The eighths of each device that no replica has.
fn free_eighths<'d>(placement: &Placement, devices: &'d [Device]) -> BTreeMap<DeviceSlot, DeviceRoom<'d>> {
    let whole = |d: &'d Device| {
        let room = DeviceRoom { hardware: &d.hardware, eighths: Share::WHOLE.eighths() };
        (d.slot(), room)
    };
    let mut free: BTreeMap<DeviceSlot, DeviceRoom<'d>> = devices.iter().map(whole).collect();
    for replica in &placement.replicas {
        let room = free.get_mut(&replica.slot());
        if let (Some(room), Some(group)) = (room, placement.group(replica.group)) {
            room.eighths = room.eighths.saturating_sub(eighths_of(group));
        }
    }
    free
}

/// The memory of variants and devices, in MiB, where it is known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KnownMemory {
    /// Of a device, by hardware type.
    pub devices: BTreeMap<String, f64>,
    /// Of a replica, by pipeline, task and variant.
    pub variants: BTreeMap<(String, String, String), f64>,
}

impl KnownMemory {
    fn of_replica(&self, group: &PlacedGroup) -> Option<f64> {
        self.variants.get(&(group.pipeline.clone(), group.task.clone(), group.variant.clone())).copied()
    }

    /// Whether a replica of a group fits on a device beside these ones. What is not known takes nothing.
    fn has_room<'p>(&self, group: &PlacedGroup, beside: impl Iterator<Item = &'p PlacedGroup>) -> bool {
        let (Some(own), Some(device)) = (self.of_replica(group), self.devices.get(&group.hardware)) else { return true };
        let others: f64 = beside.filter_map(|other| self.of_replica(other)).sum();
        others + own <= *device
    }
}

/// Adds a replica of each of these offered groups that has none.
///
/// The fullest device with room comes first, so that larger replicas find room elsewhere; of several, the one whose agent
/// has the fewest replicas.
///
/// # Errors
/// [`NoRoom`]; then nothing is added.
pub fn add_replicas(
    placement: &mut Placement,
    groups: &[u64],
    devices: &[Device],
    memory: &KnownMemory,
) -> Result<(), NoRoom> {
    let mut next = placement.clone();
    for &id in groups {
        if next.replicas.iter().any(|r| r.group == id) {
            continue;
        }
        let Some(group) = next.offered.iter().find(|g| g.id == id).cloned() else { return Err(NoRoom(Vec::new())) };
        let Some(place) = place_for(&next, &group, devices, memory) else { return Err(NoRoom(vec![group])) };
        let replica = PlacedReplica { id: next.new_id(), group: id, agent: place.agent, device: place.device };
        next.replicas.push(replica);
    }
    *placement = next;
    Ok(())
}

/// What a target changes among the replicas that requests have loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum OnDemandChange {
    /// Nothing.
    #[default]
    None,
    /// A replica of each of these offered groups is loaded, if all of them find room.
    Load(Vec<u64>),
    /// These replicas go.
    Unload(Vec<u64>),
}

impl OnDemandChange {
    /// Changes a placement. Replicas of the plans stay as they are.
    pub fn carry_out(&self, placement: &mut Placement, devices: &[Device], memory: &KnownMemory) {
        match self {
            Self::None => {}
            Self::Load(groups) => {
                // Without room the placement is as before, and the caller sees that.
                let _unchanged = add_replicas(placement, groups, devices, memory);
            }
            Self::Unload(replicas) => {
                let Placement { replicas: all, offered, .. } = placement;
                let is_offered = |r: &PlacedReplica| offered.iter().any(|g| g.id == r.group);
                all.retain(|r| !(replicas.contains(&r.id) && is_offered(r)));
            }
        }
    }
}

/// The groups for which no device has room; none if they are not on offer any more.
#[derive(Clone, Debug, PartialEq)]
pub struct NoRoom(pub Vec<PlacedGroup>);

fn place_for(placement: &Placement, group: &PlacedGroup, devices: &[Device], memory: &KnownMemory) -> Option<DeviceSlot> {
    let on = |slot: DeviceSlot| placement.replicas.iter().filter(move |r| r.slot() == slot);
    let fits = |(slot, room): &(&DeviceSlot, &DeviceRoom<'_>)| {
        let is_right = room.hardware == group.hardware && room.eighths >= eighths_of(group);
        is_right
            && !placement.refuses(group.id, **slot)
            && memory.has_room(group, on(**slot).filter_map(|r| placement.group(r.group)))
    };
    let of_agent = |agent: u64| placement.replicas.iter().filter(|r| r.agent == agent).count();
    let free = free_eighths(placement, devices);
    let best = free.iter().filter(fits).min_by_key(|(slot, room)| (room.eighths, of_agent(slot.agent), **slot));
    best.map(|(slot, _)| *slot)
}

/// The replicas of a pipeline that requests have loaded.
pub fn loaded_for_requests<'p>(placement: &'p Placement, pipeline: &'p str) -> impl Iterator<Item = &'p PlacedReplica> {
    let is_offered = move |id: u64| placement.offered.iter().any(|g| g.id == id && g.pipeline == pipeline);
    placement.replicas.iter().filter(move |r| is_offered(r.group))
}

/// What the service does about a want.
#[derive(Clone, Debug, PartialEq)]
pub enum WantVerdict {
    /// A replica of each of these groups is loaded.
    Load(Vec<u64>),
    /// The replicas are there, or being loaded.
    Present,
    /// Nothing is loaded.
    Refused(WantRefusal),
}

/// Why nothing is loaded for a want.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum WantRefusal {
    /// The pipeline does not let requests load variants, or its target is a person's.
    #[error("the replan mode is advisory: nothing is deployed")]
    Advisory,
    /// A hold is in force.
    #[error("a hold is in force")]
    Held,
    /// The pipeline has as many such replicas as it may.
    #[error("requests have {0} replicas loaded already: expected at most replicas_max {1} with those that are wanted")]
    Replicas(usize, u32),
    /// The budget of loads is used up.
    #[error("{0} replicas were loaded for requests in the last minute: expected at most loads_per_minute_max {1}")]
    Budget(usize, u32),
    /// The quota of the pipeline's project is used up.
    #[error("{0}")]
    Quota(String),
    /// No device has room.
    #[error("no free device has room for {0}")]
    Room(String),
}

/// The settings and the state of a pipeline, as far as a want depends on them.
#[derive(Clone, Copy, Debug)]
pub struct WantedPipeline<'a> {
    /// Its name.
    pub name: &'a str,
    /// What its requests may have loaded.
    pub settings: &'a OnDemandSpec,
    /// Whether its replan mode deploys.
    pub is_applied: bool,
    /// Whether a hold is in force.
    pub is_held: bool,
}

/// A replica that was loaded for requests and that none has used for the pipeline's `idle_s`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdleReplica {
    /// Its number.
    pub replica: u64,
    /// Its group.
    pub group: u64,
}

/// What a leader remembers of wants and loads.
#[derive(Clone, Debug, Default)]
pub struct OnDemandWatch {
    /// Moments of the loads of the last [`BUDGET_TIME`], by pipeline.
    loads: BTreeMap<String, Vec<Instant>>,
    /// When each replica was last used, or seen first.
    used: BTreeMap<u64, Instant>,
    /// The refusals that were noted, by pipeline and groups.
    noted: BTreeMap<(String, Vec<u64>), Noted>,
}

#[derive(Clone, Debug)]
struct Noted {
    refusal: WantRefusal,
    at: Instant,
}

impl OnDemandWatch {
    /// Decides about a want of these groups. Groups that are not on offer any more count as there: the agent has an older
    /// target, and the next one tells it.
    #[must_use]
    pub fn judge(
        &mut self,
        at: Instant,
        of: &WantedPipeline<'_>,
        groups: &[u64],
        placement: &Placement,
        room: &FreeRoom<'_>,
    ) -> WantVerdict {
        let is_offered = |id: u64| placement.offered.iter().any(|g| g.id == id && g.pipeline == of.name);
        let has_replica = |id: u64| placement.replicas.iter().any(|r| r.group == id);
        let mut missing: Vec<u64> = groups.iter().copied().filter(|id| is_offered(*id) && !has_replica(*id)).collect();
        missing.sort_unstable();
        missing.dedup();
        if missing.is_empty() {
            return WantVerdict::Present;
        }
        if !of.is_applied {
            return WantVerdict::Refused(WantRefusal::Advisory);
        }
        if of.is_held {
            return WantVerdict::Refused(WantRefusal::Held);
        }
        let OnDemandSpec { replicas_max, loads_per_minute_max, .. } = *of.settings;
        let loaded = loaded_for_requests(placement, of.name).count();
        if loaded + missing.len() > replicas_max as usize {
            return WantVerdict::Refused(WantRefusal::Replicas(loaded, replicas_max));
        }
        self.forget_old_loads(at);
        let recent = self.loads.get(of.name).map_or(0, Vec::len);
        if recent + missing.len() > loads_per_minute_max as usize {
            return WantVerdict::Refused(WantRefusal::Budget(recent, loads_per_minute_max));
        }
        let mut tried = placement.clone();
        match add_replicas(&mut tried, &missing, room.devices, room.memory) {
            Ok(()) => WantVerdict::Load(missing),
            Err(NoRoom(groups)) => WantVerdict::Refused(WantRefusal::Room(described(&groups))),
        }
    }

    /// Forgets the loads that count no more, and so pipelines that are gone.
    fn forget_old_loads(&mut self, at: Instant) {
        self.loads.retain(|_, loads| {
            loads.retain(|load| at.saturating_duration_since(*load) < BUDGET_TIME);
            !loads.is_empty()
        });
    }

    /// Notes that replicas were loaded for a pipeline's requests.
    pub fn loaded(&mut self, at: Instant, pipeline: &str, replicas: usize) {
        self.loads.entry(pipeline.to_owned()).or_default().extend(std::iter::repeat_n(at, replicas));
    }

    /// Whether a refusal is worth an event: it is another one than the last for these groups, or that one is old.
    pub fn is_news(&mut self, at: Instant, pipeline: &str, groups: &[u64], refusal: &WantRefusal) -> bool {
        self.noted.retain(|_, noted| at.saturating_duration_since(noted.at) < NOTE_AGAIN_AFTER);
        let key = (pipeline.to_owned(), groups.to_vec());
        if self.noted.get(&key).is_some_and(|noted| noted.refusal == *refusal) {
            return false;
        }
        self.noted.insert(key, Noted { refusal: refusal.clone(), at });
        true
    }

    /// The replicas of a pipeline that no query has used for its `idle_s`. `used` are the groups with queries since the
    /// last call. A replica counts as used when it is seen first.
    pub fn idle(
        &mut self,
        at: Instant,
        pipeline: &str,
        settings: &OnDemandSpec,
        placement: &Placement,
        used: &BTreeSet<u64>,
    ) -> Vec<IdleReplica> {
        self.used.retain(|id, _| placement.replicas.iter().any(|r| r.id == *id));
        let limit = Duration::from_secs_f64(settings.idle_s);
        let mut idle = Vec::new();
        for replica in loaded_for_requests(placement, pipeline) {
            let last = self.used.entry(replica.id).or_insert(at);
            if used.contains(&replica.group) {
                *last = at;
            }
            if at.saturating_duration_since(*last) >= limit {
                idle.push(IdleReplica { replica: replica.id, group: replica.group });
            }
        }
        idle
    }
}

/// Where replicas may be added.
#[derive(Clone, Copy, Debug)]
pub struct FreeRoom<'a> {
    /// The devices of the fleet.
    pub devices: &'a [Device],
    /// Their memory, and that of variants.
    pub memory: &'a KnownMemory,
}

/// The names of groups, `task:variant on hardware`, separated by commas.
#[must_use]
pub fn described(groups: &[PlacedGroup]) -> String {
    let name = |g: &PlacedGroup| format!("{}:{} on {}", g.task, g.variant, g.hardware);
    groups.iter().map(name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
