//! One pipeline of a joint problem, asked for its best plan under prices of devices.
//!
//! The question is `min goal(x) + sum over h of price_h a_h(x)` over the plans x of the pipeline, `a_h` being devices of type h.
//! Where the pipeline has few maximal budget vectors, they are searched in the order of the bounds of [`Strategy`] by our own
//! branch and bound; else the formulation with level binaries goes to HiGHS.

use super::floor::{Strategy, Tariff};
use crate::limits::Limits;
use crate::milp::constraints::{Goal, Stage};
use crate::milp::extract::{self, Choice};
use crate::milp::space::{Part, Space};
use crate::milp::{SMALL_GAP, StageAnswer, solve_stage, vectors};
use apportion_domain::{PipelineIndex, Problem, ProblemDraft, SLACK};

/// A plan of one pipeline as the joint problem sees it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Column {
    /// `(replicas, point)` by group.
    pub groups: Vec<(u32, usize)>,
    /// The goal's value, to be minimised: minus weighted accuracy, replicas, or cost of switching. Devices are not in it.
    pub goal: f64,
    /// Devices of each hardware type, in whole ones (multiples of 1/8).
    pub devices: Vec<f64>,
}

/// The answer of one pipeline at given prices.
pub(super) struct Priced {
    /// The best plan found.
    pub column: Option<Column>,
    /// No plan costs less; infinite if there is none.
    pub bound: f64,
}

/// What is asked.
#[derive(Clone, Copy)]
pub(super) struct Ask<'a> {
    /// What is minimised beside the prices: `Accuracy`, `Replicas`, `Switching` or `Nothing`.
    pub goal: Goal,
    /// The goal that the answer's column is valued by.
    pub worth: Goal,
    /// Price of a whole device by hardware type.
    pub prices: &'a [f64],
    /// The pipeline's own accuracy must be at least this.
    pub accuracy_min: Option<f64>,
    /// The pipeline's problem with other counts and budget; `None` has all of them.
    pub room: Option<&'a Problem>,
    /// Relative gap.
    pub gap: f64,
}

/// One pipeline with all hardware to itself.
pub(super) struct Sub {
    pub problem: Problem,
    /// One part, of weight 1.
    pub space: Space,
    /// The maximal budget vectors, if they are few.
    vectors: Option<Vec<Vec<f64>>>,
    /// Weight of this pipeline's accuracy in the joint problem.
    pub weight: f64,
}

impl Sub {
    pub fn new(problem: &Problem, space: &Space, p: usize) -> Self {
        let index = PipelineIndex(p);
        let deployed = problem.deployed.iter().filter(|d| d.pipeline == index).cloned();
        let draft = ProblemDraft {
            objective: problem.objective,
            hardware: problem.hardware.clone(),
            pipelines: vec![problem.pipeline(index).clone()],
            deployed: deployed.map(|d| apportion_domain::Deployed { pipeline: PipelineIndex(0), ..d }).collect(),
            switching_weight: problem.switching_weight,
        };
        let problem = Problem::new(draft).expect("a part of a valid problem is valid");
        let part = Part { index: PipelineIndex(0), weight: 1.0, ..space.parts[p].clone() };
        let vectors = vectors::maximal(problem.pipeline(PipelineIndex(0)), &part);
        Self { weight: space.parts[p].weight, space: Space { parts: vec![part] }, problem, vectors }
    }

    pub fn part(&self) -> &Part {
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

    /// Most devices of each type that a plan of this pipeline can be worth having.
    pub fn devices_max(&self) -> Vec<f64> {
        let mut most = vec![0.0; self.problem.hardware.len()];
        for group in &self.part().groups {
            let slowest = group.points.iter().map(|p| p.qps).fold(f64::INFINITY, f64::min);
            let replicas = crate::milp::variables::replicas_max(&self.problem, self.part(), group, slowest);
            most[group.hardware.get()] += replicas * group.share.value();
        }
        most
    }

    /// Answers a question.
    pub fn ask(&self, ask: Ask<'_>, limits: &Limits) -> Priced {
        // solved for the pipeline's own accuracy, so prices are divided by its weight
        let (goal, scale) = match ask.goal {
            Goal::Accuracy if self.weight <= 0.0 => (Goal::Nothing, 1.0),
            Goal::Accuracy => (Goal::Accuracy, self.weight),
            other => (other, 1.0),
        };
        let prices: Vec<f64> = ask.prices.iter().map(|p| p / scale).collect();
        let problem = ask.room.unwrap_or(&self.problem);
        let stage = Stage { accuracy_min: ask.accuracy_min, prices: Some(&prices), ..Stage::new(goal) };
        let answer = match &self.vectors {
            Some(vectors) => self.by_vectors(problem, stage, vectors, ask.gap, limits),
            None => solve_stage(problem, &self.space, stage, ask.gap, limits, None),
        };
        match answer {
            StageAnswer::Found { choice, value, bound, .. } => {
                let own = (goal == Goal::Accuracy).then(|| self.spent(&choice.groups[0], &prices) - value);
                Priced { column: self.column(choice, ask.worth, own, limits), bound: bound * scale }
            }
            StageAnswer::Infeasible => Priced { column: None, bound: f64::INFINITY },
            StageAnswer::Unknown(_) => Priced { column: None, bound: self.floor(goal, &prices) * scale },
        }
    }

    /// A bound on any answer, without a solver.
    fn floor(&self, goal: Goal, prices: &[f64]) -> f64 {
        let Some(vectors) = &self.vectors else {
            return if goal == Goal::Accuracy { -1.0 } else { 0.0 };
        };
        let tariff = self.tariff(goal, prices);
        let costs = vectors.iter().filter_map(|b| Strategy::cheapest(self.part(), &self.points(b), &tariff));
        costs.map(|s| s.cost).fold(f64::INFINITY, f64::min)
    }

    /// Price of the devices of a choice.
    fn spent(&self, groups: &[(u32, usize)], prices: &[f64]) -> f64 {
        let each = self.part().groups.iter().zip(groups);
        each.map(|(g, &(x, _))| f64::from(x) * g.share.value() * prices[g.hardware.get()]).sum()
    }

    /// The tariff of a stage.
    fn tariff(&self, goal: Goal, prices: &[f64]) -> Tariff {
        let own = f64::from(u8::from(goal == Goal::Replicas));
        let price = |g: &crate::milp::space::Group| own + prices[g.hardware.get()] * g.share.value();
        let reward = if goal == Goal::Accuracy { 1.0 } else { 0.0 };
        Tariff { replica: self.part().groups.iter().map(price).collect(), reward }
    }

    fn points(&self, budgets: &[f64]) -> Vec<Option<usize>> {
        self.part().groups.iter().map(|g| g.best_within(budgets[g.task.get()])).collect()
    }

    fn by_vectors(
        &self,
        problem: &Problem,
        stage: Stage<'_>,
        vectors: &[Vec<f64>],
        gap: f64,
        limits: &Limits,
    ) -> StageAnswer {
        let tariff = self.tariff(stage.goal, stage.prices.unwrap_or_default());
        let floor = |b: &Vec<f64>| Strategy::cheapest(self.part(), &self.points(b), &tariff).map(|s| s.cost);
        let mut order: Vec<(f64, &Vec<f64>)> = vectors.iter().filter_map(|b| Some((floor(b)?, b))).collect();
        order.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut best: Option<(f64, Choice)> = None;
        let mut bound = f64::INFINITY;
        let mut stopped = None;
        for (least, budgets) in order {
            let incumbent = best.as_ref().map(|b| b.0);
            // what a better plan would have to cost less than
            let cutoff = incumbent.map_or(f64::INFINITY, |i| i - (0.5 * gap * i.abs()).max(1e-9));
            if least >= cutoff {
                bound = bound.min(least);
                break;
            }
            match solve_stage(problem, &self.space, stage.within(budgets), gap, limits, incumbent) {
                StageAnswer::Found { choice, value, bound: own, stopped: why } => {
                    bound = bound.min(own.max(least));
                    stopped = stopped.or(why);
                    if incumbent.is_none_or(|i| value < i) {
                        best = Some((value, choice));
                    }
                }
                StageAnswer::Infeasible => {
                    let margin = |i: f64| least.max(i - (SMALL_GAP * gap * i.abs()).max(1e-9));
                    bound = bound.min(incumbent.map_or(f64::INFINITY, margin));
                }
                StageAnswer::Unknown(reason) => {
                    bound = bound.min(least);
                    stopped = Some(reason);
                }
            }
        }
        match best {
            Some((value, choice)) => StageAnswer::Found { choice, value, bound: bound.min(value), stopped },
            None => stopped.map_or(StageAnswer::Infeasible, StageAnswer::Unknown),
        }
    }

    /// A choice as a column; `own` is the pipeline's accuracy where it is known.
    pub fn column(&self, choice: Choice, goal: Goal, own: Option<f64>, limits: &Limits) -> Option<Column> {
        let unlimited = Limits { until: None, ..limits.clone() };
        let value = match goal {
            Goal::Accuracy => {
                let flows = || extract::flows(&self.problem, &self.space, &choice, &unlimited).ok().flatten();
                let accuracy = match own {
                    Some(own) => own,
                    None if self.weight <= 0.0 => 0.0,
                    None => extract::accuracy(self.part(), &flows()?[0]),
                };
                -self.weight * accuracy
            }
            Goal::Replicas => choice.replicas() as f64,
            Goal::Switching => {
                let each = self.part().groups.iter().zip(&choice.groups[0]);
                each.map(|(g, &(x, _))| g.switch_cost * f64::from(x.saturating_sub(g.deployed))).sum()
            }
            _ => 0.0,
        };
        let devices = self.devices(&choice.groups[0]);
        let groups = choice.groups.into_iter().next()?;
        Some(Column { groups, goal: value, devices })
    }

    /// Devices of each type that a choice of groups uses.
    pub fn devices(&self, groups: &[(u32, usize)]) -> Vec<f64> {
        let mut devices = vec![0.0; self.problem.hardware.len()];
        for (group, &(x, _)) in self.part().groups.iter().zip(groups) {
            devices[group.hardware.get()] += f64::from(x) * group.share.value();
        }
        devices
    }

    /// Plans without a solver: for each budget vector the cheapest strategy for the goal at these prices, rounded up. They
    /// are valued by `worth`.
    pub fn quick(&self, goal: Goal, prices: &[f64], worth: Goal, limits: &Limits) -> Vec<Column> {
        let pipeline = self.problem.pipeline(PipelineIndex(0));
        let tariff = self.tariff(goal, prices);
        let mut columns: Vec<Column> = Vec::new();
        for budgets in self.vectors.iter().flatten() {
            let points = self.points(budgets);
            let Some(strategy) = Strategy::cheapest(self.part(), &points, &tariff) else { continue };
            let Some((groups, accuracy)) = strategy.rounded(pipeline, self.part(), &points, &tariff) else { continue };
            if pipeline.min_accuracy.is_some_and(|floor| accuracy < floor - SLACK) {
                continue;
            }
            let column = self.column(Choice { groups: vec![groups] }, worth, Some(accuracy), limits);
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

/// Whether a plan is at least as good as another and needs no more.
pub(super) fn is_no_worse(a: &Column, b: &Column) -> bool {
    a.goal <= b.goal + 1e-12 && a.devices.iter().zip(&b.devices).all(|(x, y)| x <= y)
}
