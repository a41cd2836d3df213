//! How does a new plan take over devices that are full?
//!
//! A new replica loads beside the old ones where there is room. Where there is none it is blocked, and an old replica
//! leaves first: one drains, one loads. Each task keeps all its replicas but one. Agents agree without a leader: each
//! announces which of its replicas would yield. After a moment, in which the others hear it, the replica with the lowest
//! number of its task leaves, if the task can spare it.

use super::replica::{Replica, State};
use super::{Action, Node};
use crate::wire::Coming;

/// How many times what is planned for a device may be loaded at once where memory is not known: that, and what it replaces.
const SHARES_MAX: f64 = 2.0;
/// How far sums of shares may be from whole numbers.
const SLACK: f64 = 1e-6;
/// From when a replica would yield to when it may: others hear of it meanwhile.
const HEARD_NS: u64 = 100_000_000;
/// After so long without any change of what is ready or loading, a task gives up more than one of its replicas: tasks
/// wait for each other, or somebody's replica has failed.
const STALLED_NS: u64 = 1_000_000_000;

impl Node {
    /// Loads the blocked replicas for which there is room, in the order of their numbers.
    pub(super) fn load_what_fits(&mut self) {
        let blocked = self.replicas.values().filter(|r| r.state == State::Blocked && !r.retired).map(|r| r.id);
        for id in blocked.collect::<Vec<_>>() {
            if self.has_room(&self.replicas[&id]) {
                let replica = self.replicas.get_mut(&id).expect("it is blocked");
                replica.state = State::Loading;
                self.actions.push(Action::Load(id, replica.group.digest.clone()));
            }
        }
    }

    /// Whether a replica fits on its device beside what is loaded there: by memory if that of all is known, else by shares.
    fn has_room(&self, new: &Replica) -> bool {
        let is_loaded = |r: &Replica| !matches!(r.state, State::Blocked | State::Failed(_));
        let is_there = |r: &&Replica| r.device == new.device && is_loaded(r);
        let mut there = self.replicas.values().filter(is_there).peekable();
        if there.peek().is_none() {
            return true;
        }
        let all = || self.replicas.values().filter(is_there).chain([new]);
        // What the target itself puts on the device must go there, be it too much.
        let wanted = || self.replicas.values().filter(|r| r.device == new.device && !r.retired);
        let memory: Option<f64> = all().map(|r| r.group.memory_mib.map(|(own, _)| own)).sum();
        match (memory, new.group.memory_mib) {
            (Some(needed), Some((_, device))) => {
                let planned: f64 = wanted().filter_map(|r| r.group.memory_mib).map(|(own, _)| own).sum();
                needed <= device.max(planned)
            }
            _ => {
                let planned: f64 = wanted().map(|r| r.group.share).sum();
                all().map(|r| r.group.share).sum::<f64>() <= SHARES_MAX * planned.max(1.0) + SLACK
            }
        }
    }

    /// A new target has come: remembers how many replicas each task has.
    pub(super) fn begin_swap(&mut self) {
        self.swap.had.clear();
        self.swap.yields.clear();
        for (name, of) in &self.layout.pipelines {
            for (at, task) in of.tasks.iter().enumerate() {
                let wanted = of.replicas.iter().filter(|r| of.groups[&r.group].task == at).count();
                let ready = self.routes.replicas(name, &task.name).count();
                self.swap.had.insert((name.clone(), task.name.clone()), wanted.min(ready));
            }
        }
    }

    /// Replicas here that would go now to make room: ready, of an earlier target, on the device of a blocked one.
    pub(super) fn yielding(&self) -> Vec<u64> {
        let blocked: Vec<u32> =
            self.replicas.values().filter(|r| r.state == State::Blocked && !r.retired).map(|r| r.device).collect();
        let yields = |r: &&Replica| r.retired && r.state == State::Ready && blocked.contains(&r.device);
        self.replicas.values().filter(yields).map(|r| r.id).collect()
    }

    /// Lets an old replica go where a new one waits for its room, if its task can spare it.
    pub(super) fn drain_yielding_replica(&mut self) {
        let yielding = self.yielding();
        let now_ns = self.now_ns;
        let (before, yields) = (self.swap.yields.len(), &mut self.swap.yields);
        yields.retain(|id, _| yielding.contains(id));
        yielding.iter().for_each(|id| _ = yields.entry(*id).or_insert(now_ns));
        if yields.len() > before {
            self.announce();
        }
        let heard = |id: &u64| now_ns >= self.swap.yields[id] + HEARD_NS;
        // One for each device at a time: what it frees may be enough.
        let draining: Vec<u32> =
            self.replicas.values().filter(|r| matches!(r.state, State::Draining(_))).map(|r| r.device).collect();
        let goes = yielding.iter().find(|id| {
            let replica = &self.replicas[*id];
            heard(id) && !draining.contains(&replica.device) && self.is_spared(replica)
        });
        if let Some(id) = goes.copied() {
            let replica = self.replicas.get_mut(&id).expect("it yields");
            replica.state = State::Draining(now_ns);
            tracing::info!(replica = id, "an old replica makes room for a new one");
            self.publish_replica_changes();
        }
    }

    /// Whether a replica that would yield is the first of its task to go, and its task can do without it.
    fn is_spared(&self, replica: &Replica) -> bool {
        let (pipeline, task) = (&replica.pipeline, &replica.task().name);
        let Some(of) = self.layout.pipelines.get(pipeline) else { return true };
        let Some(at) = of.position(task) else { return true };
        let ready: Vec<u64> = self.routes.replicas(pipeline, task).collect();
        let others = self.peers.connected().flat_map(|(_, announced)| &announced.yielding);
        if others.chain(self.swap.yields.keys()).any(|id| *id < replica.id && ready.contains(id)) {
            return false;
        }
        let left = ready.iter().filter(|id| **id != replica.id).count();
        let here = self.replicas.values().filter_map(Replica::coming);
        let there = self.peers.connected().flat_map(|(_, announced)| announced.coming.iter().copied());
        let coming: Vec<Coming> = here.chain(there).collect();
        let is_quiet = self.now_ns >= self.swap.changed_ns + STALLED_NS;
        let is_stalled = is_quiet && coming.iter().all(|c| c.is_blocked);
        let had = self.swap.had.get(&(pipeline.clone(), task.clone())).copied().unwrap_or(0);
        let enough = if is_stalled { 1 } else { had.saturating_sub(1).max(1) };
        if left >= enough {
            return true;
        }
        // The last one goes only if its successors wait for nothing but its device: its queries wait meanwhile.
        let of_task = of.replicas.iter().filter(|r| of.groups[&r.group].task == at);
        let mut successors = of_task.filter(|r| coming.iter().any(|c| c.replica == r.id)).peekable();
        let is_pressed =
            successors.peek().is_some() && successors.all(|r| (r.agent, r.device) == (self.agent, replica.device));
        left == 0 && (is_pressed || is_stalled)
    }
}
