//! What does the holder of one central queue know?

use crate::layout::{LayoutGroup, LayoutPipeline};
use crate::node::replicas::{LocalReplica, QueueOrder, QueuedQuery};
use crate::node::work::LocalQuery;
use crate::policies::QueryHandle;
use apportion_domain::Moment;
use apportion_serving::replica::{Station, StationInput, StationOutput};
use apportion_serving::{Monitor, StationView, Waiting};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A replica that a queue serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CrewMember {
    /// Its agent.
    pub agent: u64,
    /// Its number.
    pub replica: u64,
}

/// What a server of the station stands for.
#[derive(Clone, Copy, Debug)]
struct ServerPlace {
    member: CrewMember,
    /// Queries of its batch that have not left the replica.
    running: usize,
    /// It gets no further batch.
    is_leaving: bool,
}

/// A batch that a server starts.
#[derive(Debug)]
pub struct ServerBatch {
    /// The replica that runs it.
    pub member: CrewMember,
    /// Its queries, in their order.
    pub works: Vec<LocalQuery>,
}

/// The queue of a group, and the servers behind it: one for each replica, or for each slot of one.
pub struct GroupQueue {
    /// Its pipeline's name.
    pub pipeline: String,
    group_id: u64,
    group: LayoutGroup,
    of: Arc<LayoutPipeline>,
    station: Station<QueryHandle>,
    view: Option<StationView>,
    /// Queries that wait, by the key of the station's handle.
    works: BTreeMap<u64, LocalQuery>,
    /// By number of the station's server.
    places: Vec<ServerPlace>,
    /// What the station has asked for, not yet taken.
    outputs: Vec<StationOutput<QueryHandle>>,
    /// When its station wants to be ticked, if later.
    pub wake_ns: Option<u64>,
}

impl GroupQueue {
    /// An empty queue without servers, of the group that this replica belongs to.
    pub fn of_replica(replica: &LocalReplica) -> Self {
        Self {
            pipeline: replica.pipeline.clone(),
            group_id: replica.group_id,
            group: replica.group.clone(),
            of: replica.of.clone(),
            station: replica.of.queue_station(&replica.group, 0),
            view: None,
            works: BTreeMap::new(),
            places: Vec::new(),
            outputs: Vec::new(),
            wake_ns: None,
        }
    }

    /// The number of its group.
    pub fn group_id(&self) -> u64 {
        self.group_id
    }

    /// Position of its task.
    pub fn task(&self) -> usize {
        self.group.task
    }

    /// Whether its queries go to the group of this replica.
    pub fn is_of(&self, replica: &LocalReplica) -> bool {
        (&self.pipeline, self.group_id) == (&replica.pipeline, replica.group_id)
            && self.is_same_variant(&replica.of, &replica.group)
    }

    /// Whether a group of a form of its pipeline has its task, variant and hardware. A new target may give a group's number
    /// to another variant.
    fn is_same_variant(&self, of: &LayoutPipeline, group: &LayoutGroup) -> bool {
        let (own, own_task) = (&self.group, &self.of.tasks[self.group.task].name);
        (own_task, &own.variant, &own.hardware) == (&of.tasks[group.task].name, &group.variant, &group.hardware)
    }

    /// Whether a form of its pipeline does not give this number to another variant.
    pub fn may_be_group(&self, of: &LayoutPipeline, group: u64) -> bool {
        of.groups.get(&group).is_none_or(|group| self.is_same_variant(of, group))
    }

    /// The replicas of an agent have other numbers now. Their batches stay.
    pub fn renumber(&mut self, agent: u64, renamed: impl Fn(&u64) -> u64) {
        for place in self.places.iter_mut().filter(|place| place.member.agent == agent) {
            place.member.replica = renamed(&place.member.replica);
        }
    }

    /// Queries that wait.
    pub fn waiting(&self) -> usize {
        self.works.len()
    }

    /// Whether nothing waits here and nothing of it runs anywhere.
    pub fn is_over(&self) -> bool {
        self.works.is_empty() && self.places.iter().all(|place| place.running == 0)
    }

    /// Its station's measurements, if its policy needs them.
    pub fn monitor(&mut self) -> Option<&mut Monitor> {
        self.station.monitor()
    }

    /// The group's number in a new form of the pipeline: that of the replicas that serve the queue, else its number until
    /// now. None if that number is another variant's.
    pub fn number_in(&self, of: &LayoutPipeline) -> Option<u64> {
        let is_served_by = |id: u64| self.places.iter().any(|place| !place.is_leaving && place.member.replica == id);
        let is_same = |group: &u64| self.may_be_group(of, *group);
        let mut served = of.replicas.iter().filter(|replica| is_served_by(replica.id)).map(|replica| replica.group);
        served.find(is_same).or(Some(self.group_id).filter(is_same))
    }

    /// Follows a new form of its pipeline, in which its group has this number. Queries and running batches stay.
    pub fn follow(&mut self, of: &Arc<LayoutPipeline>, group_id: u64) {
        let Some(group) = of.groups.get(&group_id).filter(|_| !Arc::ptr_eq(of, &self.of)) else { return };
        let (batcher, service) = of.batching(group);
        if batcher != self.station.batcher() || service != self.of.batching(&self.group).1 {
            self.station.reconfigure(batcher, service);
        }
        if of.queue_policy(group) != self.of.queue_policy(&self.group) {
            self.station.set_policy(of.queue_policy(group));
            self.view = None;
        }
        (self.group_id, self.group, self.of) = (group_id, group.clone(), of.clone());
    }

    /// Tells its station the state of the other tasks.
    pub fn apply_view(&mut self, now: Moment, view: Option<StationView>) {
        if let Some(view) = view.filter(|_| self.view != view) {
            self.view = Some(view);
            self.handle(now, StationInput::Steer { view });
        }
    }

    /// Gives the station the servers of these replicas. A server whose replica is not among them ends its batch and leaves.
    pub fn set_crew(&mut self, crew: &[CrewMember], now: Moment) {
        let servers = self.of.servers(&self.group);
        let mut lacking: BTreeMap<CrewMember, u32> = crew.iter().map(|member| (*member, servers)).collect();
        for server in 0..self.places.len() {
            let place = &mut self.places[server];
            if place.is_leaving {
                continue;
            }
            match lacking.get_mut(&place.member).filter(|count| **count > 0) {
                Some(count) => *count -= 1,
                None => {
                    place.is_leaving = true;
                    self.handle(now, StationInput::RemoveServer { server: server as u32 });
                }
            }
        }
        for (member, count) in lacking {
            (0..count).for_each(|_| self.add_server(member, now));
        }
    }

    fn add_server(&mut self, member: CrewMember, now: Moment) {
        let place = ServerPlace { member, running: 0, is_leaving: false };
        let free = (0..self.places.len()).find(|at| self.places[*at].running == 0 && self.station.is_gone(*at as u32));
        let server = free.unwrap_or(self.places.len());
        match free {
            Some(at) => self.places[at] = place,
            None => self.places.push(place),
        }
        self.handle(now, StationInput::AddServer { server: server as u32 });
    }

    /// Gives the station an input, and keeps what it asks for until [`GroupQueue::take_outputs`].
    fn handle(&mut self, now: Moment, input: StationInput<QueryHandle>) {
        self.station.handle(now, input);
        while let Some(output) = self.station.poll_output() {
            self.outputs.push(output);
        }
    }

    /// A query joins the queue.
    pub fn enqueue(&mut self, work: LocalQuery, queued: QueuedQuery, now: Moment) {
        let servers = self.places.iter().filter(|place| !place.is_leaving).count().max(1);
        let at_once = self.station.batcher().batch_max() as usize * servers;
        let input = QueueOrder { waiting: self.station.waiting(), group: &self.group, at_once, slo_ns: self.of.slo_ns }
            .place_query(queued, now);
        self.works.insert(queued.query.key, work);
        self.handle(now, input);
    }

    /// The queries of a request leave the queue.
    pub fn cancel(&mut self, origin: u64, request: u64, now: Moment) {
        self.handle(now, StationInput::Cancel { query: QueryHandle::of_request(origin, request) });
    }

    /// A query has left the replica of a server. True if it was the last one of its batch.
    pub fn note_left(&mut self, server: u32) -> bool {
        let Some(place) = self.places.get_mut(server as usize).filter(|place| place.running > 0) else { return false };
        place.running -= 1;
        place.running == 0
    }

    /// The batch of a server has ended.
    pub fn end_batch(&mut self, server: u32, now: Moment) {
        self.handle(now, StationInput::BatchFinished { server });
    }

    /// Lets the station start batches if it is due, and notes when it wants its next tick. Whether it was due.
    pub fn tick(&mut self, now: Moment) -> bool {
        let is_due = self.station.poll_timeout().is_some_and(|(at, _)| at <= now);
        if is_due {
            self.handle(now, StationInput::Tick);
        }
        self.wake_ns = self.station.poll_timeout().map(|(at, _)| at.as_nanos());
        is_due
    }

    /// Takes out everything that the station has asked for.
    pub fn take_outputs(&mut self) -> Vec<StationOutput<QueryHandle>> {
        std::mem::take(&mut self.outputs)
    }

    /// Takes out a query that the station has dropped.
    pub fn take_dropped(&mut self, query: QueryHandle) -> Option<LocalQuery> {
        self.works.remove(&query.key)
    }

    /// Takes out the queries of the batch that a server starts.
    pub fn take_batch(&mut self, server: u32) -> Option<ServerBatch> {
        let place = self.places.get_mut(server as usize)?;
        let members = self.station.batch(server).iter();
        let works: Vec<LocalQuery> =
            members.map(|member| self.works.remove(&member.query.key).expect("it waited")).collect();
        place.running = works.len();
        Some(ServerBatch { member: place.member, works })
    }

    /// Whether any replica serves it.
    pub fn is_served(&self) -> bool {
        self.places.iter().any(|place| !place.is_leaving)
    }

    /// Takes out all queries that wait, if no replica serves the queue.
    pub fn take_forsaken(&mut self) -> Vec<LocalQuery> {
        if self.works.is_empty() || self.is_served() {
            return Vec::new();
        }
        let mut waiting: Vec<Waiting<QueryHandle>> = Vec::new();
        self.station.evacuate(&mut waiting);
        waiting.into_iter().filter_map(|waiting| self.works.remove(&waiting.query.key)).collect()
    }
}
