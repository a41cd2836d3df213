//! Replicas begin to serve, leave, come back, fail, and give their devices back.

use super::deployment::Deployment;
use super::reconcile::Step;
use super::replicas::{DeadReplica, Departure, GroupReplicas, LeavingReplica, ReplicaLocation};
use super::schedule::ChangeEvent;
use super::stations::NewStations;
use crate::scenario::OnFailure;
use crate::state::query::{Dispatch, SimulatedQuery};
use crate::state::serving::SimulatedDrop;
use crate::state::{RunState, ServerId};
use apportion_domain::{Moment, Partial, TimeSpan};
use apportion_serving::{DropReason, Waiting};

/// A task of a pipeline, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TaskId {
    pipeline: u32,
    task: u32,
}

impl TaskId {
    fn of(group: &GroupReplicas) -> Self {
        Self { pipeline: group.pipeline, task: group.task }
    }
}

/// Lets replicas begin, leave, fail and return.
pub struct Lifecycle<'s, 'a> {
    /// The run.
    pub run: &'s mut RunState,
    /// The plan in force and its replicas.
    pub deployment: &'s mut Deployment<'a>,
}

impl<'a> Lifecycle<'_, 'a> {
    /// Makes the replicas that there are the wanted ones, as far as devices and loading times allow by now.
    pub fn reconcile(&mut self) {
        let mut is_changed = true;
        while is_changed {
            is_changed = self.release_devices();
            while let Some(step) = self.deployment.replicas.reconcile(self.run.now) {
                match step {
                    Step::Remove(group, departure) => self.remove_one(group, departure),
                    Step::Recall(group) => self.recall_one(group),
                }
                is_changed = true;
            }
            is_changed |= self.start_loaded();
        }
        self.empty_abandoned_queues();
    }

    fn group(&mut self, group: usize) -> &mut GroupReplicas {
        &mut self.deployment.replicas.groups[group]
    }

    fn stations(&mut self) -> NewStations<'_, 'a> {
        NewStations { run: self.run, deployment: self.deployment }
    }

    fn retarget_task(&mut self, group: usize) {
        self.deployment.routers(self.run).retarget_task(group);
    }

    /// A replica dies. Its senders notice that later.
    pub fn fail(&mut self, group: usize, replica: ReplicaLocation) {
        let of_group = &mut self.deployment.replicas.groups[group];
        of_group.ready.retain(|r| *r != replica);
        let station = replica.station;
        let mut lost = Vec::new();
        for server in of_group.servers(replica) {
            if self.run.serving.stations[station as usize].fail(server, &mut lost) {
                self.run.stale.add(ServerId { station, server });
            }
        }
        of_group.dead.push(DeadReplica { replica, is_known: false, quiet: None, lost, is_closed: false });
        let at = self.run.now + self.deployment.scenario.detection;
        self.deployment.schedule.push(at, ChangeEvent::FailureNoticed { group, replica });
    }

    /// Senders notice that a replica is dead. Its queries go elsewhere as soon as another replica serves.
    pub fn notice_failure(&mut self, group: usize, replica: ReplicaLocation) {
        for dead in &mut self.group(group).dead {
            dead.is_known |= dead.replica == replica;
        }
        self.retarget_task(group);
        self.resend_from_dead(group);
    }

    /// Sends on, or gives up, the queries that known dead replicas of a group's task held.
    fn resend_from_dead(&mut self, group: usize) {
        if !self.deployment.replicas.has_serving_sibling(group) {
            return;
        }
        let task = TaskId::of(&self.deployment.replicas.groups[group]);
        let (now, hop) = (self.run.now, self.run.hop_delay(task.pipeline, task.task));
        for at in 0..self.deployment.replicas.groups.len() {
            let of_group = &mut self.deployment.replicas.groups[at];
            if TaskId::of(of_group) != task {
                continue;
            }
            let (mut lost, mut moved) = (Vec::new(), Vec::new());
            let mut later = Vec::new();
            for dead in of_group.dead.iter_mut().filter(|d| d.is_known) {
                let held = if dead.is_closed { &mut moved } else { &mut lost };
                held.append(&mut dead.lost);
                if !of_group.is_central {
                    self.run.serving.stations[dead.replica.station as usize].evacuate(held);
                }
                if dead.quiet.is_none() {
                    dead.quiet = Some(now + hop);
                    later.push(ChangeEvent::FailureNoticed { group: at, replica: dead.replica });
                }
            }
            of_group.dead.retain(|d| d.quiet.is_none_or(|quiet| quiet > now));
            if hop > TimeSpan::ZERO {
                later.into_iter().for_each(|event| self.deployment.schedule.push(now + hop, event));
            }
            moved.into_iter().for_each(|waiting| self.resend(waiting, task, OnFailure::SendAgain));
            for waiting in lost {
                self.resend(waiting, task, self.deployment.scenario.on_failure);
            }
        }
    }

    /// Empties central queues to which no replica will come any more: their queries go to the task's other groups, once one
    /// serves.
    fn empty_abandoned_queues(&mut self) {
        for at in 0..self.deployment.replicas.groups.len() {
            let group = &self.deployment.replicas.groups[at];
            let is_abandoned = group.is_central && group.is_gone() && group.leaving.is_empty();
            if !is_abandoned || !self.deployment.replicas.has_serving_sibling(at) {
                continue;
            }
            let (task, mut moved) = (TaskId::of(group), Vec::new());
            for &station in &group.stations {
                self.run.serving.stations[station as usize].evacuate(&mut moved);
            }
            moved.into_iter().for_each(|waiting| self.resend(waiting, task, OnFailure::SendAgain));
        }
    }

    fn resend(&mut self, waiting: Waiting<SimulatedQuery>, TaskId { pipeline, task }: TaskId, on_failure: OnFailure) {
        let Waiting { query, deadline, .. } = waiting;
        let run = &mut *self.run;
        let state = &run.pipelines[pipeline as usize];
        let is_dropped = run.requests.get_mut(query.request).drop_task.is_some();
        if is_dropped && state.partial == Partial::Deny {
            let reason = DropReason::Cancelled;
            run.serving.dropped.push(SimulatedDrop { pipeline, at: task, task, query, reason });
            return;
        }
        if on_failure == OnFailure::Lose {
            run.lose(pipeline, task, query);
            return;
        }
        if state.counts_outstanding {
            run.serving.query_ended(&query);
        }
        let link = state.resend_links[task as usize];
        let is_sent = run.serving.send(run.now, link, query, Dispatch { deadline, behind: TimeSpan::ZERO });
        debug_assert!(is_sent, "a query that is not behind is sent");
    }

    /// Replicas that have loaded begin to serve. Returns whether there were any.
    fn start_loaded(&mut self) -> bool {
        let now = self.run.now;
        let mut is_any = false;
        for at in 0..self.deployment.replicas.groups.len() {
            let group = self.group(at);
            let before = group.loading.len();
            group.loading.retain(|&ready| ready > now);
            let (loaded, is_central) = (before - group.loading.len(), group.is_central);
            for _ in 0..loaded {
                let mut stations = self.stations();
                let replica = if is_central { stations.add_server(at) } else { stations.add_station(at) };
                self.group(at).ready.push(replica);
            }
            if loaded > 0 {
                is_any = true;
                self.retarget_task(at);
                self.resend_from_dead(at);
                // Queries that were sent before may still arrive where no replica is.
                let TaskId { pipeline, task } = TaskId::of(self.group(at));
                let hop = self.run.hop_delay(pipeline, task);
                self.wait_for_transit(now + hop, hop);
            }
        }
        is_any
    }

    /// Looks again at replicas that leave, when the queries in transit have arrived.
    fn wait_for_transit(&mut self, at: Moment, hop: TimeSpan) {
        if hop > TimeSpan::ZERO {
            self.deployment.schedule.push(at, ChangeEvent::InTransitArrived);
        }
    }

    /// One replica of a group takes no new queries.
    fn remove_one(&mut self, group: usize, departure: Departure) {
        let serving = &self.run.serving;
        let of_group = &mut self.deployment.replicas.groups[group];
        let last = if of_group.is_central {
            // Idle servers go first: their leaving is felt least.
            let is_idle = |station: u32, server: u32| serving.stations[station as usize].is_idle(server);
            let idle = |r: ReplicaLocation| of_group.servers(r).filter(|&server| is_idle(r.station, server)).count();
            (0..of_group.ready.len()).max_by_key(|&at| (idle(of_group.ready[at]), of_group.ready[at].server))
        } else {
            // The youngest goes first.
            of_group.ready.len().checked_sub(1)
        };
        let Some(replica) = last.map(|at| of_group.ready.swap_remove(at)) else { return };
        let TaskId { pipeline, task } = TaskId::of(of_group);
        let hop = self.run.hop_delay(pipeline, task);
        let quiet = self.run.now + hop;
        of_group.leaving.push(LeavingReplica { replica, quiet, departure });
        if departure == Departure::Close {
            of_group.dead.push(DeadReplica::closed(replica));
        }
        let ends_now = departure == Departure::Close || (of_group.is_central && departure == Departure::Finish);
        let servers = of_group.servers(replica);
        self.wait_for_transit(quiet, hop);
        if ends_now {
            self.run.remove_servers(replica.station, servers);
        }
        self.retarget_task(group);
    }

    /// A replica that was about to leave stays.
    fn recall_one(&mut self, group: usize) {
        let of_group = self.group(group);
        let Some(at) = of_group.can_return() else { return };
        let left = of_group.leaving.swap_remove(at);
        of_group.ready.push(left.replica);
        self.retarget_task(group);
        self.resend_from_dead(group);
    }

    /// Replicas that have finished their queries free their devices. Returns whether there were any.
    fn release_devices(&mut self) -> bool {
        let now = self.run.now;
        let mut is_any = false;
        for at in 0..self.deployment.replicas.groups.len() {
            let serving = &self.run.serving;
            let group = &mut self.deployment.replicas.groups[at];
            let queued = |s: u32| serving.stations[s as usize].queued();
            let drained = group.leaving.iter_mut().filter(|l| l.departure == Departure::Drain && now >= l.quiet);
            let mut ended: Vec<ReplicaLocation> = Vec::new();
            for left in drained.filter(|l| queued(l.replica.station) == 0) {
                left.departure = Departure::Finish;
                ended.push(left.replica);
            }
            for replica in ended {
                let servers = self.group(at).servers(replica);
                self.run.remove_servers(replica.station, servers);
            }
            let serving = &self.run.serving;
            let group = &mut self.deployment.replicas.groups[at];
            let (slots, is_central) = (group.slots, group.is_central);
            let is_done = |l: &mut LeavingReplica| {
                let machine = &serving.stations[l.replica.station as usize];
                match l.departure {
                    Departure::Drain => false,
                    Departure::Finish if !is_central => now >= l.quiet && machine.queued() == 0 && machine.running() == 0,
                    Departure::Finish | Departure::Close => {
                        (l.replica.server..l.replica.server + slots).all(|server| machine.is_gone(server))
                    }
                }
            };
            for left in group.leaving.extract_if(.., is_done) {
                is_any = true;
                if !is_central && left.departure == Departure::Finish {
                    group.free.push(left.replica.station);
                }
            }
        }
        is_any
    }
}
