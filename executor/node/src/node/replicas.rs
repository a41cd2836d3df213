//! Where is each replica of this agent in its life, from the target that names it to its unloading?

use super::replica::{Replica, State};
use super::{Action, Node, Work};
use crate::layout::{Layout, difference};
use crate::policies::Handle;
use crate::replica_event::ReplicaEvent;
use crate::steering::EXTRA_BIT;
use apportion_domain::Moment;

use std::collections::BTreeSet;
use std::sync::Arc;

/// How long a draining replica waits for queries on their way, in nanoseconds.
const LINGER_NS: u64 = 500_000_000;

impl Node {
    /// The replicas of this agent, in the order of their numbers.
    pub fn replicas(&self) -> impl Iterator<Item = &Replica> {
        self.replicas.values()
    }

    /// From now on the agent takes no requests, no queries of other agents and no targets.
    pub(super) fn stop_taking_work(&mut self) {
        self.leaving = true;
        let now_ns = self.now_ns;
        for replica in self.replicas.values_mut() {
            replica.retired = true;
            if replica.state == State::Ready {
                replica.state = State::Draining(now_ns);
            }
        }
        self.publish_replica_changes();
        self.replicas.keys().copied().collect::<Vec<_>>().into_iter().for_each(|id| self.pass_on_offline(id));
    }

    pub(super) fn apply_target(&mut self, layout: Arc<Layout>) {
        if self.leaving {
            return;
        }
        // A new target is a new try for what has failed.
        let failed = self.replicas.values().filter(|r| r.has_failed()).map(|r| r.id);
        for id in failed.collect::<Vec<_>>() {
            self.replicas.remove(&id);
            self.actions.push(Action::Unload(id));
        }
        // An agent that is new to the fleet may have announced its replicas before the target that names it came here.
        let last = &self.layout.agents;
        self.peers.forget_lost(|agent| last.contains_key(&agent) && !layout.agents.contains_key(&agent));
        self.renumber_replicas(&layout);
        self.layout = layout.clone();
        self.choosers.clear();
        self.routes.keep(|pipeline| layout.pipelines.contains_key(pipeline));
        self.begin_steering(&layout);
        self.follow_layout(None);
        self.begin_swap();
    }

    /// Brings the replicas of one pipeline, or of all, in line with the layout in force.
    pub(super) fn follow_layout(&mut self, only: Option<&str>) {
        let layout = self.layout.clone();
        let loaded: BTreeSet<u64> = self.replicas.keys().copied().collect();
        for id in difference(&loaded, &layout, self.agent).retire {
            self.replicas.get_mut(&id).expect("it is loaded").retired = true;
        }
        let (agent, now) = (self.agent, Moment::from_nanos(self.now_ns));
        for (name, of) in layout.pipelines.iter().filter(|(name, _)| only.is_none_or(|only| only == *name)) {
            // Whether there are too many paths was checked with the target.
            let states = of.outline().state_planner().ok().flatten();
            for place in of.replicas.iter().filter(|r| r.agent == agent) {
                let view = states.as_ref().map(|s| s.view(of.groups[&place.group].task));
                match self.replicas.get_mut(&place.id) {
                    Some(replica) => {
                        replica.retired = false;
                        if matches!(replica.state, State::Draining(_)) {
                            replica.state = State::Ready;
                        }
                        replica.follow(of, view, now);
                        self.refit_idle(place.id);
                    }
                    None => {
                        let replica = Replica::new(place, name, of, view);
                        self.replicas.insert(place.id, Replica { state: State::Blocked, ..replica });
                    }
                }
            }
        }
        self.load_what_fits();
        self.publish_replica_changes();
    }

    /// Replaces the station of an idle replica if it is of an earlier target. Its queries wait in the new one.
    pub(super) fn refit_idle(&mut self, id: u64) {
        let is_due = |r: &&mut Replica| r.is_stale && r.station.running() == 0;
        let Some(replica) = self.replicas.get_mut(&id).filter(is_due) else { return };
        replica.renew_station();
        let handle = |(key, work): (&u64, &Work)| {
            let deadline = Moment::from_nanos(u64::try_from(work.deadline_ns).unwrap_or(0));
            (work.handle(*key), deadline)
        };
        // What is offline waits for a gap again.
        replica.offline = replica.works.iter().filter(|(_, w)| w.is_offline()).map(|(key, _)| *key).collect();
        let online = replica.works.iter().filter(|(_, w)| !w.is_offline());
        let waiting: Vec<(Handle, Moment)> = online.map(handle).collect();
        for (query, deadline) in waiting {
            self.queue(id, query, deadline);
        }
        self.touched.insert(id);
    }

    pub(super) fn handle_replica_event(&mut self, id: u64, happened: ReplicaEvent) {
        let Some(replica) = self.replicas.get_mut(&id) else { return };
        match happened {
            ReplicaEvent::Ready => {
                if replica.state == State::Loading {
                    replica.state = if self.leaving { State::Draining(self.now_ns) } else { State::Ready };
                    self.publish_replica_changes();
                }
            }
            ReplicaEvent::Failed(reason) => {
                tracing::error!(replica = id, reason, "a replica failed");
                replica.state = State::Failed(reason.clone());
                self.publish_replica_changes();
                self.abandon_replica(id, &reason);
            }
            ReplicaEvent::BatchEnded(result, took) => self.handle_batch_end(id, result, took),
        }
    }

    pub(super) fn publish_replica_changes(&mut self) {
        self.reroute();
        self.announce();
        self.actions.push(Action::Acknowledge);
    }

    /// Whether each of the target's replicas here has come up or failed. Extra replicas do not count.
    #[must_use]
    pub fn is_target_applied(&self) -> bool {
        self.replicas.values().all(|r| r.id & EXTRA_BIT > 0 || r.coming().is_none())
    }

    /// Unloads old replicas. Each first drains, when other replicas take its queries.
    pub(super) fn unload_retired_replicas(&mut self) {
        let settled = self.is_target_applied();
        let (mut stop, mut unload) = (Vec::new(), Vec::new());
        for replica in self.replicas.values().filter(|r| r.retired) {
            match &replica.state {
                State::Blocked | State::Loading | State::Failed(_) if replica.len() == 0 => unload.push(replica.id),
                State::Ready if settled && self.is_replaced(replica) => stop.push(replica.id),
                // While the agent leaves, requests of its own gateway may still need it.
                State::Draining(since)
                    if replica.len() == 0
                        && self.now_ns >= since + LINGER_NS
                        && (!self.leaving || self.requests.is_empty()) =>
                {
                    unload.push(replica.id);
                }
                _ => {}
            }
        }
        let any = !stop.is_empty() || !unload.is_empty();
        for id in &stop {
            self.replicas.get_mut(id).expect("it is there").state = State::Draining(self.now_ns);
        }
        for id in unload {
            self.replicas.remove(&id);
            self.actions.push(Action::Unload(id));
        }
        if any {
            self.load_what_fits();
            self.publish_replica_changes();
        }
        stop.into_iter().for_each(|id| self.pass_on_offline(id));
    }

    /// Whether the target has no use for an old replica: its pipeline or task is gone, or a ready replica of the target
    /// serves it.
    fn is_replaced(&self, old: &Replica) -> bool {
        let Some(pipeline) = self.layout.pipelines.get(&old.pipeline) else { return true };
        let task = &old.task().name;
        let wanted = |id: u64| pipeline.replicas.iter().any(|r| r.id == id);
        self.routes.replicas(&old.pipeline, task).any(wanted) || pipeline.tasks.iter().all(|t| t.name != *task)
    }

    pub(super) fn tick(&mut self) {
        self.check_silence();
        self.drain_yielding_replica();
        self.unload_retired_replicas();
        self.steer();
        self.expire_meetings();
        self.expire_parked_queries();
        self.check_due_requests();
        self.run_offline();
    }
}
