//! The whole system in the loop of a run: plans that are made again by a control plane, and between two of them the plan's ladder, which
//! the estimator's stewards climb as agents' do; both with the delays that they have in life.

use super::planned::Planned;
use apportion_domain::{Plan, Span};
use apportion_estimator::{Controller, Event, Observation};
use std::collections::VecDeque;

/// How often the control plane looks at the load: the service's default.
const PERIOD: Span = Span::from_nanos(10_000_000_000);
/// From a look to the plan with its ladder. Planning one took less than this here.
pub const PLANNING: Span = Span::from_nanos(5_000_000_000);
/// Weight of the youngest period in the moving average of the load.
const WEIGHT: f64 = 0.5;
/// From one demand that plans are made for to the next.
pub const GRID: f64 = 2.0;
/// Periods over which two plans are compared: a minute.
const COMPARED: usize = 6;
/// Periods for which replicas stay once a load has asked for them, as ladders keep them.
const KEPT: usize = 3;
/// What a change of plans costs: periods of the new plan, held beside the old one while it loads.
const CHANGE: f64 = 1.0;
/// How far the ladders of plans go over the demand, and below it.
pub const UP_TO: f64 = 4.0;

/// How the system is set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    /// How many times the rate of a step is seen when the step is taken: plans' ladders have their rates divided by it.
    pub headroom: f64,
}

/// One pipeline's control plane.
pub struct System<'a> {
    plans: &'a Planned<'a>,
    setting: Setting,
    plan: Plan,
    /// The demand of the plan in force or on its way, by its number.
    step: i32,
    ewma_qps: f64,
    /// Load of the last periods, the youngest last.
    loads_qps: VecDeque<f64>,
}

impl<'a> System<'a> {
    /// That begins with the plan for this load; `None` if there is none.
    pub fn new(plans: &'a Planned<'a>, setting: Setting, load_qps: f64) -> Option<Self> {
        let step = plans.step(load_qps);
        let mut plan = setting.on(plans.on_grid(step)?);
        let part = &mut plan.pipelines[0];
        // The grid's demand is more than the load: its ladder says what the load needs.
        if let Some(first) = part.ladder.iter().find(|first| first.rate_qps >= load_qps) {
            part.assignments.iter_mut().zip(&first.replicas).for_each(|(a, &n)| a.replicas = n);
        }
        Some(Self { plans, setting, plan, step, ewma_qps: load_qps, loads_qps: VecDeque::new() })
    }

    /// The plan that it begins with.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// What a plan would have cost over the compared periods, by its ladder and in periods times its price per hour.
    fn cost(&self, plan: &Plan) -> f64 {
        let loads: Vec<f64> = self.loads_qps.iter().copied().collect();
        let of = |kept: &[f64]| self.plans.price_per_hour(plan, kept.iter().copied().fold(0.0, f64::max));
        loads.windows(KEPT.min(loads.len())).map(of).sum()
    }
}

impl Setting {
    /// A plan whose ladder is climbed earlier, or later.
    fn on(self, mut plan: Plan) -> Plan {
        plan.pipelines.iter_mut().flat_map(|part| &mut part.ladder).for_each(|step| step.rate_qps /= self.headroom);
        plan
    }
}

impl Controller for System<'_> {
    fn period(&self) -> Span {
        PERIOD
    }

    fn observe(&mut self, seen: &Observation) -> Vec<(Span, Event)> {
        let offered: u64 = seen.arrivals.iter().flatten().map(|&(_, count)| u64::from(count)).sum();
        let qps = offered as f64 * 1e3 / PERIOD.as_millis();
        self.ewma_qps += WEIGHT * (qps - self.ewma_qps);
        self.loads_qps.push_back(qps);
        if self.loads_qps.len() > COMPARED + KEPT - 1 {
            self.loads_qps.pop_front();
        }
        let step = self.plans.step(qps.max(self.ewma_qps));
        if step == self.step {
            return Vec::new();
        }
        let Some(plan) = self.plans.on_grid(step).map(|plan| self.setting.on(plan)) else { return Vec::new() };
        let change = CHANGE * self.plans.price_per_hour(&plan, qps);
        if plan.pipelines[0].ladder.is_empty() || self.cost(&plan) + change >= self.cost(&self.plan) {
            return Vec::new();
        }
        self.step = step;
        self.plan = plan.clone();
        vec![(PLANNING, Event::Plan { plan })]
    }
}
