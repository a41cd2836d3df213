//! PARD's module states, which reach the stations once in each period, after the delay of the network.

use super::serving::ServingState;
use crate::result::ModulePeriod;
use apportion_domain::{Moment, PipelineIndex, TaskIndex, TimeSpan};
use apportion_serving::modules::{PERIOD, WINDOW_PERIODS_MAX};
use apportion_serving::{StatePlanner, StationView};
use std::collections::VecDeque;

/// The states of one pipeline.
#[derive(Debug)]
pub struct PipelineModules {
    /// The pipeline.
    pub pipeline: u32,
    /// Its planner.
    pub planner: StatePlanner,
    /// Its stations.
    pub stations: Vec<u32>,
    /// From a station's report to the view that follows from it: a hop each way.
    pub delay: TimeSpan,
    /// Whether views only change with the plan.
    pub is_fixed: bool,
}

impl PipelineModules {
    /// Sends all its stations their views at once.
    pub fn send_views(&self, now: Moment, serving: &mut ServingState) {
        for &station in &self.stations {
            let task = serving.infos[station as usize].task_in_pipeline as usize;
            serving.set_view(now, station, self.planner.view(task));
        }
    }
}

/// Views on their way.
#[derive(Debug)]
struct ViewDelivery {
    at: Moment,
    steered: usize,
    views: Vec<StationView>,
}

/// All pipelines whose policies use module states.
#[derive(Debug)]
pub struct ModuleStates {
    steered: Vec<PipelineModules>,
    period_end: Moment,
    /// Earliest first.
    due: VecDeque<ViewDelivery>,
    /// Buffers of views that have arrived.
    spare: Vec<Vec<StationView>>,
    /// Periods since a query arrived.
    silent: usize,
    /// The reports of the modules, if they are kept.
    kept: Option<Vec<ModulePeriod>>,
}

impl ModuleStates {
    /// Before the first period.
    #[must_use]
    pub fn new(mut steered: Vec<PipelineModules>) -> Self {
        steered.sort_by_key(|s| s.delay);
        let period_end = if steered.iter().all(|s| s.is_fixed) { Moment::NEVER } else { Moment::ZERO + PERIOD };
        Self { steered, period_end, due: VecDeque::new(), spare: Vec::new(), silent: 0, kept: None }
    }

    /// The states of a pipeline, if its policy looks at them.
    pub fn of_pipeline(&mut self, pipeline: u32) -> Option<&mut PipelineModules> {
        self.steered.iter_mut().find(|s| s.pipeline == pipeline)
    }

    /// Another policy serves a pipeline. From now on its stations follow these states, or no states.
    pub fn replace(&mut self, now: Moment, pipeline: u32, steered: Option<PipelineModules>) {
        let at = self.steered.iter().position(|s| s.pipeline == pipeline);
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

    /// From now on the measurements of the present stations are kept.
    pub fn keep_measurements(&mut self, serving: &mut ServingState) {
        self.kept = Some(Vec::new());
        for &station in self.steered.iter().flat_map(|s| &s.stations) {
            if let Some(monitor) = serving.stations[station as usize].monitor() {
                monitor.keep();
            }
        }
    }

    /// The kept measurements.
    pub fn into_kept(self) -> Vec<ModulePeriod> {
        self.kept.unwrap_or_default()
    }

    /// When it acts next, if the rest of the run acts at `work`. While all windows are empty, it sleeps until the period of
    /// the next event, so that a long silence costs nothing.
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

    /// Ends the period if it ends now, and delivers the views that arrive now.
    pub fn act(&mut self, now: Moment, serving: &mut ServingState) {
        if self.period_end <= now {
            self.period_end = self.period_end + PERIOD;
            let mut is_silent = true;
            for at in 0..self.steered.len() {
                is_silent &= self.steered[at].is_fixed || !self.report(at, now, serving);
            }
            self.silent = if is_silent { self.silent + 1 } else { 0 };
        }
        while self.due.front().is_some_and(|due| due.at <= now) {
            let Some(mut due) = self.due.pop_front() else { return };
            for &station in &self.steered[due.steered].stations {
                let task = serving.infos[station as usize].task_in_pipeline as usize;
                serving.set_view(now, station, due.views[task]);
            }
            due.views.clear();
            self.spare.push(due.views);
        }
    }

    /// Takes the measurements of one pipeline's stations. Returns whether a query arrived in the window.
    fn report(&mut self, steered: usize, now: Moment, serving: &mut ServingState) -> bool {
        let of = &mut self.steered[steered];
        let first = self.kept.as_ref().map_or(0, Vec::len);
        if let Some(kept) = &mut self.kept {
            let pipeline = PipelineIndex(of.pipeline as usize);
            kept.extend((0..of.planner.modules()).map(|m| ModulePeriod::new(now, pipeline, TaskIndex(m))));
        }
        for &station in &of.stations {
            let module = serving.infos[station as usize].task_in_pipeline as usize;
            let Some(monitor) = serving.stations[station as usize].monitor() else { continue };
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
        let at_due = self.due.partition_point(|due| due.at <= at);
        self.due.insert(at_due, ViewDelivery { at, steered, views });
        is_busy
    }
}
