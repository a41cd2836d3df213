//! Which replicas each group has, which come and which go, and what that costs.

use crate::fleet::{Fleet, Query};
use apportion_domain::{GroupName, Moment, Problem, Queueing, ServingPolicy, Span};
use apportion_serving::{Station, Waiting};

/// Where a replica serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    /// The station.
    pub station: u32,
    /// The server there.
    pub server: u32,
}

/// A replica that finishes what it has.
#[derive(Clone, Copy, Debug)]
pub struct Leaving {
    /// Where.
    pub seat: Seat,
    /// Nothing that was sent to it before can arrive after.
    pub quiet: Moment,
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
    /// Replicas that hold a device: a dead one until it is noticed.
    fn held(&self) -> u64 {
        (self.counted() + self.leaving.len()) as u64
    }

    /// Replicas that are there or will be, as far as anyone knows.
    fn counted(&self) -> usize {
        self.ready.len() + self.loading.len() + self.dead.iter().filter(|d| !d.is_known).count()
    }

    /// Stations that senders believe in.
    pub fn targets(&self) -> Vec<u32> {
        let dead = self.dead.iter().filter(|d| !d.is_known).map(|d| d.seat.station);
        self.ready.iter().map(|s| s.station).chain(dead).collect()
    }
}

/// All groups, and the devices that they are on.
#[derive(Debug)]
pub struct Crews {
    /// In the order of the groups.
    pub crews: Vec<Crew>,
    /// Eighths of devices by hardware; `None` without a limit.
    devices: Vec<Option<u64>>,
    /// Up to when costs have been added up.
    since: Moment,
    /// What has been paid.
    pub cost: f64,
    /// Replica-milliseconds served.
    pub served_ms: f64,
}

const MILLIS_PER_HOUR: f64 = 3_600_000.0;

impl Crews {
    /// The replicas that a fleet starts with, all of them warm. `serving` is by pipeline.
    #[must_use]
    pub fn new(problem: &Problem, fleet: &Fleet, serving: &[ServingPolicy]) -> Self {
        let mut crews: Vec<Crew> = Vec::with_capacity(fleet.groups.len());
        for (at, group) in fleet.groups.iter().enumerate() {
            let stations: Vec<u32> = (0..fleet.floor.places.len() as u32)
                .filter(|&s| fleet.floor.places[s as usize].group == at as u32)
                .collect();
            let station = |s: u32| &fleet.floor.stations[s as usize];
            let seats = |&s: &u32| (0..station(s).servers() as u32).map(move |server| Seat { station: s, server });
            let ready: Vec<Seat> = stations.iter().flat_map(seats).collect();
            let hardware = problem.hardware_at(group.hardware);
            let same_task = |c: &&Crew| c.line == group.line && c.task == group.task_of_line;
            crews.push(Crew {
                line: group.line,
                task: group.task_of_line,
                group_at: at as u32,
                position: crews.iter().filter(same_task).count(),
                pipeline: problem.pipelines[group.line as usize].name.clone(),
                group: group.name.clone(),
                hardware: group.hardware.get(),
                eighths: u64::from(group.name.share.eighths()),
                price: hardware.price_per_hour * group.name.share.value(),
                load: group.load,
                is_central: serving[group.line as usize].queueing == Queueing::Central,
                prototype: station(stations[0]).clone(),
                numbered: ready.len() as u32,
                wanted: ready.len() as u32,
                stations,
                ready,
                loading: Vec::new(),
                leaving: Vec::new(),
                dead: Vec::new(),
                free: Vec::new(),
            });
        }
        let devices = problem.hardware.iter().map(|h| h.count.map(|count| u64::from(count) * 8)).collect();
        Self { crews, devices, since: Moment::ZERO, cost: 0.0, served_ms: 0.0 }
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

    /// Starts to load what is wanted and fits on the devices, gives up what loads and is not wanted, and names one crew at a time
    /// that should let a replica go: while a task has replicas that load, its others stay, unless they hold the device.
    pub fn reconcile(&mut self, now: Moment) -> Option<usize> {
        let mut free = self.devices.clone();
        for crew in &self.crews {
            if let Some(free) = &mut free[crew.hardware] {
                *free = free.saturating_sub(crew.held() * crew.eighths);
            }
        }
        // A task without any replica comes before those that want more.
        for crew in self.crews.iter_mut().filter(|c| c.counted() == 0) {
            let left = free[crew.hardware].map(|f| f.checked_sub(crew.eighths));
            if left != Some(None) {
                free[crew.hardware] = left.flatten();
                crew.loading.push(now + crew.load);
            }
        }
        let mut is_short = vec![false; free.len()];
        for crew in &mut self.crews {
            while crew.counted() > crew.wanted as usize && crew.loading.pop().is_some() {
                free[crew.hardware] = free[crew.hardware].map(|f| f + crew.eighths);
            }
        }
        for crew in &mut self.crews {
            while crew.counted() < crew.wanted as usize {
                let left = free[crew.hardware].map(|f| f.checked_sub(crew.eighths));
                if left == Some(None) {
                    is_short[crew.hardware] = true;
                    break;
                }
                free[crew.hardware] = left.flatten();
                crew.loading.push(now + crew.load);
            }
        }
        let is_loading = |c: &Crew| {
            self.crews.iter().any(|other| other.line == c.line && other.task == c.task && !other.loading.is_empty())
        };
        let leaves = |c: &Crew| c.ready.len() > c.wanted as usize && (is_short[c.hardware] || !is_loading(c));
        self.crews.iter().position(leaves)
    }
}
