//! How far one value has to give.
//!
//! A limit that is let go leaves a formulation whose optimum is the least that the limit may be (most demand, fewest devices,
//! shortest SLO, highest accuracy, least cost). That is a first answer; it is confirmed by planning with it, and where it
//! fails, or where the latency rule is not the formulation's, bisection between what fails and what works finds the rest:
//! feasibility is monotone in every one of these values.

use super::knobs::ProblemValue;
use crate::exact::model::goal::{Goal, Stage};
use crate::exact::model::space::Space;
use crate::exact::model::tightening::Tightening;
use crate::exact::search::attempt::{Attempt, attempt};
use crate::exact::stage::solve::{StageResult, solve_stage};
use apportion_domain::{LatencyRule, Mode, Problem};
use apportion_mip::Limits;

/// Relative gap of the formulations.
const GAP: f64 = 1e-6;
/// Relative gap of a search that only asks whether there is any plan.
const ANY_GAP: f64 = 0.5;
/// Answers are moved to the safe side by these much, relative, until the change really suffices: the solver has tolerances.
const SAFE: [f64; 4] = [0.0, 1e-9, 1e-7, 1e-6];
/// Bisection ends at this relative width.
const WIDTH: f64 = 1e-6;
/// Most halvings and doublings.
const STEPS_MAX: usize = 60;

/// Searches for relaxations of one problem.
pub(super) struct RelaxationSearch<'a> {
    problem: &'a Problem,
    /// Of all searches together.
    pub limits: &'a Limits,
}

impl<'a> RelaxationSearch<'a> {
    pub fn new(problem: &'a Problem, limits: &'a Limits) -> Self {
        Self { problem, limits }
    }

    /// Whether there is a plan; `None` if the search ends without an answer.
    pub fn is_feasible(&self, changed: &Problem, limits: &Limits) -> Option<bool> {
        // which mode makes no difference to feasibility; least cost is the shortest way for several pipelines
        let mode = match changed.objective.mode {
            Mode::HardwareThenAccuracy if changed.pipelines.len() == 1 => Mode::HardwareThenAccuracy,
            _ => Mode::MinCost,
        };
        let plain = changed.changed(|d| {
            d.objective.mode = mode;
            d.switching_weight = 0.0;
            d.deployed.clear();
        });
        let plain = plain.ok()?;
        match attempt(&plain, &Tightening::none(&plain), ANY_GAP, limits) {
            Attempt::Plan(_) => Some(true),
            Attempt::Infeasible => Some(false),
            Attempt::Unknown(_) => None,
        }
    }

    /// The value nearest to what the knob has now with which there is a plan; `None` if there is none, or time is up.
    pub fn least(&self, knob: ProblemValue, limits: &Limits) -> Option<f64> {
        if let Some(steps) = knob.steps(self.problem) {
            return self.first_step(knob, &steps, limits);
        }
        if !self.works(knob, knob.loosest(self.problem), limits) {
            return None;
        }
        let hint = self.hint(knob, limits);
        let whole = matches!(knob, ProblemValue::Count(_));
        let safe = |value: f64, by: f64| match knob {
            ProblemValue::Count(_) => value,
            ProblemValue::Demand(_) | ProblemValue::Floor(_) => value * (1.0 - by),
            _ => value * (1.0 + by),
        };
        let confirmed = hint.and_then(|hint| {
            let values = SAFE.iter().map(|&by| safe(hint, by));
            values.into_iter().find(|&value| self.works(knob, value, limits))
        });
        match confirmed {
            // under rule `path` no formulation asks for the SLO, so its answer is only an upper end
            Some(value) if self.by_tasks() || !matches!(knob, ProblemValue::Slo(_)) => Some(value),
            Some(value) => self.bisect(knob, value, whole, limits),
            None => self.bisect(knob, self.some_end(knob, hint, limits)?, whole, limits),
        }
        .filter(|&value| value > 0.0 || !matches!(knob, ProblemValue::Demand(_)))
    }

    fn works(&self, knob: ProblemValue, value: f64, limits: &Limits) -> bool {
        knob.set(self.problem, value).and_then(|changed| self.is_feasible(&changed, limits)) == Some(true)
    }

    /// The first of a few values that works, by bisection.
    fn first_step(&self, knob: ProblemValue, steps: &[f64], limits: &Limits) -> Option<f64> {
        if !steps.last().is_some_and(|&last| self.works(knob, last, limits)) {
            return None;
        }
        let (mut fails, mut works) = (0, steps.len() - 1);
        while fails < works {
            let middle = fails + (works - fails) / 2;
            if self.works(knob, steps[middle], limits) { works = middle } else { fails = middle + 1 }
        }
        Some(steps[works])
    }

    fn by_tasks(&self) -> bool {
        self.problem.objective.latency_rule == LatencyRule::TaskBudget
    }

    /// What the formulation says.
    fn hint(&self, knob: ProblemValue, limits: &Limits) -> Option<f64> {
        let now = knob.now(self.problem);
        let free = knob.loosest(self.problem);
        let solve = |value: f64, goal: Goal| self.value(&knob.set(self.problem, value)?, goal, limits);
        match knob {
            ProblemValue::Count(h) => Some((solve(free, Goal::Devices(h))? - 1e-6).ceil()),
            ProblemValue::Demand(p) => Some(-now * solve(now, Goal::Demand(p))?),
            ProblemValue::Slo(p) if self.by_tasks() => Some(free * solve(free, Goal::Slo(p))?),
            ProblemValue::Floor(p) => Some(-solve(free, Goal::AccuracyOf(p))?),
            ProblemValue::Budget => solve(free, Goal::Cost),
            ProblemValue::Slo(_) | ProblemValue::Memory(_) | ProblemValue::MinReplicas(..) | ProblemValue::Survive(_) => {
                None
            }
        }
        .map(|value| {
            if matches!(knob, ProblemValue::Count(_) | ProblemValue::Slo(_) | ProblemValue::Budget) {
                value.max(now)
            } else {
                value.min(now)
            }
        })
        .map(|value| value.max(0.0))
    }

    /// The value of a goal on a changed problem.
    fn value(&self, changed: &Problem, goal: Goal, limits: &Limits) -> Option<f64> {
        let space = Space::new(changed, &Tightening::none(changed), limits).ok()?;
        match solve_stage(changed, &space, Stage::new(goal), GAP, limits, None) {
            StageResult::Found { value, stopped: None, .. } => Some(value),
            StageResult::Found { .. } | StageResult::Infeasible | StageResult::Unknown(_) => None,
        }
    }

    /// A finite value that works, for a bisection to start from.
    fn some_end(&self, knob: ProblemValue, hint: Option<f64>, limits: &Limits) -> Option<f64> {
        let free = knob.loosest(self.problem);
        if free.is_finite() {
            return Some(free);
        }
        let mut value = hint.unwrap_or_else(|| knob.now(self.problem)).max(1.0);
        for _ in 0..STEPS_MAX {
            if limits.exceeded() {
                return None;
            }
            if self.works(knob, value, limits) {
                return Some(value);
            }
            value *= 2.0;
        }
        None
    }

    /// Between the value now, which fails, and one that works.
    fn bisect(&self, knob: ProblemValue, mut works: f64, whole: bool, limits: &Limits) -> Option<f64> {
        let mut fails = knob.now(self.problem);
        for _ in 0..STEPS_MAX {
            let width = (works - fails).abs();
            if (whole && width <= 1.0) || width <= WIDTH * works.abs().max(1e-9) {
                break;
            }
            if limits.exceeded() {
                tracing::info!(?knob, "out of time: the change proposed is not the smallest");
                break;
            }
            let middle = 0.5 * (fails + works);
            let middle = if whole { middle.floor() } else { middle };
            if self.works(knob, middle, limits) { works = middle } else { fails = middle }
        }
        Some(works)
    }
}
