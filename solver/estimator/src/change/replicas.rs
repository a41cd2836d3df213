//! Which replicas each group has, and what they cost.

use crate::compile::CompiledPlan;
use crate::state::group::CompiledGroup;
use crate::state::query::SimulatedQuery;
use crate::state::serving::StartRank;
use apportion_domain::{GroupName, Moment, Problem, TimeSpan};
use apportion_serving::{Station, Waiting};

/// Where a replica serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaLocation {
    /// The station.
    pub station: u32,
    /// The server there; where a replica has several, the first.
    pub server: u32,
}

/// A replica that finishes its queries and then leaves.
#[derive(Clone, Copy, Debug)]
pub struct LeavingReplica {
    /// Where.
    pub replica: ReplicaLocation,
    /// No query that was sent to it can arrive after this moment.
    pub quiet: Moment,
    /// How it leaves.
    pub departure: Departure,
}

/// How a replica leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// It takes no new queries, and ends its own queue, or the batch that it runs.
    Finish,
    /// It helps to empty the central queue of its group, which gets no new queries, and then finishes.
    Drain,
    /// It is the task's last replica, and its device is needed. It ends its batch. Queries wait for the next replica.
    Close,
}

/// A replica that died.
#[derive(Clone, Debug)]
pub struct DeadReplica {
    /// Where.
    pub replica: ReplicaLocation,
    /// Whether its senders know.
    pub is_known: bool,
    /// When the last query that was sent to it has arrived, once none is sent any more.
    pub quiet: Option<Moment>,
    /// The queries that it ran or was about to run.
    pub lost: Vec<Waiting<SimulatedQuery>>,
    /// Whether it was closed and did not die: none of its queries is lost.
    pub is_closed: bool,
}

impl DeadReplica {
    /// A closed replica. It only holds the queries that arrive until another replica serves.
    pub const fn closed(replica: ReplicaLocation) -> Self {
        Self { replica, is_known: true, quiet: None, lost: Vec::new(), is_closed: true }
    }
}

/// The replicas of one group.
#[derive(Debug)]
pub struct GroupReplicas {
    /// Its pipeline.
    pub pipeline: u32,
    /// Its task, in its pipeline.
    pub task: u32,
    /// Its number among the groups.
    pub group: u32,
    /// Its position among the groups of its task.
    pub position: usize,
    /// The pipeline's name.
    pub pipeline_name: String,
    /// The group's name.
    pub name: GroupName,
    /// Its hardware, by position.
    pub hardware: usize,
    /// Eighths of a device for each replica.
    pub eighths: u64,
    /// Price of one replica per hour.
    pub price: f64,
    /// How long a replica takes to load.
    pub load: TimeSpan,
    /// Its batch in the last plan that had it.
    pub batch: u32,
    /// Servers of each replica: more than one in a `continuous` task.
    pub slots: u32,
    /// Time of such a batch.
    pub execution: TimeSpan,
    /// Whether the plan in force has it.
    pub is_planned: bool,
    /// Whether its replicas share one queue.
    pub is_central: bool,
    /// An empty station with one replica.
    pub prototype: Station<SimulatedQuery>,
    /// All stations that it ever had.
    pub stations: Vec<u32>,
    /// Servers that are numbered for its central station.
    pub numbered: u32,
    /// How many replicas it should have.
    pub wanted: u32,
    /// Replicas that serve.
    pub ready: Vec<ReplicaLocation>,
    /// For each replica that loads, when it is ready.
    pub loading: Vec<Moment>,
    /// Replicas that finish their queries.
    pub leaving: Vec<LeavingReplica>,
    /// Replicas that died and still have queries.
    pub dead: Vec<DeadReplica>,
    /// Stations without a replica, to be used again.
    pub free: Vec<u32>,
}

impl GroupReplicas {
    /// The servers of one of its replicas.
    pub fn servers(&self, replica: ReplicaLocation) -> std::ops::Range<u32> {
        replica.server..replica.server + self.slots
    }

    /// Replicas that hold a device: a dead one until it is noticed.
    pub fn devices_held(&self) -> u64 {
        (self.counted() + self.leaving.len()) as u64
    }

    /// Replicas that serve or load. A dead replica counts until its senders notice.
    pub fn counted(&self) -> usize {
        self.ready.len() + self.loading.len() + self.dead.iter().filter(|d| !d.is_known).count()
    }

    /// Stations that senders send to. A dead replica's station counts until its senders notice.
    pub fn targets(&self) -> Vec<u32> {
        let dead = self.dead.iter().filter(|d| !d.is_known).map(|d| d.replica.station);
        let mut targets: Vec<u32> = self.ready.iter().map(|s| s.station).chain(dead).collect();
        if self.is_central {
            targets.truncate(1);
        }
        targets
    }

    /// How many replicas serve, as far as senders know.
    pub fn known_to_senders(&self) -> u32 {
        (self.ready.len() + self.dead.iter().filter(|d| !d.is_known).count()) as u32
    }

    /// Throughput of this many replicas with full batches, in queries per second.
    pub fn capacity_qps(&self, replicas: u32) -> f64 {
        f64::from(replicas) * 1000.0 * f64::from(self.batch) / self.execution.as_millis()
    }

    /// Whether it has no replica and will have none.
    pub fn is_gone(&self) -> bool {
        self.wanted == 0 && self.counted() == 0
    }

    /// The place of its station number `at` in the order in which stations start.
    pub fn rank(&self, at: usize) -> StartRank {
        StartRank { pipeline: self.pipeline, task: self.task, position: self.position as u32, replica: at as u32 }
    }

    /// Whether another group is of the same task.
    pub fn is_sibling(&self, other: &Self) -> bool {
        (self.pipeline, self.task) == (other.pipeline, other.task)
    }
}

/// All groups, and the devices that they are on.
#[derive(Debug)]
pub struct Replicas {
    /// In the order of the groups.
    pub groups: Vec<GroupReplicas>,
    /// Eighths of devices by hardware; `None` without a limit.
    pub(crate) devices: Vec<Option<u64>>,
    /// Up to when costs have been added up.
    since: Moment,
    /// The cost so far.
    pub cost: f64,
    /// Replica-milliseconds served.
    pub served_ms: f64,
}

const MILLIS_PER_HOUR: f64 = 3_600_000.0;

impl Replicas {
    /// The replicas of the compiled plan, all of them warm.
    #[must_use]
    pub fn new(problem: &Problem, compiled: &CompiledPlan<'_>) -> Self {
        let devices = problem.hardware.iter().map(|h| h.count.map(|count| u64::from(count) * 8)).collect();
        let mut all = Self { groups: Vec::new(), devices, since: Moment::ZERO, cost: 0.0, served_ms: 0.0 };
        for (at, group) in compiled.groups.iter().enumerate() {
            let stations: Vec<u32> = (0..compiled.serving.infos.len() as u32)
                .filter(|&s| compiled.serving.infos[s as usize].group == at as u32)
                .collect();
            let station = |s: u32| &compiled.serving.stations[s as usize];
            let servers = |s: u32| (0..station(s).servers() as u32).step_by(group.slots as usize);
            let of_station = |&s: &u32| servers(s).map(move |server| ReplicaLocation { station: s, server });
            let ready: Vec<ReplicaLocation> = stations.iter().flat_map(of_station).collect();
            let is_central =
                compiled.compilers[group.pipeline as usize].as_ref().is_some_and(|compiler| compiler.is_central());
            let mut replicas = all.without_replicas(problem, group, at as u32, station(stations[0]).clone());
            replicas.is_central = is_central;
            replicas.numbered = ready.len() as u32 * group.slots;
            replicas.wanted = ready.len() as u32;
            (replicas.stations, replicas.ready) = (stations, ready);
            all.groups.push(replicas);
        }
        all
    }

    /// The entry of a new group, without replicas.
    #[must_use]
    pub fn without_replicas(
        &self,
        problem: &Problem,
        group: &CompiledGroup,
        group_at: u32,
        prototype: Station<SimulatedQuery>,
    ) -> GroupReplicas {
        let hardware = problem.hardware_at(group.hardware);
        GroupReplicas {
            pipeline: group.pipeline,
            task: group.task_in_pipeline,
            group: group_at,
            position: self
                .groups
                .iter()
                .filter(|c| (c.pipeline, c.task) == (group.pipeline, group.task_in_pipeline))
                .count(),
            pipeline_name: problem.pipelines[group.pipeline as usize].name.clone(),
            name: group.name.clone(),
            hardware: group.hardware.get(),
            eighths: u64::from(group.name.share.eighths()),
            price: hardware.price_per_hour * group.name.share.value(),
            load: group.load,
            batch: group.batch,
            slots: group.slots,
            execution: group.service.last().copied().unwrap_or(TimeSpan::ZERO),
            is_planned: true,
            is_central: false,
            prototype,
            stations: Vec::new(),
            numbered: 0,
            wanted: 0,
            ready: Vec::new(),
            loading: Vec::new(),
            leaving: Vec::new(),
            dead: Vec::new(),
            free: Vec::new(),
        }
    }

    /// The groups of a task, in the order of their positions.
    pub fn of_task(&self, pipeline: u32, task: u32) -> impl Iterator<Item = &GroupReplicas> {
        self.groups.iter().filter(move |c| (c.pipeline, c.task) == (pipeline, task))
    }

    /// The position of a group, by name.
    pub fn find(&self, pipeline: &str, group: &GroupName) -> Option<usize> {
        self.groups.iter().position(|c| c.pipeline_name == pipeline && c.name == *group)
    }

    /// Adds the costs up to `now`. To be called before any change.
    pub fn add_costs(&mut self, now: Moment) {
        let length_ms = now.since(self.since).as_millis();
        for group in &self.groups {
            self.cost += group.price * group.devices_held() as f64 * length_ms / MILLIS_PER_HOUR;
            self.served_ms += group.ready.len() as f64 * length_ms;
        }
        self.since = self.since.max(now);
    }

    /// Eighths of devices that the wanted replicas leave free, by hardware; `None` without a limit.
    #[must_use]
    pub fn free_eighths(&self) -> Vec<Option<u64>> {
        let mut room = self.devices.clone();
        for group in &self.groups {
            if let Some(room) = &mut room[group.hardware] {
                *room = room.saturating_sub(u64::from(group.wanted) * group.eighths);
            }
        }
        room
    }

    /// Whether one more replica of one of these groups would fit.
    #[must_use]
    pub fn has_spare(&self, groups: &[usize]) -> bool {
        let room = self.free_eighths();
        let fits = |&at: &usize| room[self.groups[at].hardware].is_none_or(|room| room >= self.groups[at].eighths);
        groups.iter().any(fits)
    }

    /// When the next replica has loaded.
    #[must_use]
    pub fn next_ready(&self) -> Moment {
        self.groups.iter().flat_map(|c| &c.loading).copied().min().unwrap_or(Moment::NEVER)
    }

    /// Whether some replica finishes its queries before it leaves.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.groups.iter().any(|c| !c.leaving.is_empty())
    }

    /// Whether another group of this one's task has a replica that serves.
    #[must_use]
    pub fn has_serving_sibling(&self, at: usize) -> bool {
        let group = &self.groups[at];
        self.groups.iter().any(|c| c.pipeline == group.pipeline && c.task == group.task && !c.ready.is_empty())
    }
}
