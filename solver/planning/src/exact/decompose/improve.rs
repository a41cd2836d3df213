//! Can one pipeline do better on the devices that the others leave? Each pipeline in turn gets its best plan there.

use super::joint::{JointPlan, JointProblem};
use super::sub::{Column, PricedQuestion, Subproblem};
use crate::exact::model::goal::Goal;
use crate::exact::model::tolerances::ACCURACY_SLACK;
use apportion_domain::Problem;

/// Most passes over all pipelines.
const PASSES_MAX: usize = 4;

/// The devices and the budget that the other pipelines leave to one pipeline.
pub(super) struct Room {
    /// The pipeline's problem on the unused whole devices, with the remaining budget.
    problem: Problem,
    /// Unused parts of devices that others pay for.
    free: Vec<f64>,
}

impl Room {
    /// A question on these devices, to be completed.
    fn question(&self) -> PricedQuestion<'_> {
        let (room, free) = (Some(&self.problem), Some(self.free.as_slice()));
        PricedQuestion { goal: Goal::Nothing, worth: Goal::Nothing, prices: &[], accuracy_min: None, room, free, gap: 0.0 }
    }
}

impl JointProblem<'_> {
    /// Improves a plan until it is proven or nothing improves, then breaks ties.
    pub fn improve(&mut self, mut best: JointPlan) -> JointPlan {
        for _ in 0..PASSES_MAX {
            if self.is_proven(&best) || self.limits.exceeded() {
                break;
            }
            let before = best.value;
            for p in 0..self.subs.len() {
                best = self.best_response(best, p);
            }
            if let Some(combined) = self.best_combination().filter(|c| c.value < best.value - 1e-12) {
                best = combined;
            }
            if best.value >= before - (0.01 * self.gap * before.abs()).max(1e-12) {
                break;
            }
        }
        if self.limits.exceeded() { best } else { self.break_ties(best) }
    }

    /// Replaces the plan of one pipeline by its best plan on the devices that the others leave.
    fn best_response(&mut self, mut whole: JointPlan, p: usize) -> JointPlan {
        let sub = &self.subs[p];
        let Some(room) = self.room(&whole, p) else { return whole };
        let zero = vec![0.0; room.free.len()];
        // the joint goal itself: whole devices beyond those that the others pay for
        let goal = if self.goal == Goal::Switching { Goal::CostAndSwitching } else { self.goal };
        let question =
            PricedQuestion { goal, worth: self.goal, prices: &zero, accuracy_min: None, gap: self.gap, ..room.question() };
        let Some(column) = sub.solve(question, self.limits).column else { return whole };
        self.master.add(p, column.clone());
        let old = std::mem::replace(&mut whole.columns[p], column);
        match self.joined(whole.columns.clone()) {
            Some(better) if better.value < whole.value - 1e-12 => better,
            _ => {
                whole.columns[p] = old;
                whole
            }
        }
    }

    /// Minimises the goal that breaks ties, one pipeline after the other.
    fn break_ties(&self, mut whole: JointPlan) -> JointPlan {
        if self.second.is_none() {
            return whole;
        }
        for p in 0..self.subs.len() {
            let Some(room) = self.room(&whole, p) else { continue };
            let column = self.break_ties_of_column(&self.subs[p], whole.columns[p].clone(), Some(&room));
            let mut columns = whole.columns.clone();
            columns[p] = column;
            whole = self.joined(columns).unwrap_or(whole);
        }
        whole
    }

    /// A plan of the same accuracy that costs less or has fewer replicas, or else this plan.
    pub fn break_ties_of_column(&self, sub: &Subproblem, column: Column, room: Option<&Room>) -> Column {
        let Some(second) = self.second.filter(|_| self.goal == Goal::Accuracy) else { return column };
        let shared = &self.master.shared;
        let zero = vec![0.0; shared.price.len()];
        let (goal, prices) = match second {
            Goal::Replicas => (Goal::Replicas, &zero),
            _ => (Goal::Nothing, &shared.price),
        };
        let accuracy = -column.goal / sub.weight.max(f64::MIN_POSITIVE);
        let accuracy_min = (sub.weight > 0.0).then_some(accuracy * (1.0 - ACCURACY_SLACK));
        // whole replicas need no gap; costs come in whole devices
        let (room, free) = (room.map(|r| &r.problem), room.map(|r| r.free.as_slice()));
        let question = PricedQuestion { goal, worth: self.goal, prices, accuracy_min, room, free, gap: self.gap };
        let found = sub.solve(question, self.limits).column;
        let spent = |c: &Column| match second {
            Goal::Replicas => c.groups.iter().map(|g| f64::from(g.replicas)).sum::<f64>(),
            _ => c.devices.iter().zip(&shared.price).map(|(d, p)| d.ceil() * p).sum(),
        };
        let keeps = |c: &Column| c.goal <= column.goal + 2.0 * ACCURACY_SLACK * column.goal.abs();
        found.filter(|c| spent(c) < spent(&column) && keeps(c)).unwrap_or(column)
    }

    /// The devices that the others leave to one pipeline; `None` if the budget is spent.
    fn room(&self, whole: &JointPlan, p: usize) -> Option<Room> {
        let sub = &self.subs[p];
        let mut others = vec![0.0; self.problem.hardware.len()];
        for (_, column) in whole.columns.iter().enumerate().filter(|(other, _)| *other != p) {
            others.iter_mut().zip(&column.devices).for_each(|(sum, d)| *sum += d);
        }
        let left = |(h, used): (&apportion_domain::Hardware, &f64)| {
            h.count.map(|count| (f64::from(count) - used.ceil()).max(0.0) as u32)
        };
        let counts: Vec<Option<u32>> = self.problem.hardware.iter().zip(&others).map(left).collect();
        let spent: f64 = others.iter().zip(&self.master.shared.price).map(|(d, p)| d.ceil() * p).sum();
        let budget = self.problem.objective.budget_per_hour.map(|b| b - spent);
        let free = others.iter().map(|d| d.ceil() - d).collect();
        budget.is_none_or(|b| b >= 0.0).then(|| Room { problem: sub.with_room(&counts, budget), free })
    }
}
