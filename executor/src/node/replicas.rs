//! The replicas of this agent: what is loaded, what runs, and when an old one may go.

use super::counts::{Batches, Counts, Labels};
use super::{Action, Node, Work};
use crate::layout::{Group, Layout, Pipeline, Task, difference};
use crate::slot::Happened;
use crate::wire::Announced;
use apportion_serving::Dropper;
use apportion_serving::batcher::Batcher;
use apportion_serving::replica::Station;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Queries that may wait at one replica.
pub const QUEUE_LEN_MAX: usize = 10_000;
/// After a replica has said that it takes no more, how long it waits for what is on its way.
const LINGER_NS: u64 = 500_000_000;

/// Where a replica is in its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Its file is fetched or loaded.
    Loading,
    /// It takes queries.
    Ready,
    /// It could not be loaded or its thread died.
    Failed(String),
    /// It takes no more queries since this time; what comes is still served.
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
    /// All tasks of the pipeline, as they were when it was loaded.
    pub tasks: Arc<Vec<Task>>,
    /// Where it is in its life.
    pub state: State,
    /// Not in the target in force: it goes once others have taken over.
    pub retired: bool,
    /// Its queue and its batch.
    pub station: Station<u64>,
    /// What waits or runs, by the station's handle.
    pub works: HashMap<u64, Work>,
}

fn station(group: &Group) -> Station<u64> {
    Station::new(1, Batcher::AtStart { batch_max: group.batch as u32 }, Dropper::Never, QUEUE_LEN_MAX)
}

impl Replica {
    fn new(id: u64, pipeline: &str, group_id: u64, from: &Pipeline) -> Self {
        let group = from.groups[&group_id].clone();
        Self {
            id,
            pipeline: pipeline.to_string(),
            group_id,
            station: station(&group),
            group,
            tasks: Arc::new(from.tasks.clone()),
            state: State::Loading,
            retired: false,
            works: HashMap::new(),
        }
    }

    /// Forgets what waits and runs.
    pub fn renew_station(&mut self) {
        self.station = station(&self.group);
    }

    /// Its task.
    #[must_use]
    pub fn task(&self) -> &Task {
        &self.tasks[self.group.task]
    }

    /// What is counted of its group's batches here.
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

    /// Whether it can run what still comes.
    #[must_use]
    pub fn is_up(&self) -> bool {
        matches!(self.state, State::Ready | State::Draining(_))
    }

    /// Queries that wait or run.
    #[must_use]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.works.len()
    }

    /// As it is told to other agents.
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
    /// The replicas here and where they are in their lives.
    pub fn replicas(&self) -> impl Iterator<Item = &Replica> {
        self.replicas.values()
    }

    /// Takes nothing new from now on, neither requests nor queries of other agents nor targets.
    pub(super) fn leave(&mut self) {
        self.leaving = true;
        let now_ns = self.now_ns;
        for replica in self.replicas.values_mut() {
            replica.retired = true;
            if replica.state == State::Ready {
                replica.state = State::Draining(now_ns);
            }
        }
        self.changed();
    }

    pub(super) fn obey(&mut self, layout: Arc<Layout>) {
        if self.leaving {
            return;
        }
        // A new target is a new try for what has failed.
        let failed = self.replicas.values().filter(|r| matches!(r.state, State::Failed(_))).map(|r| r.id);
        for id in failed.collect::<Vec<_>>() {
            self.replicas.remove(&id);
            self.actions.push(Action::Unload(id));
        }
        let loaded: BTreeSet<u64> = self.replicas.keys().copied().collect();
        let difference = difference(&loaded, &layout, self.agent);
        // An agent that is new to the fleet may have announced its replicas before the target that names it came here.
        let left = |agent: &u64| self.layout.agents.contains_key(agent) && !layout.agents.contains_key(agent);
        self.peers.retain(|agent, peer| peer.connected || !left(agent));
        self.layout = layout.clone();
        for id in difference.retire {
            self.replicas.get_mut(&id).expect("it is loaded").retired = true;
        }
        for id in difference.keep {
            let replica = self.replicas.get_mut(&id).expect("it is loaded");
            replica.retired = false;
            if matches!(replica.state, State::Draining(_)) {
                replica.state = State::Ready;
            }
        }
        let all = layout.pipelines.iter().flat_map(|(name, p)| p.replicas.iter().map(move |r| (name, p, r)));
        for (name, pipeline, place) in all.filter(|(_, _, r)| difference.load.contains(&r.id)) {
            let replica = Replica::new(place.id, name, place.group, pipeline);
            self.actions.push(Action::Load(place.id, replica.group.digest.clone()));
            self.replicas.insert(place.id, replica);
        }
        self.changed();
    }

    pub(super) fn happen(&mut self, id: u64, happened: Happened) {
        let Some(replica) = self.replicas.get_mut(&id) else { return };
        match happened {
            Happened::Ready => {
                if replica.state == State::Loading {
                    replica.state = if self.leaving { State::Draining(self.now_ns) } else { State::Ready };
                    self.changed();
                }
            }
            Happened::Failed(reason) => {
                tracing::error!(replica = id, reason, "a replica failed");
                replica.state = State::Failed(reason.clone());
                self.changed();
                self.abandon(id, &reason);
            }
            Happened::Batch(result, took) => self.complete(id, result, took),
        }
    }

    fn changed(&mut self) {
        self.reroute();
        self.announce();
        self.actions.push(Action::Acknowledge);
    }

    /// Whether the target is in force here: each of its replicas has come up or failed.
    #[must_use]
    pub fn settled(&self) -> bool {
        self.replicas.values().all(|r| r.retired || r.state != State::Loading)
    }

    /// Lets old replicas go: first they stop to take queries, when others take them; then they are unloaded.
    pub(super) fn retire(&mut self) {
        let settled = self.settled();
        let (mut stop, mut unload) = (Vec::new(), Vec::new());
        for replica in self.replicas.values().filter(|r| r.retired) {
            match &replica.state {
                State::Loading | State::Failed(_) if replica.len() == 0 => unload.push(replica.id),
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
        for id in stop {
            self.replicas.get_mut(&id).expect("it is there").state = State::Draining(self.now_ns);
        }
        for id in unload {
            self.replicas.remove(&id);
            self.actions.push(Action::Unload(id));
        }
        if any {
            self.changed();
        }
    }

    /// Whether its pipeline is gone or a ready replica of the target serves its task.
    fn is_replaced(&self, old: &Replica) -> bool {
        let Some(pipeline) = self.layout.pipelines.get(&old.pipeline) else { return true };
        let task = &old.task().name;
        let wanted = |id: u64| pipeline.replicas.iter().any(|r| r.id == id);
        self.routes.replicas(&old.pipeline, task).any(wanted) || pipeline.tasks.iter().all(|t| t.name != *task)
    }

    pub(super) fn tick(&mut self) {
        self.retire();
        self.attempt_again();
        self.give_up();
    }
}
