//! What does every search of a stage know, and what does a plan cost there?

use super::points::GroupPoints;
use super::prices::{PartCandidates, PricedGoal, PricedRelaxation, PricedStage};
use super::programme::{ActivePart, BudgetProgramme, ProgrammeResult, TakenResources};
use crate::exact::model::tolerances::STAGE_GAP_SHARE;
use crate::exact::solution::choice::GroupChoice;
use apportion_domain::{Problem, SLACK};
use apportion_mip::RunLimits;

/// Entries of all tableaus that one programme may copy, if many programmes are tried.
pub(super) const ENTRIES_MAX: usize = 3_000_000;

/// Whether a step improved a plan.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Improvement {
    Found,
    None,
}

/// A plan of all pipelines.
#[derive(Clone, Debug)]
pub(super) struct StagePlan {
    /// By pipeline and group.
    pub groups: Vec<Vec<GroupChoice>>,
    /// By the goal, to be minimised.
    pub cost: f64,
    /// Weighted accuracy by pipeline.
    pub accuracy: Vec<f64>,
    /// The points of all groups by pipeline, also of those without replicas.
    pub points: Vec<GroupPoints>,
}

/// Result of a stage.
pub(super) enum StageEnd {
    Found {
        plan: StagePlan,
        bound: f64,
    },
    /// It is proven that there is no plan.
    Infeasible,
    NotFound,
}

/// One stage of the search.
pub(super) struct StageSearch<'a> {
    pub problem: &'a Problem,
    pub stage: PricedStage,
    pub parts: &'a [PartCandidates<'a>],
    pub gap: f64,
    pub limits: &'a RunLimits,
}

impl StageSearch<'_> {
    pub fn relaxation(&self) -> PricedRelaxation<'_> {
        PricedRelaxation { problem: self.problem, stage: self.stage, parts: self.parts }
    }

    /// The cost below which a bound is worth a search.
    pub fn worth_searching_below(&self, best: Option<&StagePlan>) -> f64 {
        match best {
            Some(best) if self.stage.goal == PricedGoal::Replicas => best.cost - 1.0 + 1e-6,
            Some(best) => best.cost - (STAGE_GAP_SHARE * self.gap * best.cost.abs()).max(1e-9),
            None => f64::INFINITY,
        }
    }

    /// One programme over all pipelines at these points, for plans that cost less than `cutoff`.
    pub fn solve_at(&self, points: &[&GroupPoints], cutoff: f64, entries_max: usize) -> ProgrammeResult {
        let active: Vec<ActivePart<'_>> =
            self.parts.iter().zip(points).map(|(p, points)| ActivePart { part: p.part, points }).collect();
        let hardware = self.problem.hardware.len();
        let taken = TakenResources { eighths: vec![0; hardware], accuracy: 0.0 };
        let free = vec![0.0; hardware];
        let programme = BudgetProgramme {
            problem: self.problem,
            stage: self.stage,
            device_prices: &free,
            active: &active,
            taken: &taken,
            entries_max,
        };
        programme.solve(self.gap, cutoff, self.limits)
    }

    /// Whether a plan keeps to the counts and the budget. The plans of fewest devices need not fit together.
    pub fn fits(&self, plan: &StagePlan) -> bool {
        let whole: Vec<u64> = self.taken_by_others(plan, &[]).eighths.iter().map(|e| e.div_ceil(8)).collect();
        let devices = || self.problem.hardware.iter().zip(&whole);
        let cost: f64 = devices().map(|(h, &n)| h.price_per_hour * n as f64).sum();
        let budget = self.problem.objective.budget_per_hour;
        devices().all(|(h, &n)| h.count.is_none_or(|count| n <= u64::from(count)))
            && budget.is_none_or(|b| cost <= b + SLACK * b.max(1.0))
    }

    /// Replaces the plans of some pipelines by their best ones at these points, if they cost less than `cutoff`. Returns
    /// their cost.
    pub fn replace(
        &self,
        plan: &mut StagePlan,
        who: &[usize],
        points: Vec<GroupPoints>,
        device_prices: &[f64],
        cutoff: f64,
    ) -> Option<f64> {
        let taken = self.taken_by_others(plan, who);
        let active: Vec<ActivePart<'_>> =
            who.iter().zip(&points).map(|(&p, points)| ActivePart { part: self.parts[p].part, points }).collect();
        let programme = BudgetProgramme {
            problem: self.problem,
            stage: self.stage,
            device_prices,
            active: &active,
            taken: &taken,
            entries_max: ENTRIES_MAX,
        };
        let found = programme.solve(self.gap, cutoff, self.limits).plan?;
        for (i, (&p, points)) in who.iter().zip(points).enumerate() {
            plan.groups[p].clone_from(&found.groups[i]);
            plan.accuracy[p] = found.accuracy[i];
            plan.points[p] = points;
        }
        Some(found.cost)
    }

    /// The cost of some pipelines in a plan, as their programme counts it.
    pub fn cost_of_active(&self, plan: &StagePlan, who: &[usize]) -> f64 {
        let replicas = |p: usize| plan.groups[p].iter().map(|c| f64::from(c.replicas)).sum::<f64>();
        match self.stage.goal {
            PricedGoal::Replicas => who.iter().map(|&p| replicas(p)).sum(),
            PricedGoal::Accuracy => -who.iter().map(|&p| plan.accuracy[p]).sum::<f64>(),
            PricedGoal::Nothing => f64::INFINITY,
            PricedGoal::Cost => {
                let others = (0..self.parts.len()).filter(|p| !who.contains(p));
                self.cost_of(plan) - others.map(|p| self.switching(plan, p)).sum::<f64>()
            }
        }
    }

    /// Cost of loading the replicas of one pipeline, where the stage counts it.
    fn switching(&self, plan: &StagePlan, p: usize) -> f64 {
        if self.stage.accuracy_min.is_some() {
            return 0.0;
        }
        let groups = self.parts[p].part.groups.iter().zip(&plan.groups[p]);
        groups.map(|(g, c)| g.switch_cost * f64::from(c.replicas.saturating_sub(g.deployed))).sum()
    }

    /// What all pipelines but some take up.
    pub fn taken_by_others(&self, plan: &StagePlan, who: &[usize]) -> TakenResources {
        let mut taken = TakenResources { eighths: vec![0; self.problem.hardware.len()], accuracy: 0.0 };
        for other in (0..self.parts.len()).filter(|other| !who.contains(other)) {
            taken.accuracy += plan.accuracy[other];
            for (group, choice) in self.parts[other].part.groups.iter().zip(&plan.groups[other]) {
                taken.eighths[group.hardware.get()] += u64::from(choice.replicas) * u64::from(group.share.eighths());
            }
        }
        taken
    }

    /// A plan with its cost by this stage's goal.
    pub fn revalued(&self, plan: StagePlan) -> StagePlan {
        StagePlan { cost: self.cost_of(&plan), ..plan }
    }

    /// The goal's value of a plan.
    pub fn cost_of(&self, plan: &StagePlan) -> f64 {
        match self.stage.goal {
            PricedGoal::Replicas => plan.groups.iter().flatten().map(|c| f64::from(c.replicas)).sum(),
            PricedGoal::Accuracy => -plan.accuracy.iter().sum::<f64>(),
            PricedGoal::Nothing => 0.0,
            PricedGoal::Cost => {
                let taken = self.taken_by_others(plan, &[]);
                let devices = self.problem.hardware.iter().zip(&taken.eighths);
                let cost: f64 = devices.map(|(h, e)| h.price_per_hour * e.div_ceil(8) as f64).sum();
                cost + (0..self.parts.len()).map(|p| self.switching(plan, p)).sum::<f64>()
            }
        }
    }
}
