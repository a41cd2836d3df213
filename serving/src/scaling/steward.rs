//! The fast loop between two plans: tables for the present load, PARD's module states, and replicas by tuner or ladder.
//!
//! One steward belongs to one pipeline. Agents report their measurements, which arrive late; the steward's decision is a
//! [`Steering`], which arrives late too. The steward is no part of an agent's request path: an agent without news keeps its
//! last steering. A steward serves one plan. Another plan gets another steward, which starts with the load that the former
//! one has seen ([`Steward::inherit`]).

use crate::routing::most_accurate_first::UnknownGroup;
use crate::routing::tables::{self, RoutedGroup, RouterTable};
use crate::scaling::error_budget::OutcomeCount;
use crate::scaling::headroom_controller::HeadroomController;
use crate::scaling::ladder::Ladder;
use crate::scaling::leap_reserve::LeapLoss;
use crate::scaling::outline::{Outline, PlannedGroup};
use crate::scaling::state_planner::{self, StatePlanner, TooManyPaths};
use crate::scaling::tuner::Tuner;
use crate::station::dropper::StationView;
use crate::station::monitor::Monitor;
use apportion_domain::{Hardware, Moment, Pipeline, PipelinePlan, RoutingPolicy, SLACK, TimeSpan};
use std::collections::VecDeque;

/// How often tables and module states are computed (PARD section 4.1; Loki leaves its period open).
pub const PERIOD: TimeSpan = state_planner::PERIOD;
/// How often the scaler is asked; its arrivals need not be reported more often.
pub const TUNE: TimeSpan = TimeSpan::from_nanos(100_000_000);
/// Periods whose mean is the present load: reports of several agents do not all fall into the same one.
const RECENT_PERIODS: usize = 2;
/// Weight of the youngest period in the moving average of the load (Loki section 4.3 averages so, but gives no weight).
const WEIGHT: f64 = 0.3;
/// Weight of the profile's fan-out, in queries.
const PRIOR_QUERIES: f64 = 50.0;
/// Part of the seen fan-out that is kept for the next period.
const MEMORY: f64 = 0.9;
/// Tables whose shares differ by at most this count as equal.
const SHARE_SLACK: f64 = 0.01;

/// The policy that says how many replicas there should be.
#[derive(Clone, Debug)]
pub enum Scaler {
    /// InferLine's tuner, which scales the plan in proportion to the load.
    Tuner(Tuner),
    /// The plan's own ladder.
    Ladder(Ladder),
}

impl Scaler {
    fn arrived(&mut self, now: Moment, count: u32) {
        match self {
            Self::Tuner(tuner) => tuner.arrived(now, count),
            Self::Ladder(ladder) => ladder.arrived(now, count),
        }
    }

    /// Takes over the arrivals that another scaler of the same kind has seen. The other kind counts differently.
    fn inherit(&mut self, former: &Self) {
        match (self, former) {
            (Self::Tuner(tuner), Self::Tuner(former)) => tuner.inherit(former),
            (Self::Ladder(ladder), Self::Ladder(former)) => ladder.inherit(former),
            _ => {}
        }
    }

    /// Replicas by group, if they are to change.
    fn decide(&mut self, now: Moment, outline: &Outline) -> Option<Vec<u32>> {
        match self {
            Self::Tuner(tuner) => tuner.decide(now).map(|by_task| outline.by_group(by_task)),
            Self::Ladder(ladder) => ladder.decide(now).map(<[u32]>::to_vec),
        }
    }
}

/// The plan of a steward.
#[derive(Clone, Debug)]
pub struct StewardConfig {
    /// The pipeline as it is planned.
    pub outline: Outline,
    /// Whether tables follow the load (`most_accurate_first`); otherwise the plan's tables stay.
    pub routes: bool,
    /// Scales replicas, if anything does.
    pub scaler: Option<Scaler>,
}

impl StewardConfig {
    /// Of a pipeline's part of a plan.
    ///
    /// # Errors
    /// As [`Outline::of`].
    pub fn of(
        pipeline: &Pipeline,
        hardware: &[Hardware],
        part: &PipelinePlan,
        scaler: Option<Scaler>,
    ) -> Result<Self, UnknownGroup> {
        let outline = Outline::of(pipeline, hardware, part)?;
        Ok(Self { outline, routes: part.serving.routing == RoutingPolicy::MostAccurateFirst, scaler })
    }
}

/// An event for a steward.
#[derive(Debug)]
pub enum StewardInput<'a> {
    /// Requests that were offered in a bin, shed ones included; bins never go back.
    Offered {
        /// The bin.
        bin: Moment,
        /// How many.
        count: u32,
    },
    /// Queries of a group that ended, and the queries that they made.
    Made {
        /// The group.
        group: usize,
        /// Queries that ended.
        queries: u64,
        /// The queries that they made, for each child of its task in that order.
        children: &'a [u64],
    },
    /// The measurements of a station. Its monitor is cleared.
    Measured {
        /// The station's task.
        task: usize,
        /// The counts.
        monitor: &'a mut Monitor,
    },
    /// All requests that ended since the last report, also if none did.
    Ended(OutcomeCount),
    /// The number of serving replicas of a group.
    Ready {
        /// The group.
        group: usize,
        /// How many.
        replicas: u32,
    },
    /// Time has passed.
    Tick,
}

/// A steward's decision, in force between two plans. Later epochs replace earlier ones of the same generation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Steering {
    /// Its number.
    pub epoch: u64,
    /// Tables of all senders by group number; empty if the plan's tables stay.
    pub tables: Vec<RouterTable>,
    /// Groups with capacity to spare and how much, in queries per second, most accurate first within a task (Loki section
    /// 5.2).
    pub backup: Vec<(u32, f64)>,
    /// Replicas that each group should have; empty if nothing scales.
    pub replicas: Vec<u32>,
    /// By task, the view of its stations; empty if the policy does not use module states.
    pub views: Vec<StationView>,
}

/// The queries of one group that ended, and the queries that they made. Older periods weigh less.
#[derive(Clone, Debug)]
struct SeenFanout {
    /// Queries that ended.
    queries: f64,
    /// The queries that they made, for each child of the group's task.
    children: Vec<f64>,
}

/// The steward of one pipeline.
#[derive(Clone, Debug)]
pub struct Steward {
    config: StewardConfig,
    states: Option<StatePlanner>,
    /// By task: the part of its capacity that the plan uses. Tables use no more before all groups share the excess.
    fill: Vec<f64>,
    ready: Vec<u32>,
    /// By group.
    seen: Vec<SeenFanout>,
    /// Requests in the present period.
    offered: u64,
    /// Requests of the youngest periods, the youngest first.
    recent: VecDeque<u64>,
    average_qps: f64,
    steering: Steering,
    is_new: bool,
    period_end: Moment,
    tune: Moment,
}

impl Steward {
    /// Of a plan whose replicas all serve, from `now` on. A ladder hears of the plan's dropping policy. The first epoch is
    /// the one after `epoch`: a steward that takes over from another begins above all epochs of that one.
    ///
    /// # Errors
    /// If the pipeline has too many paths for PARD's states.
    pub fn new(mut config: StewardConfig, now: Moment, epoch: u64) -> Result<Self, TooManyPaths> {
        if let Some(Scaler::Ladder(ladder)) = &mut config.scaler {
            ladder.lose_by_leaps(LeapLoss::under(config.outline.dropping));
        }
        let outline = &config.outline;
        let tasks = outline.graph.children.len();
        let ready: Vec<u32> = outline.groups.iter().map(|g| g.replicas).collect();
        let states = outline.state_planner()?;
        let unseen = |g: &PlannedGroup| SeenFanout { queries: 0.0, children: vec![0.0; g.fanout.len()] };
        let seen = outline.groups.iter().map(unseen).collect();
        let mut steward = Self {
            states,
            fill: vec![1.0; tasks],
            ready,
            seen,
            offered: 0,
            recent: VecDeque::with_capacity(RECENT_PERIODS),
            average_qps: outline.demand_qps,
            steering: Steering { epoch, ..Steering::default() },
            is_new: false,
            period_end: now + PERIOD,
            tune: if config.scaler.is_some() { now + TUNE } else { Moment::NEVER },
            config,
        };
        let outline = &steward.config.outline;
        let planned = tables::route(&outline.graph, &steward.servers(), outline.demand_qps);
        steward.fill = (0..tasks).map(|t| steward.planned_fill(t, &planned.incoming_qps)).collect();
        steward.recompute();
        Ok(steward)
    }

    /// Takes over from the steward of the pipeline's former plan the load, and the fan-out of the groups that both plans
    /// have. `was` says which group of the former plan each of this plan's is, by position.
    pub fn inherit(&mut self, former: &Self, was: &[Option<usize>]) {
        if let (Some(scaler), Some(before)) = (&mut self.config.scaler, &former.config.scaler) {
            scaler.inherit(before);
        }
        self.offered = former.offered;
        self.recent.clone_from(&former.recent);
        if !former.recent.is_empty() {
            self.average_qps = former.average_qps;
        }
        for (seen, was) in self.seen.iter_mut().zip(was) {
            // The same variant makes the same children. Counts of a pipeline of another shape are forgotten.
            let is_alike = |before: &&SeenFanout| before.children.len() == seen.children.len();
            let before = was.and_then(|at| former.seen.get(at)).filter(is_alike);
            before.inspect(|before| seen.clone_from(before));
        }
        self.period_end = former.period_end;
        self.recompute();
    }

    /// The load that tables are made for, in requests per second: the mean of the last two periods, or the moving average
    /// if that is larger. So it rises at once and falls slowly.
    #[must_use]
    pub fn demand_qps(&self) -> f64 {
        if self.recent.is_empty() {
            return self.config.outline.demand_qps;
        }
        let sum: u64 = self.recent.iter().sum();
        let recent_qps = sum as f64 * 1e3 / (self.recent.len() as f64 * PERIOD.as_millis());
        recent_qps.max(self.average_qps)
    }

    /// The present headroom of its ladder, if it has one.
    #[must_use]
    pub fn headroom(&self) -> Option<f64> {
        match &self.config.scaler {
            Some(Scaler::Ladder(ladder)) => Some(ladder.headroom()),
            Some(Scaler::Tuner(_)) | None => None,
        }
    }

    /// The controller of its ladder's headroom, if it has one that the measured misses move.
    #[must_use]
    pub fn feedback(&self) -> Option<&HeadroomController> {
        match &self.config.scaler {
            Some(Scaler::Ladder(ladder)) => ladder.feedback(),
            Some(Scaler::Tuner(_)) | None => None,
        }
    }

    /// Takes an input at `now`.
    pub fn handle(&mut self, now: Moment, input: StewardInput<'_>) {
        match input {
            StewardInput::Offered { bin, count } => {
                self.offered += u64::from(count);
                if let Some(scaler) = &mut self.config.scaler {
                    scaler.arrived(bin.min(now), count);
                }
            }
            StewardInput::Ended(count) => {
                if let Some(Scaler::Ladder(ladder)) = &mut self.config.scaler {
                    ladder.ended(now, count);
                }
            }
            StewardInput::Made { group, queries, children } => {
                let seen = &mut self.seen[group];
                seen.queries += queries as f64;
                seen.children.iter_mut().zip(children).for_each(|(sum, &count)| *sum += count as f64);
            }
            StewardInput::Measured { task, monitor } => match &mut self.states {
                Some(states) => states.observe(task, monitor),
                None => monitor.clear(),
            },
            StewardInput::Ready { group, replicas } => {
                if self.ready[group] != replicas {
                    self.ready[group] = replicas;
                    self.update_modules(self.config.outline.groups[group].task);
                    self.update_tables();
                }
            }
            StewardInput::Tick => self.tick(now),
        }
    }

    /// The decision since the last call, with its own epoch; `None` if nothing changed.
    pub fn poll_output(&mut self) -> Option<Steering> {
        std::mem::take(&mut self.is_new).then(|| {
            self.steering.epoch += 1;
            self.steering.clone()
        })
    }

    /// When it wants its next [`StewardInput::Tick`].
    #[must_use]
    pub fn poll_timeout(&self) -> Moment {
        self.period_end.min(self.tune)
    }

    fn tick(&mut self, now: Moment) {
        if self.tune <= now {
            self.tune = now + TUNE;
            let StewardConfig { scaler, outline, .. } = &mut self.config;
            if let Some(replicas) = scaler.as_mut().and_then(|scaler| scaler.decide(now, outline)) {
                self.is_new |= replicas != self.steering.replicas;
                self.steering.replicas = replicas;
            }
        }
        if self.period_end <= now {
            self.end_period(now);
        }
    }

    fn end_period(&mut self, now: Moment) {
        // After a pause, the requests that came in it are spread over it. A period that is ended late makes the next one
        // shorter: else all would be longer than they are taken for, and the load would seem the larger.
        let periods = now.since(self.period_end).as_nanos() / PERIOD.as_nanos() + 1;
        self.period_end = self.period_end + TimeSpan::from_nanos(PERIOD.as_nanos() * periods);
        self.recent.truncate(RECENT_PERIODS - 1);
        let offered = self.offered / periods;
        self.recent.push_front(offered);
        self.offered = 0;
        let rate_qps = offered as f64 * 1e3 / PERIOD.as_millis();
        self.average_qps += WEIGHT * (rate_qps - self.average_qps);
        for seen in &mut self.seen {
            seen.queries *= MEMORY;
            seen.children.iter_mut().for_each(|made| *made *= MEMORY);
        }
        if let Some(states) = &mut self.states {
            states.synchronise();
        }
        self.recompute();
    }

    /// Computes tables and views again.
    fn recompute(&mut self) {
        self.update_tables();
        if let Some(states) = &self.states {
            let views: Vec<StationView> = (0..states.modules()).map(|m| states.view(m)).collect();
            self.is_new |= views != self.steering.views;
            self.steering.views = views;
        }
    }

    fn update_modules(&mut self, task: usize) {
        if let Some(states) = &mut self.states {
            let staffing = self.config.outline.staffing(&self.ready, task);
            if staffing.throughput_qps > 0.0 {
                states.staff(task, staffing);
            }
        }
    }

    fn update_tables(&mut self) {
        if !self.config.routes {
            return;
        }
        let full = self.servers();
        let filled: Vec<RoutedGroup> =
            full.iter().map(|s| RoutedGroup { capacity_qps: s.capacity_qps * self.fill[s.task], ..s.clone() }).collect();
        let routed = tables::route(&self.config.outline.graph, &filled, self.demand_qps());
        let left = |g: usize| full[g].capacity_qps - routed.incoming_qps[g];
        let spare = |&g: &usize| left(g) > SLACK * full[g].capacity_qps;
        let mut backup: Vec<usize> = (0..full.len()).filter(spare).collect();
        backup.sort_by(|&a, &b| full[a].task.cmp(&full[b].task).then(full[b].accuracy.total_cmp(&full[a].accuracy)));
        let is_same_backup = self.steering.backup.iter().map(|&(group, _)| group as usize).eq(backup.iter().copied());
        if !is_same_backup || !are_alike(&routed.tables, &self.steering.tables) {
            self.is_new = true;
            self.steering.backup = backup.into_iter().map(|g| (g as u32, left(g))).collect();
            self.steering.tables = routed.tables;
        }
    }

    /// Groups with their serving replicas and the seen fan-out. A task without serving replicas counts as planned: its
    /// queries wait for the replicas that load.
    fn servers(&self) -> Vec<RoutedGroup> {
        let groups = &self.config.outline.groups;
        let is_served: Vec<bool> = (0..self.fill.len())
            .map(|t| groups.iter().zip(&self.ready).any(|(g, &ready)| g.task == t && ready > 0))
            .collect();
        let server = |((g, &ready), seen): ((&PlannedGroup, &u32), &SeenFanout)| {
            let replicas = if is_served[g.task] { ready } else { g.replicas };
            let mean = |(planned, made): (&f64, &f64)| (planned * PRIOR_QUERIES + made) / (PRIOR_QUERIES + seen.queries);
            RoutedGroup {
                task: g.task,
                accuracy: g.accuracy,
                capacity_qps: g.replica_qps * f64::from(replicas),
                fanout: g.fanout.iter().zip(&seen.children).map(mean).collect(),
            }
        };
        groups.iter().zip(&self.ready).zip(&self.seen).map(server).collect()
    }

    /// Load over capacity of a task in the plan. The plan's tail latency was checked at this load and not above.
    fn planned_fill(&self, task: usize, incoming_qps: &[f64]) -> f64 {
        let of_task = || self.config.outline.groups.iter().zip(incoming_qps).filter(|(g, _)| g.task == task);
        let load: f64 = of_task().map(|(_, incoming)| incoming).sum();
        let capacity: f64 = of_task().map(|(g, _)| g.replica_qps * f64::from(g.replicas)).sum();
        let fill = load / capacity;
        if fill > 0.0 && fill < 1.0 { fill } else { 1.0 }
    }
}

fn are_alike(a: &[RouterTable], b: &[RouterTable]) -> bool {
    let is_close = |(&(group_a, share_a), &(group_b, share_b)): (&(u32, f64), &(u32, f64))| {
        group_a == group_b && (share_a - share_b).abs() <= SHARE_SLACK
    };
    let alike = |(a, b): (&RouterTable, &RouterTable)| {
        (a.from, a.to_task, a.entries.len()) == (b.from, b.to_task, b.entries.len())
            && a.entries.iter().zip(&b.entries).all(is_close)
    };
    a.len() == b.len() && a.iter().zip(b).all(alike)
}
