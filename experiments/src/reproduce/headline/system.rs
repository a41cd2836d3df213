//! How does the whole system behave in a run? A control plane plans again, and the estimator's stewards follow the plan's
//! ladder between two plans, both with realistic delays.

use super::protocol::ControlPlaneFigures;
use crate::reproduce::replanning::PlansByDemand;
use apportion_domain::{Plan, TimeSpan};
use apportion_estimator::{Controller, Observation, ScenarioEvent};
use apportion_planning::change::{Loads, PERIOD_SECONDS};

/// The time between two measurements of the load by the control plane: the service's default.
const PERIOD: TimeSpan = TimeSpan::from_nanos(1_000_000_000 * PERIOD_SECONDS as u64);

/// One pipeline's control plane.
pub struct System<'a> {
    plans: &'a PlansByDemand<'a>,
    figures: ControlPlaneFigures,
    plan: Plan,
    /// The number of the demand on the grid, of the plan in force or on its way.
    step: i32,
    ewma_qps: f64,
    loads: Loads,
}

impl<'a> System<'a> {
    /// A system that begins with the plan for this load; `None` without a plan. Its first replicas are for the load times
    /// the stewards' first `headroom`.
    pub fn new(plans: &'a PlansByDemand<'a>, figures: ControlPlaneFigures, headroom: f64, load_qps: f64) -> Option<Self> {
        let step = plans.grid_step(load_qps);
        let mut plan = plans.plan_on_grid(step)?;
        let part = &mut plan.pipelines[0];
        // The grid's demand is more than the load: its ladder says what the load needs.
        if let Some(first) = part.ladder.iter().find(|first| first.rate_qps >= headroom * load_qps) {
            part.assignments.iter_mut().zip(&first.replicas).for_each(|(a, &n)| a.replicas = n);
        }
        Some(Self { plans, figures, plan, step, ewma_qps: load_qps, loads: Loads::default() })
    }

    /// The first plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }
}

impl Controller for System<'_> {
    fn period(&self) -> TimeSpan {
        PERIOD
    }

    fn observe(&mut self, seen: &Observation) -> Vec<(TimeSpan, ScenarioEvent)> {
        let offered: u64 = seen.arrivals.iter().flatten().map(|a| u64::from(a.count)).sum();
        let qps = offered as f64 * 1e3 / PERIOD.as_millis();
        self.ewma_qps += self.figures.weight * (qps - self.ewma_qps);
        self.loads.push(qps);
        let step = self.plans.grid_step(qps.max(self.ewma_qps));
        if step == self.step {
            return Vec::new();
        }
        let Some(plan) = self.plans.plan_on_grid(step) else { return Vec::new() };
        let (plans, headroom) = (self.plans, seen.headrooms[0]);
        let price = |plan| move |qps: f64| plans.price_per_hour(plan, headroom * qps);
        let is_worth_it = self.loads.compare(price(&self.plan), price(&plan)).is_worth_it();
        if plan.pipelines[0].ladder.is_empty() || !is_worth_it {
            return Vec::new();
        }
        self.step = step;
        self.plan = plan.clone();
        vec![(TimeSpan::from_millis(1e3 * self.figures.planning_s), ScenarioEvent::Plan { plan })]
    }
}
