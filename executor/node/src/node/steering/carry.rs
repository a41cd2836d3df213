//! What does the next target keep of the last one's steering?
//!
//! Example: a new plan comes while an extra replica serves. The extra replica stays if the new plan has its group and
//! leaves its device free.

use super::hosted::HostedSteward;
use super::release::occupy;
use super::state::{FormerSteward, SteeringState};
use crate::layout::{Layout, LayoutGroup, LayoutPipeline, LayoutReplica};
use crate::node::event::Action;
use crate::node::traffic::TrafficState;
use crate::steering::{DevicePlace, FreeShares, SLACK, find_room, free_shares};
use apportion_protocol::v1;
use std::collections::BTreeSet;
use std::sync::Arc;

impl SteeringState {
    /// A target has come: the steering of the last one is over, but for the parts that [`Self::carry_over`] keeps.
    pub fn follow_target(&mut self, layout: &Arc<Layout>, traffic: &mut TrafficState) {
        let free = free_shares(layout, |_| true);
        let room = find_room(layout, &free);
        let is_steered = |p: &&String| layout.pipelines[*p].is_steered(room);
        let steered: BTreeSet<String> = layout.pipelines.keys().filter(is_steered).cloned().collect();
        traffic.tallies.measure_only(&steered);
        let mut last = std::mem::take(self);
        self.plan = layout.clone();
        self.steered = steered;
        self.lost = std::mem::take(&mut last.lost);
        traffic.fleet.set_steered_layout(self.carry_over(last));
        self.prefetch(&free, traffic);
    }

    /// A replica that is added later should not have to wait for its file.
    fn prefetch(&self, free: &FreeShares, traffic: &mut TrafficState) {
        let agent = traffic.site.agent();
        let has_room = free.iter().any(|(place, left)| place.agent == agent && *left > SLACK);
        let hardware = self.plan.devices.get(&agent).map(|devices| &devices.hardware);
        let of_steered = self.steered.iter().flat_map(|p| self.plan.pipelines[p].groups.values());
        let is_wanted = |g: &&LayoutGroup| Some(&g.hardware) == hardware && !g.digest.is_empty() && !g.is_offered;
        let digests = of_steered.filter(is_wanted);
        let digests: BTreeSet<String> = digests.map(|g| g.digest.clone()).collect();
        if has_room && !digests.is_empty() {
            traffic.site.push(Action::Prefetch(digests.into_iter().collect()));
        }
    }

    /// Keeps two things of the last target: the stewards that were hosted here, for the load that they have seen; and the
    /// replicas that were added to groups of this target, where it leaves room. Returns the target with these replicas.
    ///
    /// A target with a ladder keeps the last one's own replicas of its groups too, for it knows which may go. Every agent
    /// keeps the same ones, because all agents knew the steering in force. The host lets the replicas that the load does
    /// not need go as soon as it has looked.
    fn carry_over(&mut self, last: Self) -> Layout {
        let (before, plan) = (last.plan, self.plan.clone());
        let groups_of = |name: &str| Some(before.pipelines.get(name)?.staffed().iter().map(|g| g.id).collect());
        let former = last.hosted.into_iter().filter_map(|(name, HostedSteward { steward, outcomes, .. })| {
            let former = FormerSteward { steward, groups: groups_of(&name)?, outcomes };
            Some((name, former))
        });
        self.former = former.filter(|(name, _)| self.steered.contains(name)).collect();
        let mut free = free_shares(&plan, |_| true);
        let room = find_room(&plan, &free);
        let mut steered = Layout::clone(&plan);
        for (name, of) in plan.pipelines.iter().filter(|(_, of)| of.scales(room)) {
            let Some(was) = before.pipelines.get(name) else { continue };
            let steering = last.applied.get(name).cloned().unwrap_or_default();
            let mut extras = if of.ladder.is_empty() { steering.extras } else { targets(&was.steered(&steering)) };
            extras.retain(|r| {
                let is_new = of.replicas.iter().all(|own| own.id != r.replica);
                let place = DevicePlace { agent: r.agent, device: r.device };
                let is_planned = of.groups.get(&r.group).is_some_and(|group| !group.is_offered);
                let has_place = is_planned && free.contains_key(&place);
                // A thread that runs batches cannot run slots.
                let is_same_kind = is_continuous(was, r.group) == is_continuous(of, r.group);
                is_new && is_same_kind && has_place && occupy(&mut free, of, r)
            });
            if !extras.is_empty() {
                let fence = plan.fence.map(v1::Fence::from);
                let carried = v1::Steering { pipeline: name.clone(), fence, extras, ..Default::default() };
                steered.pipelines.insert(name.clone(), Arc::new(of.steered(&carried)));
                self.applied.insert(name.clone(), carried);
            }
        }
        steered
    }
}

/// Whether the queries of a group run in slots; none if there is no such group.
fn is_continuous(of: &LayoutPipeline, group: u64) -> Option<bool> {
    of.groups.get(&group).map(|group| of.tasks[group.task].is_continuous)
}

fn targets(of: &LayoutPipeline) -> Vec<v1::ReplicaTarget> {
    let target = |r: &LayoutReplica| v1::ReplicaTarget { replica: r.id, group: r.group, agent: r.agent, device: r.device };
    of.replicas.iter().map(target).collect()
}
