//! How many extra replicas does a steered pipeline get, and on which devices?

use super::Node;
use super::release::occupy;
use crate::layout::{self, Group, Pipeline};
use crate::steering::{EXTRAS_MAX, SLACK, extra_number, free_shares};
use apportion_protocol::v1;
use apportion_serving::staffing::{Want, share_out};
use std::collections::{BTreeMap, BTreeSet};

impl Node {
    /// The replicas beyond the plan's that a pipeline should have: those that it has and still needs, and others on spare
    /// devices. Where there is not enough for all groups, each gets its part.
    pub(super) fn place_extras(
        &mut self,
        name: &str,
        of: &Pipeline,
        had: Vec<v1::ReplicaTarget>,
        released: &[u64],
    ) -> Vec<v1::ReplicaTarget> {
        let Some(hosted) = self.steers.hosted.get(name) else { return had };
        let mut extras: Vec<v1::ReplicaTarget> = had.into_iter().filter(|r| !self.is_agent_lost(r.agent)).collect();
        let failed: Vec<v1::ReplicaTarget> = extras.extract_if(.., |r| self.has_failed(r)).collect();
        let mut refused = hosted.refused.clone();
        for r in failed {
            tracing::warn!(
                replica = r.replica,
                agent = r.agent,
                device = r.device,
                "an added replica failed: it is tried elsewhere"
            );
            refused.insert((r.group, (r.agent, r.device)));
        }
        let mut free = self.free_without(of, &extras);
        self.yield_to_plan(name, of, released, &mut free, &mut extras);
        let leaving = hosted.moves.replicas();
        let homes: BTreeSet<(u64, u32)> =
            of.replicas.iter().filter(|r| leaving.contains(&r.id)).map(|r| (r.agent, r.device)).collect();
        let goals = self.goals(of, &hosted.wanted, &free, leaving);
        drop_surplus(&mut extras, &goals);
        extras.iter().for_each(|extra| _ = occupy(&mut free, of, extra));
        let mut numbered = hosted.numbered;
        for (id, goal) in goals {
            let group = &of.groups[&id];
            while extras.iter().filter(|r| r.group == id).count() < goal && extras.len() < EXTRAS_MAX {
                let fits = |(device, left): &(&(u64, u32), &f64)| {
                    let hardware = self.layout.devices.get(&device.0).map(|(hardware, _)| hardware);
                    let is_open = !refused.contains(&(id, **device)) && !homes.contains(device);
                    hardware == Some(&group.hardware) && **left + SLACK >= group.share && is_open
                };
                let moves = of.replicas.iter().any(|r| r.group == id && leaving.contains(&r.id));
                let on_agent = |agent: u64| extras.iter().filter(|r| r.agent == agent).count();
                // The fullest that has room, so that fractions pack, or the emptiest for what others disturb; then the
                // agent with the fewest extras.
                let rank = |left: f64| if moves { ((1.0 - left).max(0.0) * 8.0) as u64 } else { (left * 8.0) as u64 };
                let best = free.iter().filter(fits).min_by_key(|(device, left)| (rank(**left), on_agent(device.0)));
                let Some((&(agent, device), _)) = best else { break };
                *free.get_mut(&(agent, device)).expect("it was found") -= group.share;
                numbered += 1;
                let replica = extra_number(hosted.last.epoch, self.steers.plan().fence, numbered);
                extras.push(v1::ReplicaTarget { replica, group: id, agent, device });
            }
        }
        if let Some(hosted) = self.steers.hosted.get_mut(name) {
            hosted.numbered = numbered;
            hosted.refused = refused;
        }
        extras
    }

    /// What is left of the usable devices without these extra replicas.
    pub(super) fn free_without(&self, of: &Pipeline, extras: &[v1::ReplicaTarget]) -> BTreeMap<(u64, u32), f64> {
        let mut free = free_shares(&self.layout, |agent| self.is_reached(agent) && !self.is_agent_lost(agent));
        for extra in extras {
            if let Some(left) = free.get_mut(&(extra.agent, extra.device)) {
                *left += of.groups[&extra.group].share;
            }
        }
        free
    }

    /// Extra replicas of each group, where so much of each device is free for them.
    pub(super) fn goals(
        &self,
        of: &Pipeline,
        wanted: &[u32],
        free: &BTreeMap<(u64, u32), f64>,
        leaving: &BTreeSet<u64>,
    ) -> Vec<(u64, usize)> {
        let staffed = of.staffed();
        let mut types: Vec<&str> = staffed.iter().map(|(_, g, _)| g.hardware.as_str()).collect();
        types.sort_unstable();
        types.dedup();
        let pool = |name: &str| {
            let of_type =
                free.iter().filter(|(at, _)| self.layout.devices.get(&at.0).is_some_and(|(hardware, _)| hardware == name));
            Some(of_type.map(|(_, left)| ((left + SLACK) * 8.0) as u64).sum())
        };
        let stays = |r: &&layout::Replica| !self.is_agent_lost(r.agent) && !leaving.contains(&r.id);
        let lives = |id: u64| of.replicas.iter().filter(|r| r.group == id).filter(stays).count() as u32;
        let want = |((id, group, _), wanted): (&(u64, &Group, u32), &u32)| Want {
            has: lives(*id),
            wanted: *wanted,
            pool: types.binary_search(&group.hardware.as_str()).expect("it is among them"),
            eighths: ((group.share * 8.0).round() as u64).max(1),
        };
        let wants: Vec<Want> = staffed.iter().zip(wanted).map(want).collect();
        let counts = share_out(&wants, types.iter().map(|name| pool(name)).collect());
        let extra = |(((id, ..), count), want): ((&(u64, &Group, u32), u32), &Want)| (*id, (count - want.has) as usize);
        staffed.iter().zip(counts).zip(&wants).map(extra).collect()
    }
}

/// Drops the youngest extra replicas of each group that has more than its goal.
fn drop_surplus(extras: &mut Vec<v1::ReplicaTarget>, goals: &[(u64, usize)]) {
    for (group, goal) in goals {
        let count = extras.iter().filter(|r| r.group == *group).count();
        for _ in *goal..count {
            let last = extras.iter().rposition(|r| r.group == *group).expect("it was counted");
            extras.remove(last);
        }
    }
}
