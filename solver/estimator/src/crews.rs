//! Which replicas each group has, and what they cost.

use crate::fleet::{Fleet, Group, Query};
use apportion_domain::{GroupName, Moment, Problem, Span};
use apportion_serving::{Station, Waiting};

/// Where a replica serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    /// The station.
    pub station: u32,
    /// The server there; where a replica has several, the first.
    pub server: u32,
}

/// A replica that finishes what it has.
#[derive(Clone, Copy, Debug)]
pub struct Leaving {
    /// Where.
    pub seat: Seat,
    /// Nothing that was sent to it before can arrive after.
    pub quiet: Moment,
    /// How it goes.
    pub manner: Manner,
}

/// How a replica goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// It takes nothing new and ends what it has: its own queue, or the batch that it runs.
    Finish,
    /// It helps to empty the central queue of its group, to which nothing is sent any more, and then finishes.
    Drain,
    /// It is the task's last, and its device is needed: it ends its batch; what waits, and what comes, waits for the next replica.
    Close,
}

/// A replica that died.
#[derive(Clone, Debug)]
pub struct Dead {
    /// Where.
    pub seat: Seat,
    /// Whether its senders know.
    pub is_known: bool,
    /// When the last query that was sent to it has arrived, once none is sent any more.
    pub quiet: Option<Moment>,
    /// What it ran or was about to run.
    pub lost: Vec<Waiting<Query>>,
    /// Whether it was closed and did not die: nothing of it is lost.
    pub is_closed: bool,
}

impl Dead {
    /// One that holds nothing but what comes until there is another.
    pub const fn closed(seat: Seat) -> Self {
        Self { seat, is_known: true, quiet: None, lost: Vec::new(), is_closed: true }
    }
}

/// The replicas of one group.
#[derive(Debug)]
pub struct Crew {
    /// Its pipeline.
    pub line: u32,
    /// Its task, in its pipeline.
    pub task: u32,
    /// Its number among the groups.
    pub group_at: u32,
    /// Its position among the groups of its task.
    pub position: usize,
    /// The pipeline's name.
    pub pipeline: String,
    /// The group's name.
    pub group: GroupName,
    /// Its hardware, by position.
    pub hardware: usize,
    /// Eighths of a device for each replica.
    pub eighths: u64,
    /// Price of one replica per hour.
    pub price: f64,
    /// How long a replica takes to load.
    pub load: Span,
    /// Its batch in the last plan that had it.
    pub batch: u32,
    /// Servers of each replica: more than one in a `continuous` task.
    pub slots: u32,
    /// Time of such a batch.
    pub execution: Span,
    /// Whether the plan in force has it.
    pub is_planned: bool,
    /// Whether its replicas share one queue.
    pub is_central: bool,
    /// An empty station with one replica.
    pub prototype: Station<Query>,
    /// All stations that it ever had.
    pub stations: Vec<u32>,
    /// Servers that are numbered for its central station.
    pub numbered: u32,
    /// How many replicas it should have.
    pub wanted: u32,
    /// Those that serve.
    pub ready: Vec<Seat>,
    /// When those that load are ready.
    pub loading: Vec<Moment>,
    /// Those that finish what they have.
    pub leaving: Vec<Leaving>,
    /// Those that died and still have queries.
    pub dead: Vec<Dead>,
    /// Stations without a replica, to be used again.
    pub free: Vec<u32>,
}

impl Crew {
    /// The servers of one of its replicas.
    pub fn servers(&self, seat: Seat) -> std::ops::Range<u32> {
        seat.server..seat.server + self.slots
    }

    /// Replicas that hold a device: a dead one until it is noticed.
    pub fn held(&self) -> u64 {
        (self.counted() + self.leaving.len()) as u64
    }

    /// Replicas that are there or will be, as far as anyone knows.
    pub fn counted(&self) -> usize {
        self.ready.len() + self.loading.len() + self.dead.iter().filter(|d| !d.is_known).count()
    }

    /// Stations that senders believe in.
    pub fn targets(&self) -> Vec<u32> {
        let dead = self.dead.iter().filter(|d| !d.is_known).map(|d| d.seat.station);
        let mut targets: Vec<u32> = self.ready.iter().map(|s| s.station).chain(dead).collect();
        if self.is_central {
            targets.truncate(1);
        }
        targets
    }

    /// How many replicas senders believe in.
    pub fn believed(&self) -> u32 {
        (self.ready.len() + self.dead.iter().filter(|d| !d.is_known).count()) as u32
    }

    /// Queries per second that so many replicas serve with full batches.
    pub fn capacity_qps(&self, replicas: u32) -> f64 {
        f64::from(replicas) * 1000.0 * f64::from(self.batch) / self.execution.as_millis()
    }

    /// Whether it has no replica and will have none.
    pub fn is_gone(&self) -> bool {
        self.wanted == 0 && self.counted() == 0
    }

    /// Whether another crew is of the same task.
    pub fn is_colleague(&self, other: &Self) -> bool {
        (self.line, self.task) == (other.line, other.task)
    }
}

/// All groups, and the devices that they are on.
#[derive(Debug)]
pub struct Crews {
    /// In the order of the groups.
    pub crews: Vec<Crew>,
    /// Eighths of devices by hardware; `None` without a limit.
    pub(crate) devices: Vec<Option<u64>>,
    /// Up to when costs have been added up.
    since: Moment,
    /// What has been paid.
    pub cost: f64,
    /// Replica-milliseconds served.
    pub served_ms: f64,
}

const MILLIS_PER_HOUR: f64 = 3_600_000.0;

impl Crews {
    /// The replicas that a fleet starts with, all of them warm.
    #[must_use]
    pub fn new(problem: &Problem, fleet: &Fleet<'_>) -> Self {
        let devices = problem.hardware.iter().map(|h| h.count.map(|count| u64::from(count) * 8)).collect();
        let mut crews = Self { crews: Vec::new(), devices, since: Moment::ZERO, cost: 0.0, served_ms: 0.0 };
        for (at, group) in fleet.groups.iter().enumerate() {
            let stations: Vec<u32> = (0..fleet.floor.places.len() as u32)
                .filter(|&s| fleet.floor.places[s as usize].group == at as u32)
                .collect();
            let station = |s: u32| &fleet.floor.stations[s as usize];
            let servers = |s: u32| (0..station(s).servers() as u32).step_by(group.slots as usize);
            let seats = |&s: &u32| servers(s).map(move |server| Seat { station: s, server });
            let ready: Vec<Seat> = stations.iter().flat_map(seats).collect();
            let is_central = fleet.blueprints[group.line as usize].as_ref().is_some_and(|b| b.is_central());
            let mut crew = crews.of(problem, group, at as u32, station(stations[0]).clone());
            crew.is_central = is_central;
            crew.numbered = ready.len() as u32 * group.slots;
            crew.wanted = ready.len() as u32;
            (crew.stations, crew.ready) = (stations, ready);
            crews.crews.push(crew);
        }
        crews
    }

    /// A crew of a group, the next one, without replicas.
    #[must_use]
    pub fn of(&self, problem: &Problem, group: &Group, group_at: u32, prototype: Station<Query>) -> Crew {
        let hardware = problem.hardware_at(group.hardware);
        Crew {
            line: group.line,
            task: group.task_of_line,
            group_at,
            position: self.crews.iter().filter(|c| (c.line, c.task) == (group.line, group.task_of_line)).count(),
            pipeline: problem.pipelines[group.line as usize].name.clone(),
            group: group.name.clone(),
            hardware: group.hardware.get(),
            eighths: u64::from(group.name.share.eighths()),
            price: hardware.price_per_hour * group.name.share.value(),
            load: group.load,
            batch: group.batch,
            slots: group.slots,
            execution: group.service.last().copied().unwrap_or(Span::ZERO),
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

    /// The crews of a task, in the order of their positions.
    pub fn of_task(&self, line: u32, task: u32) -> impl Iterator<Item = &Crew> {
        self.crews.iter().filter(move |c| (c.line, c.task) == (line, task))
    }

    /// The crew of a group.
    pub fn find(&self, pipeline: &str, group: &GroupName) -> Option<usize> {
        self.crews.iter().position(|c| c.pipeline == pipeline && c.group == *group)
    }

    /// Adds up what was paid until `now`; to be called before anything changes.
    pub fn pay(&mut self, now: Moment) {
        let length_ms = now.since(self.since).as_millis();
        for crew in &self.crews {
            self.cost += crew.price * crew.held() as f64 * length_ms / MILLIS_PER_HOUR;
            self.served_ms += crew.ready.len() as f64 * length_ms;
        }
        self.since = self.since.max(now);
    }

    /// Eighths of devices that what is wanted leaves free, by hardware; `None` without a limit.
    #[must_use]
    pub fn room(&self) -> Vec<Option<u64>> {
        let mut room = self.devices.clone();
        for crew in &self.crews {
            if let Some(room) = &mut room[crew.hardware] {
                *room = room.saturating_sub(u64::from(crew.wanted) * crew.eighths);
            }
        }
        room
    }

    /// Whether a replica more of one of these crews would find room.
    #[must_use]
    pub fn has_spare(&self, crews: &[usize]) -> bool {
        let room = self.room();
        let fits = |&at: &usize| room[self.crews[at].hardware].is_none_or(|room| room >= self.crews[at].eighths);
        crews.iter().any(fits)
    }

    /// When the next replica has loaded.
    #[must_use]
    pub fn next_ready(&self) -> Moment {
        self.crews.iter().flat_map(|c| &c.loading).copied().min().unwrap_or(Moment::NEVER)
    }

    /// Whether some replica finishes what it has.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.crews.iter().any(|c| !c.leaving.is_empty())
    }

    /// Whether another crew of this one's task has a replica that serves.
    #[must_use]
    pub fn has_colleague(&self, at: usize) -> bool {
        let crew = &self.crews[at];
        self.crews.iter().any(|c| c.line == crew.line && c.task == crew.task && !c.ready.is_empty())
    }
}
