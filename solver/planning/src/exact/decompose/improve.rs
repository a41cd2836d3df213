//! Can one pipeline do better on the devices that the others leave? Each pipeline in turn gets its best plan there.

use super::joint::{JointBounds, JointPlan, JointProblem};
use super::sub::{Column, PricedQuestion, Subproblem};
use crate::exact::model::goal::Goal;
use crate::exact::model::tolerances::ACCURACY_SLACK;
use apportion_domain::{DeviceQuota, PipelineIndex, Problem};

/// Most passes over all pipelines.
const PASSES_MAX: usize = 4;

/// The devices and the budget that the other pipelines leave to one pipeline.
pub(super) struct RemainingResources {
    /// The pipeline's problem on the unused whole devices, with the remaining budget and quotas.
    problem: Problem,
    /// Unused parts of devices that others pay for.
    free: Vec<f64>,
}

impl RemainingResources {
    /// A question on these devices, to be completed.
    fn question(&self) -> PricedQuestion<'_> {
        let (room, free) = (Some(&self.problem), Some(self.free.as_slice()));
        PricedQuestion { goal: Goal::Nothing, worth: Goal::Nothing, prices: &[], accuracy_min: None, room, free, gap: 0.0 }
    }
}

/// Improves a plan until it is proven or nothing improves, then breaks ties.
pub(super) fn improve(joint: &JointProblem<'_>, known: &mut JointBounds, mut best: JointPlan) -> JointPlan {
    for _ in 0..PASSES_MAX {
        if known.is_proven(&best, joint.gap) || joint.limits.exceeded() {
            break;
        }
        let before = best.value;
        for p in 0..joint.subs.len() {
            best = best_response(joint, known, best, p);
        }
        if let Some(combined) = known.best_combination(joint).filter(|c| c.value < best.value - 1e-12) {
            best = combined;
        }
        if best.value >= before - (0.01 * joint.gap * before.abs()).max(1e-12) {
            break;
        }
    }
    if joint.limits.exceeded() { best } else { break_ties(joint, best) }
}

/// Replaces the plan of one pipeline by its best plan on the devices that the others leave.
fn best_response(joint: &JointProblem<'_>, known: &mut JointBounds, mut whole: JointPlan, p: usize) -> JointPlan {
    let sub = &joint.subs[p];
    let Some(room) = room_left_to(joint, &whole, p) else { return whole };
    let zero = vec![0.0; room.free.len()];
    // the joint goal itself: whole devices beyond those that the others pay for
    let goal = if joint.goal == Goal::Switching { Goal::CostAndSwitching } else { joint.goal };
    let question =
        PricedQuestion { goal, worth: joint.goal, prices: &zero, accuracy_min: None, gap: joint.gap, ..room.question() };
    let Some(column) = sub.solve(question, joint.limits).column else { return whole };
    known.master.add(p, column.clone());
    let old = std::mem::replace(&mut whole.columns[p], column);
    match joint.join(whole.columns.clone()) {
        Some(better) if better.value < whole.value - 1e-12 => better,
        _ => {
            whole.columns[p] = old;
            whole
        }
    }
}

/// Minimises the goal that breaks ties, one pipeline after the other.
fn break_ties(joint: &JointProblem<'_>, mut whole: JointPlan) -> JointPlan {
    if joint.second.is_none() {
        return whole;
    }
    for p in 0..joint.subs.len() {
        let Some(room) = room_left_to(joint, &whole, p) else { continue };
        let column = break_ties_of_column(joint, &joint.subs[p], whole.columns[p].clone(), Some(&room));
        let mut columns = whole.columns.clone();
        columns[p] = column;
        whole = joint.join(columns).unwrap_or(whole);
    }
    whole
}

/// A plan of the same accuracy that costs less or has fewer replicas, or else this plan.
pub(super) fn break_ties_of_column(
    joint: &JointProblem<'_>,
    sub: &Subproblem,
    column: Column,
    room: Option<&RemainingResources>,
) -> Column {
    let Some(second) = joint.second.filter(|_| joint.goal == Goal::Accuracy) else { return column };
    let shared = &joint.shared;
    let zero = vec![0.0; shared.price.len()];
    let (goal, prices) = match second {
        Goal::Replicas => (Goal::Replicas, &zero),
        _ => (Goal::Nothing, &shared.price),
    };
    let accuracy = -column.goal / sub.weight.max(f64::MIN_POSITIVE);
    let accuracy_min = (sub.weight > 0.0).then_some(accuracy * (1.0 - ACCURACY_SLACK));
    // whole replicas need no gap; costs come in whole devices
    let (room, free) = (room.map(|r| &r.problem), room.map(|r| r.free.as_slice()));
    let question = PricedQuestion { goal, worth: joint.goal, prices, accuracy_min, room, free, gap: joint.gap };
    let found = sub.solve(question, joint.limits).column;
    let spent = |c: &Column| match second {
        Goal::Replicas => c.groups.iter().map(|g| f64::from(g.replicas)).sum::<f64>(),
        _ => c.devices.iter().zip(&shared.price).map(|(d, p)| d.ceil() * p).sum(),
    };
    let keeps = |c: &Column| c.goal <= column.goal + 2.0 * ACCURACY_SLACK * column.goal.abs();
    found.filter(|c| spent(c) < spent(&column) && keeps(c)).unwrap_or(column)
}

/// The devices that the others leave to one pipeline; `None` if the budget is spent.
fn room_left_to(joint: &JointProblem<'_>, whole: &JointPlan, p: usize) -> Option<RemainingResources> {
    let sub = &joint.subs[p];
    let mut others = vec![0.0; joint.problem.hardware.len()];
    for (_, column) in whole.columns.iter().enumerate().filter(|(other, _)| *other != p) {
        others.iter_mut().zip(&column.devices).for_each(|(sum, d)| *sum += d);
    }
    let left = |(h, used): (&apportion_domain::Hardware, &f64)| {
        h.count.map(|count| (f64::from(count) - used.ceil()).max(0.0) as u32)
    };
    let counts: Vec<Option<u32>> = joint.problem.hardware.iter().zip(&others).map(left).collect();
    let spent: f64 = others.iter().zip(&joint.shared.price).map(|(d, p)| d.ceil() * p).sum();
    let budget = joint.problem.objective.budget_per_hour.map(|b| b - spent);
    let free = others.iter().map(|d| d.ceil() - d).collect();
    let quotas = quotas_left_to(joint, whole, p);
    budget.is_none_or(|b| b >= 0.0).then(|| {
        let room = sub.with_room(&counts, budget).changed(|draft| draft.quotas = quotas);
        RemainingResources { problem: room.expect("smaller quotas are valid"), free }
    })
}

/// The quotas of a pipeline without the whole devices that the others in them have.
fn quotas_left_to(joint: &JointProblem<'_>, whole: &JointPlan, p: usize) -> Vec<DeviceQuota> {
    let mut all = joint.subs[p].problem.quotas.clone();
    let own = joint.problem.quotas.iter().filter(|quota| quota.pipelines.contains(&PipelineIndex(p)));
    for (quota, left) in own.zip(&mut all) {
        for other in quota.pipelines.iter().filter(|other| other.get() != p) {
            let devices: Vec<f64> = whole.columns[other.get()].devices.iter().map(|d| d.ceil()).collect();
            for (count, used) in left.counts.iter_mut().zip(&devices) {
                *count = count.map(|count| count.saturating_sub(*used as u32));
            }
            let used = devices.iter().sum::<f64>() as u32;
            left.devices = left.devices.map(|most| most.saturating_sub(used));
            let cost: f64 = devices.iter().zip(&joint.shared.price).map(|(used, price)| used * price).sum();
            left.cost_per_hour = left.cost_per_hour.map(|most| (most - cost).max(0.0));
        }
    }
    all
}
