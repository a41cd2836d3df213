//! What is a joint problem, and which plans and bounds are known while its pipelines are solved one by one?

use super::master::{ColumnCombination, Master, SharedResources};
use super::sub::{Column, Subproblem};
use crate::exact::model::goal::Goal;
use crate::exact::model::quotas::QuotaRow;
use crate::exact::model::space::{PipelineSpace, Space};
use crate::exact::solution::choice::{GroupChoice, PlanIntegers};
use crate::exact::stage::solve::StageResult;
use crate::fleet_memory::FleetMemory;
use apportion_domain::{Pipeline, Problem, Share, StopReason};
use apportion_mip::RunLimits;
use apportion_mip::highs::ReportedGoal;
use rayon::prelude::*;

/// Least pipelines of a problem that is always taken apart. With fewer, the whole formulation proves the optimum of most.
pub(super) const PIPELINES_MIN: usize = 3;
/// The whole formulation closes a gap only if it has at most this many integers and points.
pub(super) const FINISH_MAX: usize = 900;
/// Gap of the last combination of columns when the time is up.
const LATE_GAP: f64 = 1e-2;

/// A joint problem, taken apart. It does not change during the search.
pub(super) struct JointProblem<'a> {
    pub problem: &'a Problem,
    pub space: &'a Space,
    /// `Accuracy`, `Replicas` or `Switching`.
    pub goal: Goal,
    /// Goal that breaks ties: `Cost` or `Replicas`.
    pub second: Option<Goal>,
    pub gap: f64,
    pub limits: &'a RunLimits,
    /// By pipeline.
    pub subs: Vec<Subproblem>,
    /// The devices, the budget and the quotas that the pipelines share.
    pub shared: SharedResources,
    /// Most columns of a whole formulation that closes the gap.
    pub finish_max: usize,
    /// The memory of rounds before this one.
    pub memory: Option<&'a FleetMemory>,
}

/// The known plans and bounds of a joint problem. They grow during the search.
pub(super) struct JointBounds {
    /// The known plans of each pipeline.
    pub master: Master,
    /// No joint plan costs less.
    pub bound: f64,
    /// Every proven bound, by pipeline.
    pub cuts: Vec<Vec<PriceBound>>,
    /// The last duals of the master programme: price of a device of each hardware type, then those of quotas.
    pub lambda: Vec<f64>,
    /// Prices at which the bound is highest, in the same order.
    pub best_lambda: Vec<f64>,
    /// How many times a pipeline was priced.
    pub pricings: usize,
}

/// A proven bound of one pipeline at given prices of devices.
#[derive(Clone, Debug)]
pub(super) struct PriceBound {
    /// Price of a device of each hardware type.
    pub prices: Vec<f64>,
    /// No plan of the pipeline costs less at these prices.
    pub cost_min: f64,
}

/// A plan for every pipeline.
#[derive(Clone, Debug)]
pub(super) struct JointPlan {
    pub columns: Vec<Column>,
    /// The goal's value with the devices' cost.
    pub value: f64,
}

/// Number of columns that make the whole formulation hard: its integers and points.
pub(super) fn hard_columns(space: &Space) -> usize {
    let of = |p: &PipelineSpace| {
        p.groups.iter().map(|g| 1 + g.points.len()).sum::<usize>() + p.levels.iter().map(Vec::len).sum::<usize>()
    };
    space.parts.iter().map(of).sum()
}

impl<'a> JointProblem<'a> {
    /// Takes a problem apart for a goal; `None` if the goal cannot be split by pipeline.
    pub(super) fn new(
        problem: &'a Problem,
        space: &'a Space,
        goal: Goal,
        second: Option<Goal>,
        gap: f64,
        limits: &'a RunLimits,
    ) -> Option<Self> {
        let (goal, priced) = match goal {
            Goal::CostAndSwitching => (Goal::Switching, true),
            Goal::Accuracy | Goal::Replicas => (goal, false),
            _ => return None,
        };
        let subs: Vec<Subproblem> = (0..space.parts.len())
            .into_par_iter()
            .map(|p| Subproblem::new(problem, space, p, &limits.for_finishing()))
            .collect();
        let mut most = vec![0.0; problem.hardware.len()];
        let mut split = vec![false; problem.hardware.len()];
        for sub in &subs {
            most.iter_mut().zip(sub.devices_max()).for_each(|(m, own)| *m += own);
            for group in sub.part().groups.iter().filter(|g| g.share != Share::WHOLE) {
                split[group.hardware.get()] = true;
            }
        }
        let count = |h: usize| problem.hardware[h].count.map_or(f64::INFINITY, f64::from);
        let price: Vec<f64> = problem.hardware.iter().map(|h| h.price_per_hour).collect();
        let shared = SharedResources {
            most: most.iter().enumerate().map(|(h, m)| m.ceil().min(count(h))).collect(),
            cost: if priced { price.clone() } else { vec![0.0; price.len()] },
            price,
            budget: problem.objective.budget_per_hour,
            split,
            quotas: QuotaRow::all(problem),
        };
        Some(Self { problem, space, goal, second, gap, limits, subs, shared, finish_max: FINISH_MAX, memory: None })
    }

    /// Whether the goal is the cost of devices, and some pipeline has a floor of accuracy.
    pub(super) fn costs_under_floors(&self) -> bool {
        let has_floor = |pipeline: &Pipeline| pipeline.min_accuracy.is_some_and(|floor| floor > 0.0);
        self.shared.has_costs() && self.problem.pipelines.iter().any(has_floor)
    }

    /// Reports the best plan and the bound to the listener of `progress`.
    pub(super) fn report_progress(&self, progress: &RunLimits, known: &JointBounds, best: Option<&JointPlan>) {
        let goal = if self.goal == Goal::Switching { Goal::CostAndSwitching } else { self.goal };
        if let Some(ReportedGoal { name, factor }) = goal.reported() {
            progress.report_progress(name, best.map_or(f64::NAN, |b| factor * b.value), factor * known.bound);
        }
    }

    /// A choice of the whole formulation, by pipeline.
    pub(super) fn plan_of_choice(&self, choice: PlanIntegers, value: f64) -> JointPlan {
        let column = |(sub, groups): (&Subproblem, &Vec<GroupChoice>)| {
            let devices = sub.devices(groups);
            Column { groups: groups.clone(), goal: 0.0, devices }
        };
        JointPlan { columns: self.subs.iter().zip(&choice.groups).map(column).collect(), value }
    }

    /// The joint plan of these columns; `None` if they do not fit together.
    pub(super) fn join(&self, columns: Vec<Column>) -> Option<JointPlan> {
        let devices = self.shared.fits(&columns.iter().collect::<Vec<_>>())?;
        let value = devices + columns.iter().map(|c| c.goal).sum::<f64>();
        Some(JointPlan { columns, value })
    }
}

impl JointBounds {
    /// Nothing is known.
    pub(super) fn new(joint: &JointProblem<'_>) -> Self {
        let pipelines = joint.subs.len();
        let master = Master::new(joint.shared.clone(), pipelines);
        let lambda = joint.shared.cost.clone();
        let best_lambda = joint.shared.own_prices();
        let cuts = vec![Vec::new(); pipelines];
        Self { master, bound: f64::NEG_INFINITY, cuts, lambda, best_lambda, pricings: 0 }
    }

    /// Raises the bound to that of some prices, if it is higher there.
    pub(super) fn raise(&mut self, bound: f64, lambda: &[f64]) {
        if bound > self.bound {
            self.bound = bound;
            self.best_lambda = lambda.to_vec();
        }
    }

    /// The best combination of the known columns.
    pub(super) fn best_combination(&self, joint: &JointProblem<'_>) -> Option<JointPlan> {
        let finishing = joint.limits.for_finishing();
        let (gap, limits) =
            if joint.limits.exceeded() { (LATE_GAP.max(joint.gap), &finishing) } else { (0.1 * joint.gap, joint.limits) };
        let ColumnCombination { chosen, value } = self.master.combine(gap, limits)?;
        let columns = chosen.iter().zip(&self.master.columns).map(|(&c, known)| known[c].clone()).collect();
        Some(JointPlan { columns, value })
    }

    /// Whether no plan is better by more than the gap.
    pub(super) fn is_proven(&self, whole: &JointPlan, gap: f64) -> bool {
        whole.value - self.bound <= gap * whole.value.abs() + 1e-9
    }

    /// The result of the stage. A proven plan has no reason to have stopped.
    pub(super) fn to_result(&self, whole: JointPlan, gap: f64, stopped: Option<StopReason>) -> StageResult {
        let stopped = stopped.filter(|_| !self.is_proven(&whole, gap));
        let choice = PlanIntegers { groups: whole.columns.into_iter().map(|c| c.groups).collect() };
        StageResult::Found { choice, value: whole.value, bound: self.bound.min(whole.value), stopped }
    }
}
