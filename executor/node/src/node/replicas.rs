//! Where is each replica of this agent in its life, from the target that names it to its unloading?

use super::alone::Alone;
use super::counts::{Batches, Counts, Labels};
use super::load::Period;
use super::{Action, Node, Work};
use crate::layout::{self, Group, Layout, Pipeline, Task, difference};
use crate::policies::Handle;
use crate::replica_event::ReplicaEvent;
use crate::steering::EXTRA_BIT;
use crate::wire::{Announced, Coming, Load};
use apportion_domain::Moment;
use apportion_serving::replica::{Input, Station};
use apportion_serving::{Stride, View};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// How long a draining replica waits for queries on their way, in nanoseconds.
const LINGER_NS: u64 = 500_000_000;

/// Where a replica is in its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// There is no room for it on its device yet.
    Blocked,
    /// Its file is fetched or loaded.
    Loading,
    /// It takes queries.
    Ready,
    /// It could not be loaded or its thread died.
    Failed(String),
    /// It takes no new queries since this time. Queries that still come are served.
    Draining(u64),
}

/// One replica.
pub struct Replica {
    /// Its number.
    pub id: u64,
    /// Its pipeline's name.
    pub pipeline: String,
    /// Its group's number.
    pub group_id: u64,
    /// Its group.
    pub group: Group,
    /// Its pipeline as the latest target that has this replica says.
    pub of: Arc<Pipeline>,
    /// Its device.
    pub device: u32,
    /// Where it is in its life.
    pub state: State,
    /// The target in force does not have it. It leaves when other replicas have taken over.
    pub retired: bool,
    /// Its queue and its batch.
    pub station: Station<Handle>,
    /// The state of the other tasks that its station was told last.
    pub view: Option<View>,
    /// When its last batch began.
    pub begun_ns: u64,
    /// Queries that wait or run, by the key of the station's handle.
    pub works: BTreeMap<u64, Work>,
    /// Offline queries of `works` that wait for a gap, by key.
    pub offline: VecDeque<u64>,
    /// Whose turn it is, if each row goes to one of several children.
    pub turns: Option<Stride>,
    /// When its station wants to be ticked, if later.
    pub wake_ns: Option<u64>,
    /// Its batches since the last announcement.
    pub period: Period,
    /// Its load, as it was announced last.
    pub load: Load,
    /// For how many announcements in a row it was slower than profiled without being overloaded.
    pub disturbed: u32,
    /// The members of its failed batch, which run one by one.
    pub alone: Option<Alone>,
    /// Its station is of an earlier target. A new one replaces it when its batch has ended.
    pub is_stale: bool,
}

impl Replica {
    fn new(place: &layout::Replica, pipeline: &str, of: &Arc<Pipeline>, view: Option<View>) -> Self {
        let group = of.groups[&place.group].clone();
        let mut this = Self {
            id: place.id,
            pipeline: pipeline.to_string(),
            group_id: place.group,
            station: of.station(&group),
            turns: turns(&of.tasks[group.task]),
            group,
            of: of.clone(),
            device: place.device,
            state: State::Loading,
            retired: false,
            view,
            begun_ns: 0,
            works: BTreeMap::new(),
            offline: VecDeque::new(),
            wake_ns: None,
            period: Period::default(),
            load: Load::default(),
            disturbed: 0,
            alone: None,
            is_stale: false,
        };
        this.renew_station();
        this
    }

    /// Replaces its station by an empty one.
    pub fn renew_station(&mut self) {
        self.station = self.of.station(&self.group);
        self.alone = None;
        self.is_stale = false;
        if let Some(view) = self.view {
            self.steer(Moment::ZERO, view);
        }
    }

    /// Tells its station the state of the other tasks.
    pub fn steer(&mut self, now: Moment, view: View) {
        self.view = Some(view);
        self.station.handle(now, Input::Steer { view });
        debug_assert!(self.station.poll_output().is_none(), "a station that is told something asks for nothing");
    }

    /// Follows a new form of its pipeline. Another batch size or other policies need another station.
    fn follow(&mut self, of: &Arc<Pipeline>, view: Option<View>, now: Moment) {
        self.group_id = Node::group_of(of, self.id).unwrap_or(self.group_id);
        let group = &of.groups[&self.group_id];
        let is_same =
            |a: &Pipeline, b: &Pipeline| (a.serving, a.queue_factor, a.slo_ns) == (b.serving, b.queue_factor, b.slo_ns);
        self.is_stale |= (group.batch, &group.service) != (self.group.batch, &self.group.service) || !is_same(of, &self.of);
        self.group = group.clone();
        self.turns = turns(&of.tasks[group.task]);
        self.of = of.clone();
        self.view = view;
        if let (Some(view), false) = (view, self.is_stale) {
            self.steer(now, view);
        }
    }

    /// Its task.
    #[must_use]
    pub fn task(&self) -> &Task {
        &self.of.tasks[self.group.task]
    }

    /// The counts of its group's batches at this agent.
    pub fn counted<'c>(&self, counts: &'c mut Counts) -> &'c mut Batches {
        let batches = counts.groups.entry((self.pipeline.clone(), self.group_id)).or_default();
        if batches.labels.pipeline.is_empty() {
            batches.labels = Labels {
                pipeline: self.pipeline.clone(),
                task: self.task().name.clone(),
                variant: self.group.variant.clone(),
                hardware: self.group.hardware.clone(),
            };
        }
        batches
    }

    /// Whether senders may choose it.
    #[must_use]
    pub fn takes(&self) -> bool {
        self.state == State::Ready
    }

    /// Whether it could not be loaded, or died.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        matches!(self.state, State::Failed(_))
    }

    /// Whether it can run what still comes.
    #[must_use]
    pub fn is_up(&self) -> bool {
        matches!(self.state, State::Ready | State::Draining(_))
    }

    /// Its announcement while it is not ready yet.
    #[must_use]
    pub fn coming(&self) -> Option<Coming> {
        let is_blocked = self.state == State::Blocked;
        let is_coming = !self.retired && (is_blocked || self.state == State::Loading);
        is_coming.then_some(Coming { replica: self.id, is_blocked })
    }

    /// Queries that wait or run.
    #[must_use]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.works.len()
    }

    /// Its announcement to other agents while it takes queries.
    #[must_use]
    pub fn announced(&self) -> Announced {
        Announced {
            replica: self.id,
            group: self.group_id,
            pipeline: self.pipeline.clone(),
            task: self.task().name.clone(),
            accuracy_ppm: (self.group.accuracy.clamp(0.0, 1.0) * 1e6) as u32,
        }
    }
}

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

/// Whose turn it is among the children of a task whose rows go to one of them.
fn turns(task: &Task) -> Option<Stride> {
    let ratios = (0..).zip(&task.children).map(|(at, edge)| (edge.ratio, at));
    if task.one_of { Stride::new(ratios) } else { None }
}
