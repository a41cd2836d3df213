//! Which loaded replicas does a new target mean by other numbers?
//!
//! Numbers hold within one incarnation of the control plane's database. After a restored database, a number may stand for
//! another replica, and a loaded replica may have another number. So the node compares replicas by content: pipeline,
//! task, variant, hardware, file and device. A replica that is already loaded is not loaded again.

use super::replica::{Replica, State};
use super::{Action, Node};
use crate::layout::{self, Layout, Pipeline};
use crate::steering::EXTRA_BIT;
use std::collections::{BTreeMap, BTreeSet};

/// Marks the new numbers of replicas that gave their number to another replica. Neither the control plane nor a steward
/// gives such numbers.
const FORMER_BIT: u64 = 1 << 63;

/// What makes two replicas the same: pipeline, task, variant, hardware, file and device.
type Identity<'a> = (&'a str, &'a str, &'a str, &'a str, &'a str, u32);

fn wanted<'a>(name: &'a str, of: &'a Pipeline, place: &layout::Replica) -> Identity<'a> {
    let group = &of.groups[&place.group];
    let task = &of.tasks[group.task].name;
    (name, task, &group.variant, &group.hardware, &group.digest, place.device)
}

fn loaded(replica: &Replica) -> Identity<'_> {
    let group = &replica.group;
    (&replica.pipeline, &replica.task().name, &group.variant, &group.hardware, &group.digest, replica.device)
}

impl Node {
    /// The agent has another number from its next target on. What it began as another one comes back to it all the same.
    pub(super) fn set_agent_number(&mut self, agent: u64) {
        if self.agent != agent {
            self.former.insert(self.agent);
            self.former.remove(&agent);
            self.agent = agent;
        }
    }

    /// Whether a request is of this agent's gateway.
    pub(super) fn is_own(&self, origin: u64, request: u64) -> bool {
        origin == self.agent || (self.former.contains(&origin) && self.requests.get(request).is_some())
    }

    /// Gives the loaded replicas the numbers that a new target has for them. One whose number stands for another replica
    /// there is set aside under a number of its own.
    pub(super) fn renumber_replicas(&mut self, layout: &Layout) {
        let mut places: BTreeMap<u64, Identity<'_>> = BTreeMap::new();
        for (name, of) in &layout.pipelines {
            let here = of.replicas.iter().filter(|r| r.agent == self.agent && r.id & EXTRA_BIT == 0);
            places.extend(here.map(|r| (r.id, wanted(name, of, r))));
        }
        // Within one incarnation numbers hold: only what it took a file to load is worth another look.
        let incarnation = |of: &Layout| of.fence.map(|f| f.incarnation);
        let is_restored = incarnation(layout) != incarnation(&self.layout);
        let is_same = |id: &u64| self.replicas.get(id).is_some_and(|r| loaded(r) == places[id]);
        let kept: BTreeSet<u64> = places.keys().copied().filter(is_same).collect();
        let mut open: BTreeSet<u64> = places.keys().copied().filter(|id| !kept.contains(id)).collect();
        let (mut pairs, mut last) = (Vec::new(), self.last_former);
        for replica in self.replicas.values().filter(|r| r.id & EXTRA_BIT == 0) {
            if kept.contains(&replica.id) {
                continue;
            }
            let is_worth_it = is_restored || !replica.group.digest.is_empty();
            let is_usable = is_worth_it && !matches!(replica.state, State::Blocked | State::Failed(_));
            let fits = |id: &&u64| places[*id] == loaded(replica);
            let other = open.iter().filter(|_| is_usable).find(fits).copied();
            if let Some(id) = other {
                open.remove(&id);
                pairs.push((replica.id, id));
            } else if places.contains_key(&replica.id) {
                last += 1;
                pairs.push((replica.id, FORMER_BIT | last));
            }
        }
        self.last_former = last;
        if pairs.is_empty() {
            return;
        }
        tracing::info!(?pairs, "replicas that are loaded have other numbers in the new target");
        let moved: Vec<Replica> = pairs.iter().filter_map(|(from, _)| self.replicas.remove(from)).collect();
        for (mut replica, (_, to)) in moved.into_iter().zip(&pairs) {
            replica.id = *to;
            self.replicas.insert(*to, replica);
        }
        let renamed = |id: &u64| pairs.iter().find(|(from, _)| from == id).map_or(*id, |(_, to)| *to);
        self.touched = self.touched.iter().map(renamed).collect();
        self.misfits = self.misfits.iter().map(renamed).collect();
        self.actions.push(Action::Renumber(pairs));
    }
}
