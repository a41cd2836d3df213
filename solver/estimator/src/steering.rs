//! What reaches the stations once per period: module states, as late as the network makes them.

use crate::SimulateError;
use crate::blueprint::Blueprint;
use crate::floor::Floor;
use crate::scenario::ModulePeriod;
use apportion_domain::{Moment, PipelineIndex, Span, TaskIndex};
use apportion_serving::modules::{PERIOD, WINDOW_PERIODS_MAX};
use apportion_serving::{StatePlanner, View};
use std::collections::VecDeque;

/// The states of one pipeline.
#[derive(Debug)]
pub struct Steered {
    /// The pipeline.
    pub line: u32,
    /// Its planner.
    pub planner: StatePlanner,
    /// Its stations.
    pub stations: Vec<u32>,
    /// From a station's report to the view that follows from it: a hop each way.
    pub delay: Span,
    /// Whether views only change with the plan.
    pub is_fixed: bool,
}

impl Steered {
    /// Of a part of a plan; `None` if its policy does not look at module states.
    ///
    /// # Errors
    /// If the pipeline has too many paths for them.
    pub fn of(b: &Blueprint<'_>, line: u32, stations: Vec<u32>) -> Result<Option<Self>, SimulateError> {
        let network = Span::from_millis(b.pipeline.network_ms);
        let is_fixed = !StatePlanner::needs(b.serving.dropping).1;
        Ok(b.state_planner()?.map(|planner| Self { line, planner, stations, delay: network + network, is_fixed }))
    }

    /// Tells all its stations what is known now.
    pub fn tell_all(&self, now: Moment, floor: &mut Floor) {
        for &station in &self.stations {
            let task = floor.places[station as usize].task_of_line as usize;
            floor.steer(now, station, self.planner.view(task));
        }
    }
}

/// Views on their way.
#[derive(Debug)]
struct Due {
    at: Moment,
    steered: usize,
    views: Vec<View>,
}

/// All pipelines whose policies look at module states.
#[derive(Debug)]
pub struct Steering {
    steered: Vec<Steered>,
    period_end: Moment,
    /// Earliest first.
    due: VecDeque<Due>,
    /// Buffers of views that have arrived.
    spare: Vec<Vec<View>>,
    /// Periods since anything came.
    silent: usize,
    /// What the modules reported, if it is kept.
    kept: Option<Vec<ModulePeriod>>,
}

impl Steering {
    /// Before the first period.
    #[must_use]
    pub fn new(mut steered: Vec<Steered>) -> Self {
        steered.sort_by_key(|s| s.delay);
        let period_end = if steered.iter().all(|s| s.is_fixed) { Moment::NEVER } else { Moment::ZERO + PERIOD };
        Self { steered, period_end, due: VecDeque::new(), spare: Vec::new(), silent: 0, kept: None }
    }

    /// The states of a pipeline, if its policy looks at them.
    pub fn of_line(&mut self, line: u32) -> Option<&mut Steered> {
        self.steered.iter_mut().find(|s| s.line == line)
    }

    /// Another policy serves a pipeline: from now on its stations follow these states, or none.
    pub fn replace(&mut self, now: Moment, line: u32, steered: Option<Steered>) {
        let at = self.steered.iter().position(|s| s.line == line);
        self.due.retain(|due| Some(due.steered) != at);
        match (at, steered) {
            (Some(at), Some(new)) => self.steered[at] = new,
            (Some(at), None) => self.steered[at].is_fixed = true,
            (None, new) => self.steered.extend(new),
        }
        self.silent = 0;
        if self.period_end == Moment::NEVER && self.steered.iter().any(|s| !s.is_fixed) {
            let periods = now.as_nanos() / PERIOD.as_nanos() + 1;
            self.period_end = Moment::from_nanos(periods * PERIOD.as_nanos());
        }
    }

    /// From now on it keeps what the stations that there are measure.
    pub fn keep(&mut self, floor: &mut Floor) {
        self.kept = Some(Vec::new());
        for &station in self.steered.iter().flat_map(|s| &s.stations) {
            if let Some(monitor) = floor.stations[station as usize].monitor() {
                monitor.keep();
            }
        }
    }

    /// What it has kept.
    pub fn kept(self) -> Vec<ModulePeriod> {
        self.kept.unwrap_or_default()
    }

    /// When it acts next, if the rest of the run does so at `work`. While nothing is left in any window, it sleeps until the
    /// period in which something happens, so that a long silence costs nothing.
    #[inline]
    pub fn next(&mut self, work: Moment) -> Moment {
        if self.period_end == Moment::NEVER {
            return Moment::NEVER;
        }
        if self.silent > WINDOW_PERIODS_MAX && self.due.is_empty() && work > self.period_end && work != Moment::NEVER {
            let periods = work.since(Moment::ZERO).as_nanos() / PERIOD.as_nanos();
            let start = Moment::from_nanos(periods * PERIOD.as_nanos());
            self.period_end = start.max(self.period_end);
            if self.period_end <= start {
                self.period_end = start + PERIOD;
            }
        }
        self.due.front().map_or(self.period_end, |due| due.at.min(self.period_end))
    }

    /// Ends the period if it ends now, and delivers what arrives now.
    pub fn act(&mut self, now: Moment, floor: &mut Floor) {
        if self.period_end <= now {
            self.period_end = self.period_end + PERIOD;
            let mut is_silent = true;
            for at in 0..self.steered.len() {
                is_silent &= self.steered[at].is_fixed || !self.report(at, now, floor);
            }
            self.silent = if is_silent { self.silent + 1 } else { 0 };
        }
        while self.due.front().is_some_and(|due| due.at <= now) {
            let Some(mut due) = self.due.pop_front() else { return };
            for &station in &self.steered[due.steered].stations {
                let task = floor.places[station as usize].task_of_line as usize;
                floor.steer(now, station, due.views[task]);
            }
            due.views.clear();
            self.spare.push(due.views);
        }
    }

    /// Reports what the stations of one pipeline have measured. Whether there is anything in the window.
    fn report(&mut self, steered: usize, now: Moment, floor: &mut Floor) -> bool {
        let of = &mut self.steered[steered];
        let first = self.kept.as_ref().map_or(0, Vec::len);
        if let Some(kept) = &mut self.kept {
            let pipeline = PipelineIndex(of.line as usize);
            kept.extend((0..of.planner.modules()).map(|m| ModulePeriod::new(now, pipeline, TaskIndex(m))));
        }
        for &station in &of.stations {
            let module = floor.places[station as usize].task_of_line as usize;
            let Some(monitor) = floor.stations[station as usize].monitor() else { continue };
            if let Some((period, more)) = self.kept.as_mut().map(|k| &mut k[first + module]).zip(monitor.take_kept()) {
                period.add(monitor.arrived, more);
            }
            of.planner.observe(module, monitor);
        }
        let is_busy = of.planner.synchronise();
        for (m, period) in self.kept.iter_mut().flat_map(|k| &mut k[first..]).enumerate() {
            period.priority = of.planner.view(m).priority;
        }
        let mut views = self.spare.pop().unwrap_or_default();
        views.extend((0..of.planner.modules()).map(|m| of.planner.view(m)));
        let at = now + of.delay;
        let place = self.due.partition_point(|due| due.at <= at);
        self.due.insert(place, Due { at, steered, views });
        is_busy
    }
}
