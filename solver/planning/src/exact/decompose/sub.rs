//! Which plan of one pipeline is best under given prices of devices?
//!
//! The question is `min goal(x) + sum over h of price_h a_h(x)` over the plans x of the pipeline, `a_h` being devices
//! of type h. If the pipeline has few maximal budget vectors, our own branch and bound searches them in the order of
//! the bounds of [`Strategy`]. Otherwise some of them give a plan, and HiGHS searches the formulation with level
//! binaries for a better one.

use super::floor::{RoundedStrategy, Strategy, Tariff};
use super::pricer::Pricer;
use crate::exact::model::alone::alone;
use crate::exact::model::budgets;
use crate::exact::model::columns::replicas_max;
use crate::exact::model::constraints::build;
use crate::exact::model::goal::{Goal, Stage};
use crate::exact::model::groups::FeasibleGroup;
use crate::exact::model::space::{PipelineSpace, Space};
use crate::exact::model::tolerances::STAGE_GAP_SHARE;
use crate::exact::solution::choice::{GroupChoice, PlanIntegers, read_choice};
use crate::exact::solution::flows::{accuracy, flows};
use crate::exact::stage::solve::{StageResult, solve_stage};
use apportion_domain::{LatencyRule, PipelineIndex, Problem, ProblemDraft, SLACK, StopReason};
use apportion_mip::highs::{self, SolveSettings};
use apportion_mip::{Ending, RunLimits};
use std::sync::OnceLock;

/// Most budget vectors that are searched for each question. The bound of each takes some microseconds.
const VECTORS_MAX: usize = 4_000;
/// Most nodes of the formulation with level binaries, for one question.
const LEVEL_NODES_MAX: i32 = 200;
/// Share of the remaining time for one such question.
const LEVEL_TIME: f64 = 0.1;

/// A plan of one pipeline as the joint problem sees it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Column {
    /// By group.
    pub groups: Vec<GroupChoice>,
    /// The goal's value, to be minimised: minus weighted accuracy, replicas, or cost of switching. Devices are not in it.
    pub goal: f64,
    /// Devices of each hardware type, in whole ones (multiples of 1/8).
    pub devices: Vec<f64>,
}

impl Column {
    /// The goal's value and the price of its devices.
    pub fn cost_at(&self, prices: &[f64]) -> f64 {
        self.goal + self.devices.iter().zip(prices).map(|(devices, price)| devices * price).sum::<f64>()
    }
}

/// Result of one pipeline at given prices.
pub(super) struct PricedColumn {
    /// The best plan found.
    pub column: Option<Column>,
    /// No plan costs less. Infinite if no plan exists.
    pub bound: f64,
}

/// The search for a plan of one pipeline at given prices.
#[derive(Clone, Copy)]
pub(super) struct PricedQuestion<'a> {
    /// Goal beside the prices: `Accuracy`, `Replicas`, `Switching`, `Nothing`, or `CostAndSwitching` with whole
    /// devices.
    pub goal: Goal,
    /// Goal that gives the value of the resulting column.
    pub worth: Goal,
    /// Price of a whole device by hardware type.
    pub prices: &'a [f64],
    /// The pipeline's own accuracy must be at least this.
    pub accuracy_min: Option<f64>,
    /// The pipeline's problem with other counts and budget; `None` has all of them.
    pub room: Option<&'a Problem>,
    /// Free parts of further devices, which others pay for.
    pub free: Option<&'a [f64]>,
    /// Relative gap.
    pub gap: f64,
}

/// A budget vector with a bound on its plans.
struct BoundedVector<'a> {
    /// No plan within the budgets costs less.
    cost_min: f64,
    budgets: &'a [f64],
}

/// A choice with its cost.
struct PricedChoice {
    cost: f64,
    choice: PlanIntegers,
}

/// Maximal budget vectors of a pipeline.
struct ListedBudgets {
    vectors: Vec<Vec<f64>>,
    /// Whether these are all.
    is_complete: bool,
}

/// One pipeline with all hardware to itself.
pub(super) struct Subproblem {
    pub problem: Problem,
    /// One part, of weight 1.
    pub space: Space,
    /// The maximal budget vectors, listed when they are first needed.
    listed: OnceLock<ListedBudgets>,
    /// Limits of that list.
    limits: RunLimits,
    /// Prices the pipeline without a list; `None` if it cannot.
    pub pricer: Option<Pricer>,
    /// Weight of this pipeline's accuracy in the joint problem.
    pub weight: f64,
}

impl Subproblem {
    pub fn new(problem: &Problem, space: &Space, p: usize, limits: &RunLimits) -> Self {
        let problem = alone(problem, PipelineIndex(p));
        let part = PipelineSpace { index: PipelineIndex(0), weight: 1.0, ..space.parts[p].clone() };
        let pricer = Pricer::new(problem.pipeline(PipelineIndex(0)), &part);
        let (space, weight) = (Space { parts: vec![part] }, space.parts[p].weight);
        Self { weight, space, problem, listed: OnceLock::new(), limits: limits.clone(), pricer }
    }

    /// The maximal budget vectors, or some of them.
    fn listed(&self) -> &ListedBudgets {
        self.listed.get_or_init(|| {
            let (pipeline, part) = (self.problem.pipeline(PipelineIndex(0)), self.part());
            match budgets::list_at_most(VECTORS_MAX, pipeline, part, &self.limits) {
                // under rule `path` there are plans beyond those of any budgets
                Some(vectors) => ListedBudgets { vectors, is_complete: part.rule == LatencyRule::TaskBudget },
                None => ListedBudgets { vectors: budgets::list_some(pipeline, part, &self.limits), is_complete: false },
            }
        })
    }

    /// The space of the only pipeline.
    pub fn part(&self) -> &PipelineSpace {
        &self.space.parts[0]
    }

    /// The same problem with other counts and budget.
    pub fn with_room(&self, counts: &[Option<u32>], budget: Option<f64>) -> Problem {
        let change = |d: &mut ProblemDraft| {
            d.objective.budget_per_hour = budget;
            d.hardware.iter_mut().zip(counts).for_each(|(h, &count)| h.count = count);
        };
        self.problem.changed(change).expect("counts and budgets within the old ones are valid")
    }

    /// Most devices of each type that can be useful to this pipeline.
    pub fn devices_max(&self) -> Vec<f64> {
        let mut most = vec![0.0; self.problem.hardware.len()];
        for group in &self.part().groups {
            let slowest = group.points.iter().map(|p| p.qps).fold(f64::INFINITY, f64::min);
            let replicas = replicas_max(&self.problem, self.part(), group, slowest);
            most[group.hardware.get()] += replicas * group.share.value();
        }
        most
    }

    /// Solves a question.
    pub fn solve(&self, question: PricedQuestion<'_>, limits: &RunLimits) -> PricedColumn {
        // solved for the pipeline's own accuracy, so prices are divided by its weight
        let (goal, scale) = match question.goal {
            Goal::Accuracy if self.weight <= 0.0 => (Goal::Nothing, 1.0),
            Goal::Accuracy => (Goal::Accuracy, self.weight),
            other => (other, 1.0),
        };
        let prices: Vec<f64> = question.prices.iter().map(|p| p / scale).collect();
        let problem = question.room.unwrap_or(&self.problem);
        let stage =
            Stage { accuracy_min: question.accuracy_min, prices: Some(&prices), free: question.free, ..Stage::new(goal) };
        let listed = self.search_listed_budgets(problem, stage, question.gap, limits);
        let answer = if self.listed().is_complete {
            listed
        } else {
            self.search_all_budgets(problem, stage, listed, question.gap, limits)
        };
        match answer {
            StageResult::Found { choice, value, bound, .. } => {
                let own = (goal == Goal::Accuracy).then(|| self.price_of_devices(&choice.groups[0], &prices) - value);
                PricedColumn { column: self.column(choice, question.worth, own, limits), bound: bound * scale }
            }
            StageResult::Infeasible => PricedColumn { column: None, bound: f64::INFINITY },
            StageResult::Unknown(_) => {
                PricedColumn { column: None, bound: self.bound_without_solver(goal, &prices, limits) * scale }
            }
        }
    }

    /// A bound on any answer, without a solver.
    fn bound_without_solver(&self, goal: Goal, prices: &[f64], limits: &RunLimits) -> f64 {
        if !self.listed().is_complete || limits.for_finishing().exceeded() {
            return if goal == Goal::Accuracy { -1.0 } else { 0.0 };
        }
        let tariff = self.tariff(goal, prices);
        let costs = self.listed().vectors.iter().filter_map(|b| Strategy::cheapest(self.part(), &self.points(b), &tariff));
        costs.map(|s| s.cost).fold(f64::INFINITY, f64::min)
    }

    /// Price of the devices of a choice.
    fn price_of_devices(&self, groups: &[GroupChoice], prices: &[f64]) -> f64 {
        let each = self.part().groups.iter().zip(groups);
        each.map(|(g, c)| f64::from(c.replicas) * g.share.value() * prices[g.hardware.get()]).sum()
    }

    /// The tariff of a stage.
    pub fn tariff(&self, goal: Goal, prices: &[f64]) -> Tariff {
        let own = f64::from(u8::from(goal == Goal::Replicas));
        let priced = f64::from(u8::from(goal == Goal::CostAndSwitching));
        let rate = |h: usize| prices[h] + priced * self.problem.hardware[h].price_per_hour;
        let price = |g: &FeasibleGroup| own + rate(g.hardware.get()) * g.share.value();
        let reward = if goal == Goal::Accuracy { 1.0 } else { 0.0 };
        Tariff { replica: self.part().groups.iter().map(price).collect(), reward }
    }

    /// The operating point of each group within these budgets.
    fn points(&self, budgets: &[f64]) -> Vec<Option<usize>> {
        self.part().groups.iter().map(|g| g.best_within(budgets[g.task.get()])).collect()
    }

    /// Searches the listed budget vectors in the order of their bounds.
    fn search_listed_budgets(&self, problem: &Problem, stage: Stage<'_>, gap: f64, limits: &RunLimits) -> StageResult {
        if let Some(reason) = limits.for_finishing().stop_reason() {
            return StageResult::Unknown(reason);
        }
        let tariff = self.tariff(stage.goal, stage.prices.unwrap_or_default());
        // the tariff has charged the free parts of devices
        let rebate = self.rebate(&stage);
        let floor = |b: &[f64]| Strategy::cheapest(self.part(), &self.points(b), &tariff).map(|s| s.cost - rebate);
        let bounded = self.listed().vectors.iter().filter_map(|b| Some(BoundedVector { cost_min: floor(b)?, budgets: b }));
        let mut order: Vec<BoundedVector<'_>> = bounded.collect();
        order.sort_by(|a, b| a.cost_min.total_cmp(&b.cost_min));
        let mut best: Option<PricedChoice> = None;
        let mut bound = f64::INFINITY;
        let mut stopped = None;
        for BoundedVector { cost_min: least, budgets } in order {
            if let Some(reason) = limits.stop_reason()
                && (best.is_some() || limits.for_finishing().exceeded())
            {
                bound = bound.min(least);
                stopped = Some(reason);
                break;
            }
            let incumbent = best.as_ref().map(|b| b.cost);
            // a better plan must cost less than this
            let cutoff = incumbent.map_or(f64::INFINITY, |i| i - (0.5 * gap * i.abs()).max(1e-9));
            if least >= cutoff {
                bound = bound.min(least);
                break;
            }
            match solve_stage(problem, &self.space, stage.within_budgets(budgets), gap, limits, incumbent) {
                StageResult::Found { choice, value, bound: own, stopped: why } => {
                    bound = bound.min(own.max(least));
                    stopped = stopped.or(why);
                    if incumbent.is_none_or(|i| value < i) {
                        best = Some(PricedChoice { cost: value, choice });
                    }
                }
                StageResult::Infeasible => {
                    let margin = |i: f64| least.max(i - (STAGE_GAP_SHARE * gap * i.abs()).max(1e-9));
                    bound = bound.min(incumbent.map_or(f64::INFINITY, margin));
                }
                StageResult::Unknown(reason) => {
                    bound = bound.min(least);
                    stopped = Some(reason);
                }
            }
        }
        match best {
            Some(PricedChoice { cost, choice }) => {
                StageResult::Found { choice, value: cost, bound: bound.min(cost), stopped }
            }
            None => stopped.map_or(StageResult::Infeasible, StageResult::Unknown),
        }
    }

    /// Searches the formulation with level binaries for a better plan than the listed vectors have. Its nodes are
    /// limited, and its bound is valid even then.
    fn search_all_budgets(
        &self,
        problem: &Problem,
        stage: Stage<'_>,
        listed: StageResult,
        gap: f64,
        limits: &RunLimits,
    ) -> StageResult {
        let (known, value) = match listed {
            StageResult::Found { choice, value, .. } => (Some(choice), value),
            _ => (None, f64::INFINITY),
        };
        if known.is_none() && limits.exceeded() {
            return StageResult::Unknown(limits.stop_reason_or_time_limit());
        }
        let mut built = build(problem, &self.space, stage);
        let cutoff = value - (0.5 * gap * value.abs()).max(1e-9);
        if known.is_some() {
            let terms = built.formulation.cost_terms();
            built.formulation.at_most(cutoff, terms);
        }
        let settings = SolveSettings { nodes_max: Some(LEVEL_NODES_MAX), ..SolveSettings::mip(gap) };
        // only a share of the time: the other pipelines and the master programme need time too
        let solved = highs::solve(&built.formulation, settings, &limits.with_share_of_time(LEVEL_TIME), None);
        let stopped = || limits.stop_reason().unwrap_or(StopReason::Finished);
        let bound = solved.bound.max(self.stage_bound(&stage, limits));
        match (solved.ending, solved.values, known) {
            (Ending::Infeasible, _, None) => StageResult::Infeasible,
            (Ending::Infeasible, _, Some(choice)) => {
                StageResult::Found { choice, value, bound: cutoff.min(value), stopped: None }
            }
            (Ending::Optimal | Ending::Stopped, Some(values), _) => StageResult::Found {
                choice: read_choice(&self.space, &built.columns.parts, &values),
                value: solved.cost,
                bound: bound.min(solved.cost),
                stopped: (solved.ending == Ending::Stopped).then(stopped),
            },
            (Ending::Failed, _, Some(choice)) => StageResult::Found {
                choice,
                value,
                bound: self.stage_bound(&stage, limits),
                stopped: Some(StopReason::Numerics),
            },
            (_, _, Some(choice)) => {
                StageResult::Found { choice, value, bound: bound.min(cutoff), stopped: Some(stopped()) }
            }
            (_, _, None) => StageResult::Unknown(stopped()),
        }
    }

    /// A bound on a stage without a solver.
    fn stage_bound(&self, stage: &Stage<'_>, limits: &RunLimits) -> f64 {
        self.bound_without_solver(stage.goal, stage.prices.unwrap_or_default(), limits) - self.rebate(stage)
    }

    /// The most that free parts of devices can save.
    fn rebate(&self, stage: &Stage<'_>) -> f64 {
        let free = stage.free.filter(|_| stage.goal == Goal::CostAndSwitching).unwrap_or_default();
        free.iter().zip(&self.problem.hardware).map(|(f, h)| f * h.price_per_hour).sum()
    }

    /// A choice as a column; `own` is the pipeline's accuracy where it is known.
    pub fn column(&self, choice: PlanIntegers, goal: Goal, own: Option<f64>, limits: &RunLimits) -> Option<Column> {
        let finishing = limits.for_finishing();
        let value = match goal {
            Goal::Accuracy => {
                let flows = || flows(&self.problem, &self.space, &choice, &finishing).ok().flatten();
                let accuracy = match own {
                    Some(own) => own,
                    None if self.weight <= 0.0 => 0.0,
                    None => accuracy(self.part(), &flows()?[0]),
                };
                -self.weight * accuracy
            }
            Goal::Replicas => choice.replicas() as f64,
            Goal::Switching => {
                let each = self.part().groups.iter().zip(&choice.groups[0]);
                each.map(|(g, c)| g.switch_cost * f64::from(c.replicas.saturating_sub(g.deployed))).sum()
            }
            _ => 0.0,
        };
        let devices = self.devices(&choice.groups[0]);
        let groups = choice.groups.into_iter().next()?;
        Some(Column { groups, goal: value, devices })
    }

    /// Devices of each type that a choice of groups uses.
    pub fn devices(&self, groups: &[GroupChoice]) -> Vec<f64> {
        let mut devices = vec![0.0; self.problem.hardware.len()];
        for (group, c) in self.part().groups.iter().zip(groups) {
            devices[group.hardware.get()] += f64::from(c.replicas) * group.share.value();
        }
        devices
    }

    /// Plans without a solver: for each budget vector the cheapest strategy for the goal at these prices, rounded up. They
    /// are valued by `worth`.
    pub fn rounded_columns(&self, goal: Goal, prices: &[f64], worth: Goal, limits: &RunLimits) -> Vec<Column> {
        let pipeline = self.problem.pipeline(PipelineIndex(0));
        let tariff = self.tariff(goal, prices);
        let mut columns: Vec<Column> = Vec::new();
        for budgets in &self.listed().vectors {
            if limits.for_finishing().exceeded() {
                break;
            }
            let points = self.points(budgets);
            let Some(strategy) = Strategy::cheapest(self.part(), &points, &tariff) else { continue };
            let rounded = strategy.round_up(pipeline, self.part(), &points, &tariff);
            let Some(RoundedStrategy { groups, accuracy }) = rounded else { continue };
            if pipeline.min_accuracy.is_some_and(|floor| accuracy < floor - SLACK) {
                continue;
            }
            let column = self.column(PlanIntegers { groups: vec![groups] }, worth, Some(accuracy), limits);
            columns.extend(column.filter(|c| self.fits(c) && !columns.iter().any(|o| is_no_worse(o, c))));
        }
        columns
    }

    /// Whether a plan keeps to the counts and the budget by itself.
    fn fits(&self, column: &Column) -> bool {
        let whole = || column.devices.iter().map(|d| d.ceil()).zip(&self.problem.hardware);
        let cost: f64 = whole().map(|(d, h)| d * h.price_per_hour).sum();
        let budget = self.problem.objective.budget_per_hour;
        whole().all(|(d, h)| h.count.is_none_or(|count| d <= f64::from(count)))
            && budget.is_none_or(|b| cost <= b + SLACK * b.max(1.0))
    }
}

/// Whether plan `a` is at least as good as plan `b` and needs no more devices.
pub(super) fn is_no_worse(a: &Column, b: &Column) -> bool {
    a.goal <= b.goal + 1e-12 && a.devices.iter().zip(&b.devices).all(|(x, y)| x <= y)
}
