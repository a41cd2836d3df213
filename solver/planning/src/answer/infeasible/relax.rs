//! How far must one value be relaxed?
//!
//! Without the limit, the optimum of a formulation is the tightest possible limit (most demand, fewest devices,
//! highest accuracy, least cost). A search with that value confirms it. If it fails, bisection finds the value between a
//! failing and a working one. Feasibility is monotone in each of these values.
//!
//! Three questions have a faster answer. On one kind of device the optimum is that of the best budget vector
//! ([`enumerate::optimum_of_shortfall`]). One pipeline under rule `path` has fast searches, unless parts of devices are
//! bought, so bisection alone is faster. An SLO can only be one of the times at which a path can finish, so few of them are
//! tried.

use super::values::ProblemValue;
use crate::exact::model::goal::{Goal, Stage};
use crate::exact::model::space::Space;
use crate::exact::model::tightening::Tightening;
use crate::exact::search::attempt::{SearchOutcome, attempt};
use crate::exact::stage::enumerate;
use crate::exact::stage::paths;
use crate::exact::stage::solve::{StageResult, solve_stage};
use apportion_domain::{LatencyRule, Mode, Problem, Share};
use apportion_mip::RunLimits;

/// Relative gap of the formulations.
const GAP: f64 = 1e-6;
/// Relative gap of a search that only asks whether there is any plan.
const ANY_GAP: f64 = 0.5;
/// Largest share of the time of a value for its budget vectors.
const VECTORS_TIME_SHARE: f64 = 0.5;
/// Relative margins that are added until the change suffices, because the solver has tolerances.
const SAFE: [f64; 4] = [0.0, 1e-9, 1e-7, 1e-6];
/// Bisection ends at this relative width.
const WIDTH: f64 = 1e-6;
/// Most devices on which twenty searches over ways are faster than one whole formulation. On 20 devices they take a third
/// of its time, on 1,000 three times as long.
const SEARCHED_DEVICES_MAX: u32 = 200;
/// Most halvings and doublings.
const STEPS_MAX: usize = 60;

/// The values that a bisection tries.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Values {
    /// Whole numbers.
    Whole,
    /// Real numbers.
    Real,
}

/// Searches for relaxations of one problem.
pub(super) struct RelaxationSearch<'a> {
    problem: &'a Problem,
    /// Limits of all searches together.
    pub limits: &'a RunLimits,
}

impl<'a> RelaxationSearch<'a> {
    pub fn new(problem: &'a Problem, limits: &'a RunLimits) -> Self {
        Self { problem, limits }
    }

    /// Whether there is a plan; `None` if the search ends without an answer.
    pub fn is_feasible(&self, changed: &Problem, limits: &RunLimits) -> Option<bool> {
        // feasibility does not depend on the mode, and least cost is the fastest search for several pipelines
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
            SearchOutcome::Plan(_) => Some(true),
            SearchOutcome::Infeasible => Some(false),
            SearchOutcome::Unknown(_) => None,
        }
    }

    /// The value nearest to the present one that makes a plan possible. `None` if no value does, or if the time is up.
    pub fn nearest_feasible(&self, limit: ProblemValue, limits: &RunLimits) -> Option<f64> {
        if let Some(steps) = limit.steps(self.problem) {
            return self.first_step(limit, &steps, limits);
        }
        if !self.works(limit, limit.loosest(self.problem), limits) {
            return None;
        }
        // the search over ways answers twenty questions sooner than the whole formulation answers one
        let hint = if self.has_fast_searches() { None } else { self.value_by_formulation(limit, limits) };
        let values = if matches!(limit, ProblemValue::Count(_)) { Values::Whole } else { Values::Real };
        let safe = |value: f64, by: f64| match limit {
            ProblemValue::Count(_) => value,
            ProblemValue::Demand(_) | ProblemValue::Floor(_) => value * (1.0 - by),
            _ => value * (1.0 + by),
        };
        let confirmed = hint.and_then(|hint| {
            let mut candidates = SAFE.iter().map(|&by| safe(hint, by));
            candidates.find(|&value| self.works(limit, value, limits))
        });
        match confirmed {
            // under rule `path` no formulation minimises the SLO, so its value is only an upper end
            Some(value) if self.uses_task_budgets() || !matches!(limit, ProblemValue::Slo(_)) => Some(value),
            Some(value) => self.bisect(limit, value, values, limits),
            None => self.bisect(limit, self.feasible_end(limit, hint, limits)?, values, limits),
        }
        .filter(|&value| value > 0.0 || !matches!(limit, ProblemValue::Demand(_)))
    }

    /// Whether [`Self::is_feasible`] searches over ways, on few devices. For least cost it does so on whole devices only.
    fn has_fast_searches(&self) -> bool {
        let devices: u32 = self.problem.hardware.iter().filter_map(|h| h.count).fold(0, u32::saturating_add);
        let variants = || self.problem.pipelines.iter().flat_map(|p| &p.tasks).flat_map(|task| &task.variants);
        let is_whole = || variants().flat_map(|v| v.profile.rows()).all(|row| row.share == Share::WHOLE);
        paths::applies(self.problem)
            && devices <= SEARCHED_DEVICES_MAX
            && (self.problem.objective.mode == Mode::HardwareThenAccuracy || is_whole())
    }

    /// Whether the problem with this value has a plan. Also `false` if the search ends without an answer.
    fn works(&self, limit: ProblemValue, value: f64, limits: &RunLimits) -> bool {
        limit.set(self.problem, value).and_then(|changed| self.is_feasible(&changed, limits)) == Some(true)
    }

    /// The first of a few values that works, by bisection.
    fn first_step(&self, limit: ProblemValue, steps: &[f64], limits: &RunLimits) -> Option<f64> {
        if !steps.last().is_some_and(|&last| self.works(limit, last, limits)) {
            return None;
        }
        let (mut fails, mut works) = (0, steps.len() - 1);
        while fails < works {
            if limits.exceeded() {
                tracing::info!(?limit, "out of time: the change proposed is not the smallest");
                break;
            }
            let middle = fails + (works - fails) / 2;
            if self.works(limit, steps[middle], limits) { works = middle } else { fails = middle + 1 }
        }
        Some(steps[works])
    }

    /// Whether the latency rule is `task_budget`.
    fn uses_task_budgets(&self) -> bool {
        self.problem.objective.latency_rule == LatencyRule::TaskBudget
    }

    /// The value that the formulation gives.
    fn value_by_formulation(&self, limit: ProblemValue, limits: &RunLimits) -> Option<f64> {
        let now = limit.now(self.problem);
        let free = limit.loosest(self.problem);
        let solve = |value: f64, goal: Goal| self.goal_value(&limit.set(self.problem, value)?, goal, limits);
        match limit {
            ProblemValue::Count(h) => Some((solve(free, Goal::Devices(h))? - 1e-6).ceil()),
            ProblemValue::Demand(p) => Some(-now * solve(now, Goal::Demand(p))?),
            ProblemValue::Slo(p) if self.uses_task_budgets() => Some(free * solve(free, Goal::Slo(p))?),
            ProblemValue::Floor(p) => Some(-solve(free, Goal::AccuracyOf(p))?),
            ProblemValue::Budget => solve(free, Goal::Cost),
            ProblemValue::Slo(_) | ProblemValue::Memory(_) | ProblemValue::MinReplicas(..) | ProblemValue::Survive(_) => {
                None
            }
        }
        .map(|value| {
            if matches!(limit, ProblemValue::Count(_) | ProblemValue::Slo(_) | ProblemValue::Budget) {
                value.max(now)
            } else {
                value.min(now)
            }
        })
        .map(|value| value.max(0.0))
    }

    /// The value of a goal on a changed problem.
    fn goal_value(&self, changed: &Problem, goal: Goal, limits: &RunLimits) -> Option<f64> {
        let space = Space::new(changed, &Tightening::none(changed), limits).ok()?;
        // the bounds of many vectors may be equal: then the whole formulation gets the rest of the time
        let of_vectors = limits.with_share_of_time(VECTORS_TIME_SHARE);
        let by_budgets = enumerate::optimum_of_shortfall(changed, &space, goal, GAP, &of_vectors);
        let is_proven = |a: &StageResult| matches!(a, StageResult::Found { stopped: None, .. } | StageResult::Infeasible);
        let answer = by_budgets.filter(is_proven);
        match answer.unwrap_or_else(|| solve_stage(changed, &space, Stage::new(goal), GAP, limits, None)) {
            StageResult::Found { value, stopped: None, .. } => Some(value),
            StageResult::Found { .. } | StageResult::Infeasible | StageResult::Unknown(_) => None,
        }
    }

    /// A finite value that works, as the start of a bisection.
    fn feasible_end(&self, limit: ProblemValue, hint: Option<f64>, limits: &RunLimits) -> Option<f64> {
        let free = limit.loosest(self.problem);
        if free.is_finite() {
            return Some(free);
        }
        let mut value = hint.unwrap_or_else(|| limit.now(self.problem)).max(1.0);
        for _ in 0..STEPS_MAX {
            if limits.exceeded() {
                return None;
            }
            if self.works(limit, value, limits) {
                return Some(value);
            }
            value *= 2.0;
        }
        None
    }

    /// Between the value now, which fails, and one that works.
    fn bisect(&self, limit: ProblemValue, mut works: f64, values: Values, limits: &RunLimits) -> Option<f64> {
        let is_whole = values == Values::Whole;
        let mut fails = limit.now(self.problem);
        for _ in 0..STEPS_MAX {
            let width = (works - fails).abs();
            if (is_whole && width <= 1.0) || width <= WIDTH * works.abs().max(1e-9) {
                break;
            }
            if limits.exceeded() {
                tracing::info!(?limit, "out of time: the change proposed is not the smallest");
                break;
            }
            let middle = 0.5 * (fails + works);
            let middle = if is_whole { middle.floor() } else { middle };
            if self.works(limit, middle, limits) { works = middle } else { fails = middle }
        }
        Some(works)
    }
}
