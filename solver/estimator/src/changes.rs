//! What happens to replicas during a run, and the controllers in its loop: when each step falls.

use crate::SimulateError;
use crate::blueprint::Blueprint;
use crate::collect::Collect;
use crate::crews::Crews;
use crate::floor::Floor;
use crate::scenario::{Controller, Event, GroupSeen, Observation, Scenario, WINDOWS_MAX, Window};
use crate::stewards::{Answer, Report, Stewarded};
use apportion_domain::{GroupName, Moment, Span};
use std::collections::BTreeMap;

/// A run whose replicas change gives up what is in flight when nothing else has happened for so long.
const STALL_MAX: Span = Span::from_nanos(3_600_000_000_000);
/// Resolution of the arrivals that controllers are told.
const BIN: Span = apportion_serving::tuner::BIN_MIN;

/// Something that will happen.
#[derive(Debug)]
pub enum Due {
    /// An event of the scenario, or a command that has arrived.
    Event(Event),
    /// The end of a controller's period.
    Measure(usize),
    /// A report arrives.
    Report(usize, Observation),
    /// Senders notice that a replica is dead.
    Noticed {
        /// Its crew.
        crew: usize,
        /// Its station.
        station: u32,
        /// Its server there.
        server: u32,
    },
    /// A steward's period ends.
    Tell,
    /// What a steward is told arrives.
    Told(Box<Report>),
    /// What a steward wants arrives.
    Steer(Box<Answer>),
    /// Nothing is on its way any more to a replica that goes.
    Quiet,
    /// A window of the time series ends.
    Window,
}

/// A replica that is slow for a while.
#[derive(Clone, Debug)]
pub struct Slow {
    /// Its station.
    pub station: u32,
    /// Its servers there.
    pub servers: std::ops::Range<u32>,
    /// By this factor.
    pub factor: f64,
    /// Until then.
    pub until: Moment,
}

#[derive(Default)]
struct Watch {
    /// Offered requests by pipeline since the last report.
    arrivals: Vec<Vec<(Moment, u32)>>,
    /// Busy time of each crew up to the last report.
    busy: Vec<Span>,
}

/// Sums of a run at one moment.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    arrived: u64,
    counts: [u64; 4],
    cost: f64,
    served_ms: f64,
    busy: Span,
}

/// The changes of one run.
pub struct Changes<'a> {
    /// Who has which replicas.
    pub crews: Crews,
    /// What is lost when a replica dies, and when.
    pub scenario: Scenario<'a>,
    due: BTreeMap<(Moment, u64), Due>,
    sequence: u64,
    /// When queries last had something to wait for other than a change.
    last_work: Moment,
    watches: Vec<Watch>,
    windows: Vec<Window>,
    window_start: Moment,
    window: Span,
    before: Sums,
    /// What is in force, by pipeline; `None` where nothing is served.
    pub blueprints: Vec<Option<Blueprint<'a>>>,
    /// The steward of each pipeline; none at all without stewards.
    pub stewards: Vec<Option<Stewarded>>,
    /// Tables of stewards that came into force.
    pub steerings: u64,
    /// Whether the caller chose the policies, so that those of plans do not count.
    pub is_served_as_asked: bool,
    /// Plans that came into force during the run.
    pub plans: u64,
    /// Changes that were carried out.
    pub changed: u64,
    /// Why the run cannot go on.
    pub failed: Option<SimulateError>,
}

impl std::fmt::Debug for Changes<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Changes").field("crews", &self.crews).field("due", &self.due).finish_non_exhaustive()
    }
}

impl<'a> Changes<'a> {
    /// Before the first event of a run that starts with these replicas, of these parts of the plan.
    ///
    /// # Errors
    /// If an event names a group that no plan assigns.
    pub fn new(
        crews: Crews,
        mut scenario: Scenario<'a>,
        blueprints: Vec<Option<Blueprint<'a>>>,
    ) -> Result<Self, SimulateError> {
        let pipelines = blueprints.len();
        let events = std::mem::take(&mut scenario.events);
        let is_planned = |pipeline: &str, group: &GroupName| {
            let plans = events.iter().filter_map(|(_, e)| if let Event::Plan { plan } = e { Some(plan) } else { None });
            let mut parts = plans.filter_map(|plan| plan.pipeline(pipeline));
            parts.any(|part| part.assignments.iter().any(|a| a.group == *group))
        };
        for (pipeline, group) in events.iter().filter_map(|(_, event)| event.group()) {
            if crews.find(pipeline, group).is_none() && !is_planned(pipeline, group) {
                return Err(crate::scenario::unknown(pipeline, group));
            }
        }
        let watch = |_| Watch { arrivals: vec![Vec::new(); pipelines], busy: vec![Span::ZERO; crews.crews.len()] };
        let watches = (0..scenario.controllers.len()).map(watch).collect();
        let window = Span::from_nanos(scenario.window.as_nanos().max(1));
        let mut changes = Self {
            crews,
            scenario,
            due: BTreeMap::new(),
            sequence: 0,
            last_work: Moment::ZERO,
            watches,
            windows: Vec::new(),
            window_start: Moment::ZERO,
            window,
            before: Sums::default(),
            blueprints,
            stewards: Vec::new(),
            steerings: 0,
            is_served_as_asked: false,
            plans: 0,
            changed: 0,
            failed: None,
        };
        events.into_iter().for_each(|(at, event)| changes.push(at, Due::Event(event)));
        for at in 0..changes.scenario.controllers.len() {
            let period = changes.period(at);
            changes.push(Moment::ZERO + period, Due::Measure(at));
        }
        changes.push(Moment::ZERO + window, Due::Window);
        Ok(changes)
    }

    fn period(&self, controller: usize) -> Span {
        Span::from_nanos(self.scenario.controllers[controller].period().as_nanos().max(BIN.as_nanos()))
    }

    /// Something will happen.
    pub fn push(&mut self, at: Moment, due: Due) {
        self.sequence += 1;
        self.due.insert((at, self.sequence), due);
    }

    /// When something happens next. With nothing else to happen in the run, only as long as `in_flight` requests may hope for it.
    pub fn next(&mut self, work: Moment, now: Moment, in_flight: usize) -> Moment {
        if work != Moment::NEVER {
            self.last_work = now;
        }
        let timed = self.due.first_key_value().map_or(Moment::NEVER, |(key, _)| key.0);
        let next = timed.min(self.crews.next_ready());
        let is_idle = work == Moment::NEVER && (in_flight == 0 || next.since(self.last_work) > STALL_MAX);
        if is_idle { Moment::NEVER } else { next }
    }

    /// What is due by `now`, in its order.
    pub fn pop(&mut self, now: Moment) -> Option<Due> {
        let first = self.due.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    /// A request was offered.
    pub fn arrived(&mut self, pipeline: usize, now: Moment) {
        if let Some(Some(stewarded)) = self.stewards.get_mut(pipeline) {
            stewarded.arrived(now);
        }
        let bin = Moment::from_nanos(now.as_nanos() / BIN.as_nanos() * BIN.as_nanos());
        for watch in &mut self.watches {
            let log = &mut watch.arrivals[pipeline];
            match log.last_mut() {
                Some((last, count)) if *last == bin => *count += 1,
                _ => log.push((bin, 1)),
            }
        }
    }

    /// A controller's period ends: its report sets out, and the next period begins.
    pub fn measure(&mut self, controller: usize, now: Moment, floor: &Floor, collect: &Collect) {
        let period = self.period(controller);
        let watch = &mut self.watches[controller];
        let mut groups = Vec::with_capacity(self.crews.crews.len());
        watch.busy.resize(self.crews.crews.len(), Span::ZERO);
        for (crew, before) in self.crews.crews.iter().zip(&mut watch.busy) {
            let stations = || crew.stations.iter().map(|&s| &floor.stations[s as usize]);
            let servers = |&s: &u32| {
                let first = floor.places[s as usize].server;
                first..first + if crew.is_central { crew.numbered } else { crew.slots }
            };
            let busy = collect.busy(crew.stations.iter().flat_map(servers));
            let spent = busy.as_nanos().saturating_sub(before.as_nanos()) as f64;
            *before = busy;
            groups.push(GroupSeen {
                pipeline: crew.pipeline.clone(),
                group: crew.group.clone(),
                ready: crew.ready.len() as u32,
                loading: crew.loading.len() as u32,
                queued: stations().map(|s| s.queued() as u64).sum(),
                running: stations().map(|s| s.running() as u64).sum(),
                utilisation: spent / (crew.ready.len().max(1) as f64 * f64::from(crew.slots) * period.as_nanos() as f64),
            });
        }
        let arrivals = watch.arrivals.iter_mut().map(std::mem::take).collect();
        let delay = self.scenario.report_delay;
        self.push(now + delay, Due::Report(controller, Observation { at: now, arrivals, groups }));
        self.push(now + period, Due::Measure(controller));
    }

    /// A report has arrived: the controller's commands set out.
    pub fn report(&mut self, controller: usize, now: Moment, seen: &Observation) {
        let commands = self.scenario.controllers[controller].observe(seen);
        for (delay, event) in commands {
            if let Some((pipeline, group)) = event.group()
                && self.crews.find(pipeline, group).is_none()
            {
                self.failed.get_or_insert_with(|| crate::scenario::unknown(pipeline, group));
                return;
            }
            let at = now + delay + self.scenario.command_delay;
            self.push(at, Due::Event(event));
        }
    }

    /// A window ends at `now`; the next one begins.
    pub fn close_window(&mut self, now: Moment, collect: &Collect) {
        self.crews.pay(now);
        let (arrived, counts, busy) = collect.sums();
        let sums = Sums { arrived, counts, cost: self.crews.cost, served_ms: self.crews.served_ms, busy };
        let before = std::mem::replace(&mut self.before, sums);
        let length = now.since(self.window_start);
        let counted = |at: usize| sums.counts[at] - before.counts[at];
        let served_ms = sums.served_ms - before.served_ms;
        let busy_ms = sums.busy.as_millis() - before.busy.as_millis();
        self.windows.push(Window {
            start: self.window_start,
            length,
            arrived: sums.arrived - before.arrived,
            ok: counted(0),
            late: counted(1),
            dropped: counted(2),
            failed: counted(3),
            replicas: served_ms / length.as_millis().max(1e-9),
            cost: sums.cost - before.cost,
            utilisation: if served_ms > 0.0 { busy_ms / served_ms } else { 0.0 },
        });
        self.window_start = now;
        if self.windows.len() >= WINDOWS_MAX {
            self.windows = self.windows.chunks(2).map(|pair| pair[1..].iter().fold(pair[0], |a, b| a.with(b))).collect();
            self.window = self.window + self.window;
        }
    }

    /// The next window ends in its time.
    pub fn open_window(&mut self) {
        let at = self.window_start + self.window;
        self.push(at, Due::Window);
    }

    /// The time series up to the end of the run at `now`.
    pub fn windows(&mut self, now: Moment, collect: &Collect) -> Vec<Window> {
        if now > self.window_start {
            self.close_window(now, collect);
        }
        std::mem::take(&mut self.windows)
    }
}

/// The controllers' common trait object is not `Debug`; this keeps the module's promise that runs are.
impl std::fmt::Debug for dyn Controller + '_ {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Controller")
    }
}
