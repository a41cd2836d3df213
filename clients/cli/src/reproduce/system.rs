//! The whole system in the loop of a run: plans that are made again, and between two of them the plan's ladder, both with the delays
//! that they have in life.

use super::planned::Planned;
use apportion_domain::{Moment, Plan, Span};
use apportion_estimator::controllers::TUNER_PERIOD;
use apportion_estimator::{Controller, Event, Observation};
use apportion_serving::Ladder;

/// How often the control plane looks at the load: the service's default.
const PERIOD: Span = Span::from_nanos(10_000_000_000);
/// From a look to the plan with its ladder. Planning one took less than this here.
pub const PLANNING: Span = Span::from_nanos(5_000_000_000);
/// After a target has come, agents add nothing for so long: they do not know yet who is there.
const SETTLE: Span = Span::from_nanos(2_000_000_000);
/// Periods in which a smaller plan would have done, before there is one.
const PATIENCE: u32 = 6;
/// Weight of the youngest period in the moving average of the load.
const WEIGHT: f64 = 0.5;
/// From one demand that plans are made for to the next.
pub const GRID: f64 = 1.5;
/// How far the ladders of plans go, over the demand.
pub const UP_TO: f64 = 8.0;

/// How the system is set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    /// Planned-for over offered demand.
    pub planned: f64,
    /// What rates are multiplied with before they are looked up on the ladder.
    pub headroom: f64,
}

/// One pipeline's control plane and steward.
pub struct System<'a> {
    plans: &'a Planned<'a>,
    setting: Setting,
    plan: Plan,
    ladder: Option<Ladder>,
    /// The demand of the plan in force or on its way, by its number.
    step: i32,
    /// When a plan's ladder is stood on.
    next: Option<(Moment, Plan)>,
    /// Requests of the period and when it ends.
    offered: u64,
    period_end: Moment,
    ewma_qps: f64,
    patience: u32,
}

impl<'a> System<'a> {
    /// That begins with the plan for this load; `None` if there is none.
    pub fn new(plans: &'a Planned<'a>, setting: Setting, load_qps: f64) -> Option<Self> {
        let step = plans.step(setting.planned * load_qps);
        let plan = plans.on_grid(step)?;
        let ladder = Self::ladder(&plan, setting);
        let (next, period_end) = (None, Moment::ZERO + PERIOD);
        Some(Self { plans, setting, plan, ladder, step, next, offered: 0, period_end, ewma_qps: load_qps, patience: 0 })
    }

    /// The plan that it begins with.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    fn ladder(plan: &Plan, setting: Setting) -> Option<Ladder> {
        let part = plan.pipelines.first().filter(|part| !part.ladder.is_empty())?;
        let planned = part.assignments.iter().map(|a| a.replicas).collect();
        Some(Ladder::new(part.ladder.clone(), planned, setting.headroom))
    }

    /// The control plane looks at the last period.
    fn replan(&mut self, now: Moment) -> Option<Plan> {
        let qps = self.offered as f64 * 1e3 / PERIOD.as_millis();
        self.offered = 0;
        self.period_end = self.period_end + PERIOD;
        self.ewma_qps += WEIGHT * (qps - self.ewma_qps);
        let step = self.plans.step(self.setting.planned * qps.max(self.ewma_qps));
        self.patience = if step < self.step { self.patience + 1 } else { 0 };
        let is_kept = step == self.step || (step < self.step && self.patience < PATIENCE);
        if is_kept || self.next.is_some() {
            return None;
        }
        let plan = self.plans.on_grid(step)?;
        (self.step, self.patience) = (step, 0);
        self.next = Some((now + PLANNING, plan.clone()));
        Some(plan)
    }
}

impl Controller for System<'_> {
    fn period(&self) -> Span {
        TUNER_PERIOD
    }

    fn observe(&mut self, seen: &Observation) -> Vec<(Span, Event)> {
        let mut commands = Vec::new();
        for &(at, count) in seen.arrivals.iter().flatten() {
            self.offered += u64::from(count);
            if let Some(ladder) = &mut self.ladder {
                ladder.arrived(at, count);
            }
        }
        match self.next.take() {
            // The target ends what was added, and its steward has seen nothing yet.
            Some((at, plan)) if seen.at >= at + SETTLE => {
                self.ladder = Self::ladder(&plan, self.setting);
                self.plan = plan;
            }
            Some((at, plan)) => {
                if seen.at >= at {
                    self.ladder = None;
                }
                self.next = Some((at, plan));
            }
            None => {}
        }
        if seen.at >= self.period_end
            && let Some(plan) = self.replan(seen.at)
        {
            commands.push((PLANNING, Event::Plan { plan }));
        }
        let wanted = self.ladder.as_mut().and_then(|ladder| ladder.decide(seen.at).map(<[u32]>::to_vec));
        let part = &self.plan.pipelines[0];
        for (a, replicas) in part.assignments.iter().zip(wanted.into_iter().flatten()) {
            let (pipeline, group) = (part.name.clone(), a.group.clone());
            // no group has less than the plan gives it: agents only add
            commands.push((Span::ZERO, Event::Replicas { pipeline, group, replicas: replicas.max(a.replicas) }));
        }
        commands
    }
}
