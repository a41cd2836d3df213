//! Which loaded replicas does a new target mean by other numbers?
//!
//! Example: before the database was restored, replica 4 was variant `a` on device 0. The new target calls it replica 9. The
//! loaded replica gets number 9, and nothing is loaded again.
//!
//! Numbers hold within one incarnation of the control plane's database. After a restored database, a number may stand for
//! another replica, and a loaded replica may have another number. So the node compares replicas by content: pipeline,
//! task and its kind, variant, hardware, file, execution and device. A replica that is already loaded is not loaded again.

use crate::layout::{self, Layout, LayoutGroup, LayoutPipeline, LayoutTask};
use crate::node::event::{Action, RenumberedReplica};
use crate::node::replicas::{LocalReplica, ReplicaPhase};
use crate::node::traffic::TrafficState;
use crate::steering::EXTRA_BIT;
use apportion_domain::VariantExecution;
use std::collections::{BTreeMap, BTreeSet};

/// Marks the new numbers of replicas that gave their number to another replica. Neither the control plane nor a steward
/// gives such numbers.
const FORMER_BIT: u64 = 1 << 63;

/// Two replicas are the same if all of this is equal.
#[derive(PartialEq, Eq)]
struct Identity<'a> {
    pipeline: &'a str,
    task: &'a str,
    /// Whether its queries run in slots: a thread that runs batches cannot change.
    is_continuous: bool,
    variant: &'a str,
    hardware: &'a str,
    /// Digest of the file.
    digest: &'a str,
    /// What was asked of its execution when it was loaded: threads and provider cannot change.
    execution: VariantExecution,
    device: u32,
}

fn wanted<'a>(pipeline: &'a str, of: &'a LayoutPipeline, place: &layout::LayoutReplica) -> Identity<'a> {
    identity(pipeline, of, &of.groups[&place.group], place.device)
}

fn loaded(replica: &LocalReplica) -> Identity<'_> {
    identity(&replica.pipeline, &replica.of, &replica.group, replica.device)
}

fn identity<'a>(pipeline: &'a str, of: &'a LayoutPipeline, group: &'a LayoutGroup, device: u32) -> Identity<'a> {
    let LayoutTask { name: task, is_continuous, .. } = &of.tasks[group.task];
    let LayoutGroup { variant, hardware, digest, execution, .. } = group;
    Identity { pipeline, task, is_continuous: *is_continuous, variant, hardware, digest, execution: *execution, device }
}

/// Gives numbers to replicas that were set aside.
#[derive(Debug, Default)]
pub struct Renumbering {
    /// How many were set aside so far.
    set_aside: u64,
}

impl Renumbering {
    /// Gives the loaded replicas the numbers that a new target has for them. One whose number stands for another replica
    /// there is set aside under a number of its own.
    pub fn renumber_replicas(&mut self, traffic: &mut TrafficState, layout: &Layout) {
        let all = self.renamed(traffic, layout);
        if all.is_empty() {
            return;
        }
        tracing::info!(?all, "replicas that are loaded have other numbers in the new target");
        let moved: Vec<LocalReplica> = all.iter().filter_map(|renamed| traffic.replicas.remove(renamed.from)).collect();
        for (mut replica, renamed) in moved.into_iter().zip(&all) {
            replica.id = renamed.to;
            traffic.replicas.insert(replica);
        }
        traffic.renumber_batches(|id| all.iter().find(|r| r.from == *id).map_or(*id, |r| r.to));
        traffic.site.push(Action::Renumber(all));
    }

    /// The loaded replicas that get other numbers.
    fn renamed(&mut self, traffic: &TrafficState, layout: &Layout) -> Vec<RenumberedReplica> {
        let (agent, replicas) = (traffic.site.agent(), &traffic.replicas);
        let mut places: BTreeMap<u64, Identity<'_>> = BTreeMap::new();
        for (name, of) in &layout.pipelines {
            let here = of.replicas.iter().filter(|r| r.agent == agent && r.id & EXTRA_BIT == 0);
            places.extend(here.map(|r| (r.id, wanted(name, of, r))));
        }
        // Within one incarnation numbers hold: only a replica that was loaded from a file is worth another look.
        let incarnation = |of: &Layout| of.fence.map(|f| f.incarnation);
        let is_restored = incarnation(layout) != incarnation(traffic.fleet.layout());
        let is_same = |id: &u64| replicas.get(*id).is_some_and(|r| loaded(r) == places[id]);
        let kept: BTreeSet<u64> = places.keys().copied().filter(is_same).collect();
        let mut open: BTreeSet<u64> = places.keys().copied().filter(|id| !kept.contains(id)).collect();
        let mut all = Vec::new();
        for replica in replicas.iter().filter(|r| r.id & EXTRA_BIT == 0 && !kept.contains(&r.id)) {
            let is_worth_it = is_restored || !replica.group.digest.is_empty();
            let is_usable = is_worth_it && !matches!(replica.state, ReplicaPhase::Blocked | ReplicaPhase::Failed(_));
            let fits = |id: &&u64| places[*id] == loaded(replica);
            let other = open.iter().filter(|_| is_usable).find(fits).copied();
            if let Some(to) = other {
                open.remove(&to);
                all.push(RenumberedReplica { from: replica.id, to });
            } else if places.contains_key(&replica.id) {
                self.set_aside += 1;
                all.push(RenumberedReplica { from: replica.id, to: FORMER_BIT | self.set_aside });
            }
        }
        all
    }
}
