//! Which of the plan's own replicas does the current load not need, and what does the next target keep of the last one's
//! steering?
//!
//! InferLine's tuner removes replicas as well as it adds them (SoCC'20, section 5). Here the plan's ladder says how many
//! replicas a lower rate needs. A released replica leaves like a replica of an old target: it takes no new queries,
//! serves those that it has, and is unloaded. It keeps its number and its place. When the load rises it comes back, and
//! extra replicas on its device go elsewhere.

use super::Node;
use super::steers::Steers;
use crate::layout::{Layout, Pipeline, Replica};
use crate::steering::{SLACK, free_shares, has_spare};
use apportion_protocol::v1;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What is left of each device, by agent and device.
type Free = BTreeMap<(u64, u32), f64>;

/// Takes an extra replica's share of its device, if that is left; a device of which nothing is known has room.
pub(super) fn occupy(free: &mut Free, of: &Pipeline, extra: &v1::ReplicaTarget) -> bool {
    let Some(left) = free.get_mut(&(extra.agent, extra.device)) else { return true };
    let share = of.groups[&extra.group].share;
    let fits = *left + SLACK >= share;
    *left -= if fits { share } else { 0.0 };
    fits
}

impl Node {
    /// The plan's replicas that a pipeline can do without: of each group as many as it has beyond what is wanted. Those
    /// that were released stay so; then those go that do not serve yet, and then the youngest.
    pub(super) fn replicas_to_release(&self, name: &str, of: &Pipeline, had: &[u64]) -> Vec<u64> {
        let Some(hosted) = self.steers.hosted.get(name) else { return had.to_vec() };
        let mut released = Vec::new();
        for ((group, ..), &wanted) in of.staffed().iter().zip(&hosted.wanted) {
            let stays = |r: &&Replica| !self.is_agent_lost(r.agent) && !hosted.moves.replicas().contains(&r.id);
            let mut own: Vec<&Replica> = of.replicas.iter().filter(|r| r.group == *group).filter(stays).collect();
            own.sort_by_key(|r| (!had.contains(&r.id), self.serves(r.agent, r.id), std::cmp::Reverse(r.id)));
            let spare = own.len().saturating_sub(wanted as usize);
            released.extend(own[..spare].iter().map(|r| r.id));
        }
        released.sort_unstable();
        released
    }

    /// The plan's replicas that come back take their shares; extras on whose devices they, or those of other pipelines,
    /// leave no room are given up.
    pub(super) fn yield_to_plan(
        &self,
        name: &str,
        of: &Pipeline,
        released: &[u64],
        free: &mut Free,
        extras: &mut Vec<v1::ReplicaTarget>,
    ) {
        let before = self.steers.hosted.get(name).map_or(&[][..], |hosted| &hosted.last.released);
        let returning = |r: &&Replica| before.contains(&r.id) && !released.contains(&r.id);
        for replica in of.replicas.iter().filter(returning) {
            if let Some(left) = free.get_mut(&(replica.agent, replica.device)) {
                *left -= of.groups[&replica.group].share;
            }
        }
        let mut left = free.clone();
        extras.retain(|extra| occupy(&mut left, of, extra));
    }

    /// What the last target leaves to this one: stewards that were hosted here, for the load that they have seen; and
    /// replicas that were added to groups of this target, where it leaves room. A target with a ladder keeps the last
    /// one's own replicas of its groups too, for it knows what may go. Every agent keeps the same ones, for what was in
    /// force was known to all; what the load does not call for, the host lets go as soon as it has looked.
    pub(super) fn carry_over_steering(&mut self, last: Steers) {
        let (before, plan) = (last.plan().clone(), self.steers.plan().clone());
        let groups = |name: &str| Some(before.pipelines.get(name)?.staffed().into_iter().map(|(id, ..)| id).collect());
        let former =
            last.hosted.into_iter().filter_map(|(name, hosted)| Some((name.clone(), (hosted.steward, groups(&name)?))));
        self.steers.former = former.filter(|(name, _)| self.steers.steered.contains(name)).collect();
        let mut free = free_shares(&plan, |_| true);
        let has_spare = has_spare(&plan, &free);
        let mut steered = Layout::clone(&plan);
        for (name, of) in plan.pipelines.iter().filter(|(_, of)| of.scales(has_spare)) {
            let Some(was) = before.pipelines.get(name) else { continue };
            let steering = last.applied.get(name).cloned().unwrap_or_default();
            let mut extras = if of.ladder.is_empty() { steering.extras } else { targets(&was.steered(&steering)) };
            extras.retain(|r| {
                let is_new = of.replicas.iter().all(|own| own.id != r.replica);
                let has_place = of.groups.contains_key(&r.group) && free.contains_key(&(r.agent, r.device));
                is_new && has_place && occupy(&mut free, of, r)
            });
            if !extras.is_empty() {
                let fence = plan.fence.map(v1::Fence::from);
                let carried = v1::Steering { pipeline: name.clone(), fence, extras, ..Default::default() };
                steered.pipelines.insert(name.clone(), Arc::new(of.steered(&carried)));
                self.steers.applied.insert(name.clone(), carried);
            }
        }
        self.layout = Arc::new(steered);
    }
}

fn targets(of: &Pipeline) -> Vec<v1::ReplicaTarget> {
    let target = |r: &Replica| v1::ReplicaTarget { replica: r.id, group: r.group, agent: r.agent, device: r.device };
    of.replicas.iter().map(target).collect()
}
