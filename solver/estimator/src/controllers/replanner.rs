//! Which plan fits the offered load? A planner in the loop of a run answers: a closure from the load to a plan.

use crate::scenario::{BinCount, Controller, Observation, ScenarioEvent};
use apportion_domain::{Moment, Plan, TimeSpan};

/// When plans are made, and with which delay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReplannerConfig {
    /// How often the load is looked at.
    pub period: TimeSpan,
    /// The time that planning takes, on top of the delays of reports and commands ([`crate::Scenario`]).
    pub planning_delay: TimeSpan,
    /// Weight of the last period in the moving average, 0 to 1.
    pub smoothing: f64,
}

impl Default for ReplannerConfig {
    /// Every 10 s (Loki, section 3), half a second of planning, the last period as heavy as all before it.
    fn default() -> Self {
        Self {
            period: TimeSpan::from_nanos(10_000_000_000),
            planning_delay: TimeSpan::from_nanos(500_000_000),
            smoothing: 0.5,
        }
    }
}

/// The load that was offered, shed requests included, by pipeline in the problem's order.
#[derive(Clone, Debug, PartialEq)]
pub struct OfferedLoad {
    /// The end of the last period.
    pub at: Moment,
    /// Queries per second of the last period.
    pub qps: Vec<f64>,
    /// Their exponentially weighted moving average, which starts with the first period.
    pub ewma_qps: Vec<f64>,
    /// Most queries in any second of the last period, seconds counted from the start of the run.
    pub peak_qps: Vec<f64>,
}

/// Makes a plan from the load of each period by a closure, so that a planner can be in the loop of a run of this crate,
/// which knows none. `None` keeps the plan in force, as does a plan that equals the last one that was asked for.
pub struct Replanner<F> {
    config: ReplannerConfig,
    plan: F,
    ewma_qps: Vec<f64>,
    last: Option<Plan>,
}

impl<F: FnMut(&OfferedLoad) -> Option<Plan>> Replanner<F> {
    /// With this planner. Its plans are served by the policies of the plan that the run starts with.
    #[must_use]
    pub fn new(config: ReplannerConfig, plan: F) -> Self {
        Self { config, plan, ewma_qps: Vec::new(), last: None }
    }

    fn offered(&mut self, seen: &Observation) -> OfferedLoad {
        const SECOND: u64 = 1_000_000_000;
        let seconds = self.config.period.as_millis() / 1e3;
        let count = |bins: &Vec<BinCount>| bins.iter().map(|b| f64::from(b.count)).sum::<f64>();
        let qps: Vec<f64> = seen.arrivals.iter().map(|bins| count(bins) / seconds).collect();
        let peak = |bins: &Vec<BinCount>| {
            let of_second = bins.chunk_by(|a, b| a.bin.as_nanos() / SECOND == b.bin.as_nanos() / SECOND);
            of_second.map(|bins| bins.iter().map(|b| f64::from(b.count)).sum()).fold(0.0, f64::max)
        };
        if self.ewma_qps.is_empty() {
            self.ewma_qps.clone_from(&qps);
        }
        let weight = self.config.smoothing;
        self.ewma_qps.iter_mut().zip(&qps).for_each(|(mean, new)| *mean += weight * (new - *mean));
        let peak_qps = seen.arrivals.iter().map(peak).collect();
        OfferedLoad { at: seen.at, qps, ewma_qps: self.ewma_qps.clone(), peak_qps }
    }
}

impl<F: FnMut(&OfferedLoad) -> Option<Plan>> Controller for Replanner<F> {
    fn period(&self) -> TimeSpan {
        self.config.period
    }

    fn observe(&mut self, seen: &Observation) -> Vec<(TimeSpan, ScenarioEvent)> {
        let offered = self.offered(seen);
        let Some(plan) = (self.plan)(&offered).filter(|plan| self.last.as_ref() != Some(plan)) else { return Vec::new() };
        self.last = Some(plan.clone());
        vec![(self.config.planning_delay, ScenarioEvent::Plan { plan })]
    }
}
