//! How many extra replicas does a steered pipeline get, and on which devices?
//!
//! Example: the steward wants two more replicas of a group that needs half a device. One spare device has room for both,
//! so both go there.

use super::hosted::{HostedSteward, RefusedPlace};
use super::release::occupy;
use super::view::FleetView;
use crate::layout::{LayoutPipeline, LayoutReplica};
use crate::steering::{DevicePlace, EXTRAS_MAX, FreeShares, SLACK, StaffedGroup, extra_number};
use apportion_protocol::v1;
use apportion_serving::staffing::{GroupDemand, share_out};
use std::collections::BTreeSet;

/// How many extra replicas a group should have.
#[derive(Clone, Copy, Debug)]
pub struct ExtraGoal {
    /// Number of the group.
    pub group: u64,
    /// How many.
    pub count: usize,
}

/// A group that gets an extra replica.
struct Growing<'g> {
    id: u64,
    hardware: &'g str,
    share: f64,
    /// Whether replicas of it move, because others disturb them.
    is_moving: bool,
    /// The devices from which replicas move.
    homes: &'g BTreeSet<DevicePlace>,
}

impl HostedSteward {
    /// The replicas beyond the plan's that a pipeline should have: those that it has and still needs, and others on spare
    /// devices. Where there is not enough for all groups, each gets its part.
    pub fn place_extras(
        &mut self,
        view: &FleetView<'_>,
        of: &LayoutPipeline,
        had: Vec<v1::ReplicaTarget>,
        released: &[u64],
    ) -> Vec<v1::ReplicaTarget> {
        let mut extras: Vec<v1::ReplicaTarget> = had.into_iter().filter(|r| !view.is_gone(r.agent)).collect();
        self.refuse_places_of_failed(view, &mut extras);
        let mut free = view.free_without(of, &extras);
        self.yield_to_plan(of, released, &mut free, &mut extras);
        let leaving = self.moves.replicas();
        let homes: BTreeSet<DevicePlace> = of.replicas.iter().filter(|r| leaving.contains(&r.id)).map(place_of).collect();
        let goals = extra_goals(view, of, &self.wanted, &free, leaving);
        drop_surplus(&mut extras, &goals);
        extras.iter().for_each(|extra| _ = occupy(&mut free, of, extra));
        for goal in goals {
            let (id, group) = (goal.group, &of.groups[&goal.group]);
            let leaving = self.moves.replicas();
            let is_moving = of.replicas.iter().any(|r| r.group == id && leaving.contains(&r.id));
            let growing = Growing { id, hardware: &group.hardware, share: group.share, is_moving, homes: &homes };
            while extras.iter().filter(|r| r.group == id).count() < goal.count && extras.len() < EXTRAS_MAX {
                let Some(place) = self.best_place(view, &growing, &free, &extras) else { break };
                *free.get_mut(&place).expect("it was found") -= group.share;
                self.numbered += 1;
                let replica = extra_number(self.last.epoch, view.fleet.layout().fence, self.numbered);
                extras.push(v1::ReplicaTarget { replica, group: id, agent: place.agent, device: place.device });
            }
        }
        extras
    }

    /// Takes out the extra replicas that failed, whose groups are not tried on these devices again.
    fn refuse_places_of_failed(&mut self, view: &FleetView<'_>, extras: &mut Vec<v1::ReplicaTarget>) {
        let failed: Vec<v1::ReplicaTarget> = extras.extract_if(.., |r| view.has_failed(r)).collect();
        for v1::ReplicaTarget { replica, group, agent, device } in failed {
            tracing::warn!(replica, agent, device, "an added replica failed: it is tried elsewhere");
            self.refused.insert(RefusedPlace { group, place: DevicePlace { agent, device } });
        }
    }

    /// The device for one more replica of a group: the fullest that has room, so that fractions pack. A replica that others
    /// disturb gets the emptiest device. Of equal devices, the agent with the fewest extras has the best one.
    fn best_place(
        &self,
        view: &FleetView<'_>,
        growing: &Growing<'_>,
        free: &FreeShares,
        extras: &[v1::ReplicaTarget],
    ) -> Option<DevicePlace> {
        let fits = |(place, left): &(&DevicePlace, &f64)| {
            let is_refused = self.refused.contains(&RefusedPlace { group: growing.id, place: **place });
            let is_open = !is_refused && !growing.homes.contains(place);
            view.hardware_of(place) == Some(growing.hardware) && **left + SLACK >= growing.share && is_open
        };
        let on_agent = |agent: u64| extras.iter().filter(|r| r.agent == agent).count();
        let rank = |left: f64| if growing.is_moving { ((1.0 - left).max(0.0) * 8.0) as u64 } else { (left * 8.0) as u64 };
        let best = free.iter().filter(fits).min_by_key(|(place, left)| (rank(**left), on_agent(place.agent)));
        best.map(|(place, _)| *place)
    }
}

/// Extra replicas of each group, as far as the devices have room for them. Replicas that are leaving do not count.
pub fn extra_goals(
    view: &FleetView<'_>,
    of: &LayoutPipeline,
    wanted: &[u32],
    free: &FreeShares,
    leaving: &BTreeSet<u64>,
) -> Vec<ExtraGoal> {
    let staffed = of.staffed();
    let mut types: Vec<&str> = staffed.iter().map(|staffed| staffed.group.hardware.as_str()).collect();
    types.sort_unstable();
    types.dedup();
    let pool = |name: &str| {
        let of_type = free.iter().filter(|(place, _)| view.hardware_of(place) == Some(name));
        Some(of_type.map(|(_, left)| ((left + SLACK) * 8.0) as u64).sum())
    };
    let stays = |r: &&LayoutReplica| !view.is_gone(r.agent) && !leaving.contains(&r.id);
    let lives = |id: u64| of.replicas.iter().filter(|r| r.group == id).filter(stays).count() as u32;
    let want = |(StaffedGroup { id, group, .. }, wanted): (&StaffedGroup<'_>, &u32)| GroupDemand {
        has: lives(*id),
        wanted: *wanted,
        pool: types.binary_search(&group.hardware.as_str()).expect("it is among them"),
        eighths: ((group.share * 8.0).round() as u64).max(1),
    };
    let wants: Vec<GroupDemand> = staffed.iter().zip(wanted).map(want).collect();
    let counts = share_out(&wants, types.iter().map(|name| pool(name)).collect());
    let goal = |((staffed, count), want): ((&StaffedGroup<'_>, u32), &GroupDemand)| ExtraGoal {
        group: staffed.id,
        count: (count - want.has) as usize,
    };
    staffed.iter().zip(counts).zip(&wants).map(goal).collect()
}

/// Drops the youngest extra replicas of each group that has more than its goal.
fn drop_surplus(extras: &mut Vec<v1::ReplicaTarget>, goals: &[ExtraGoal]) {
    for goal in goals {
        let count = extras.iter().filter(|r| r.group == goal.group).count();
        for _ in goal.count..count {
            let last = extras.iter().rposition(|r| r.group == goal.group).expect("it was counted");
            extras.remove(last);
        }
    }
}

/// The device of a replica.
fn place_of(replica: &LayoutReplica) -> DevicePlace {
    DevicePlace { agent: replica.agent, device: replica.device }
}
