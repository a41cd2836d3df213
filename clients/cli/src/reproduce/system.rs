//! The whole system in the loop of a run: plans that are made again by a control plane, and between two of them the plan's ladder, which
//! the estimator's stewards climb as agents' do; both with the delays that they have in life.

use super::planned::Planned;
use apportion_domain::{Plan, Span};
use apportion_estimator::{Controller, Event, Observation};

/// How often the control plane looks at the load: the service's default.
const PERIOD: Span = Span::from_nanos(10_000_000_000);
/// From a look to the plan with its ladder. Planning one took less than this here.
pub const PLANNING: Span = Span::from_nanos(5_000_000_000);
/// Periods in which a smaller plan was due, before there is one.
const PATIENCE: u32 = 6;
/// Weight of the youngest period in the moving average of the load.
const WEIGHT: f64 = 0.5;
/// From one demand that plans are made for to the next.
pub const GRID: f64 = 1.5;
/// So many demands the load has to be away from that of the plan before there is another: within them its ladder is as good.
pub const BAND: i32 = 2;
/// How far the ladders of plans go over the demand, and below it.
pub const UP_TO: f64 = 4.0;

/// How the system is set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    /// Planned-for over offered demand.
    pub planned: f64,
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
    patience: u32,
}

impl<'a> System<'a> {
    /// That begins with the plan for this load; `None` if there is none.
    pub fn new(plans: &'a Planned<'a>, setting: Setting, load_qps: f64) -> Option<Self> {
        let step = plans.step(setting.planned * load_qps);
        let plan = setting.on(plans.on_grid(step)?);
        Some(Self { plans, setting, plan, step, ewma_qps: load_qps, patience: 0 })
    }

    /// The plan that it begins with.
    pub fn plan(&self) -> &Plan {
        &self.plan
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
        let step = self.plans.step(self.setting.planned * qps.max(self.ewma_qps));
        self.patience = if step <= self.step - BAND { self.patience + 1 } else { 0 };
        if step < self.step + BAND && self.patience < PATIENCE {
            return Vec::new();
        }
        let Some(plan) = self.plans.on_grid(step) else { return Vec::new() };
        (self.step, self.patience) = (step, 0);
        vec![(PLANNING, Event::Plan { plan: self.setting.on(plan) })]
    }
}
