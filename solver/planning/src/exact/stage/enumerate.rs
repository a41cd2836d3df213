//! How is one pipeline on one kind of device solved? By its maximal budget vectors, in the order of their bounds.
//!
//! A budget vector fixes the operating point of every variant. The rest is a small programme over replicas and flows. Its
//! linear relaxation has a closed form ([`AccuracyEnvelope`]). A vector is solved only if its bound beats the incumbent, so
//! most vectors are never solved.

use super::envelope::AccuracyEnvelope;
use super::solve::{StageResult, solve_stage};
use crate::exact::model::budgets;
use crate::exact::model::goal::{Goal, Stage};
use crate::exact::model::space::{PipelineSpace, Space};
use crate::exact::model::tolerances::{ACCURACY_SLACK, STAGE_GAP_SHARE};
use crate::exact::solution::choice::{GroupChoice, PlanIntegers};
use crate::exact::solution::trim::replicas_for;
use apportion_domain::{LatencyRule, Problem, SLACK, Share};
use apportion_mip::RunLimits;

/// One budget vector with its bound.
#[derive(Clone, Debug)]
pub(crate) struct CandidateBudgets {
    pub budgets: Vec<f64>,
    pub envelope: AccuracyEnvelope,
    /// No plan within the devices is more accurate.
    pub accuracy_max: f64,
}

/// The number of devices, if enumeration applies: [`one_kind_of_device`], and a rule that is the same as `task_budget`.
pub(crate) fn devices_if_applicable(problem: &Problem, space: &Space) -> Option<f64> {
    let devices = one_kind_of_device(problem, space)?;
    let part = &space.parts[0];
    let pipeline = problem.pipeline(part.index);
    // if every edge makes queries and each task has one variant, both latency rules are equal
    let same_rule = part.rule == LatencyRule::TaskBudget
        || (part.trie.nodes.len() == pipeline.tasks.len() && pipeline.edges.iter().all(|e| e.primary));
    same_rule.then_some(devices)
}

/// The number of devices of one pipeline on whole devices of one kind, with one group for each variant, no losses to
/// survive, no budget and no quota. `None` for other problems; infinite if the devices are not counted.
pub(crate) fn one_kind_of_device(problem: &Problem, space: &Space) -> Option<f64> {
    let [part] = space.parts.as_slice() else { return None };
    let first = part.groups.first()?;
    let alike = part.groups.iter().all(|g| g.hardware == first.hardware && g.share == Share::WHOLE);
    let single = part.by_variant.iter().flatten().all(|groups| groups.len() <= 1);
    let limited = problem.objective.budget_per_hour.is_some() || !problem.quotas.is_empty();
    let plain = problem.pipeline(part.index).survive == 0 && !limited;
    (alike && single && plain).then(|| problem.hardware_at(first.hardware).count.map_or(f64::INFINITY, f64::from))
}

/// The operating point of each group within these budgets.
fn points_within(part: &PipelineSpace, budgets: &[f64]) -> Vec<Option<usize>> {
    part.groups.iter().map(|g| g.best_within(budgets[g.task.get()])).collect()
}

/// Step 1 in closed form: with one best variant for each task, a vector needs `sum of ceil(D m_i / q_i)` replicas.
/// `None` if enumeration does not apply.
pub(crate) fn fewest_replicas(problem: &Problem, space: &Space, limits: &RunLimits) -> Option<StageResult> {
    let devices = devices_if_applicable(problem, space)?;
    let part = &space.parts[0];
    let pipeline = problem.pipeline(part.index);
    let one_each = part.by_variant.iter().all(|variants| variants.iter().filter(|g| !g.is_empty()).count() == 1);
    if !one_each || part.trie.nodes.len() != pipeline.tasks.len() || pipeline.min_accuracy.is_some() {
        return None;
    }
    let mut best: Option<(u64, PlanIntegers)> = None;
    for budgets in budgets::list_maximal(pipeline, part, limits)? {
        let mut groups = vec![GroupChoice::default(); part.groups.len()];
        for node in &part.trie.nodes {
            let g = part.by_variant[node.task.get()][node.variant.get()][0];
            let point = part.groups[g].best_within(budgets[node.task.get()])?;
            let needed = replicas_for(node.load_qps, part.groups[g].points[point].qps);
            let replicas = needed.max(pipeline.task(node.task).min_replicas);
            groups[g] = GroupChoice { replicas, point };
        }
        let choice = PlanIntegers { groups: vec![groups] };
        let replicas = choice.replicas();
        if replicas as f64 <= devices && best.as_ref().is_none_or(|(fewest, _)| replicas < *fewest) {
            best = Some((replicas, choice));
        }
    }
    Some(match best {
        Some((replicas, choice)) => {
            StageResult::Found { choice, value: replicas as f64, bound: replicas as f64, stopped: None }
        }
        None => StageResult::Infeasible,
    })
}

/// Steps 2 and 3: the highest accuracy, then the fewest replicas that keep it. Value and bound are negated accuracies.
/// `None` if enumeration does not apply.
pub(crate) fn most_accurate(problem: &Problem, space: &Space, gap: f64, limits: &RunLimits) -> Option<StageResult> {
    let devices = devices_if_applicable(problem, space)?;
    let part = &space.parts[0];
    if part.trie.merged {
        return None;
    }
    let candidates = budget_candidates(problem, part, devices, &limits.for_finishing())?;
    let answer = search_highest_accuracy(problem, space, &candidates, gap, limits);
    Some(match answer {
        StageResult::Found { choice, value, bound, stopped: None } => {
            let choice = reduce_replicas(problem, space, &candidates, -value, choice, limits);
            StageResult::Found { choice, value, bound, stopped: None }
        }
        other => other,
    })
}

/// Step 2 alone, over candidates in the order of their bounds.
pub(crate) fn search_highest_accuracy(
    problem: &Problem,
    space: &Space,
    candidates: &[CandidateBudgets],
    gap: f64,
    limits: &RunLimits,
) -> StageResult {
    let mut incumbent: Option<(f64, PlanIntegers)> = None;
    let mut bound = f64::NEG_INFINITY;
    let mut stopped = None;
    let small = STAGE_GAP_SHARE * gap;
    for candidate in candidates {
        let best = incumbent.as_ref().map(|(accuracy, _)| *accuracy);
        if best.is_some_and(|best| candidate.accuracy_max <= best * (1.0 + small)) {
            bound = bound.max(candidate.accuracy_max);
            break;
        }
        if let Some(reason) = limits.stop_reason()
            && (best.is_some() || limits.for_finishing().exceeded())
        {
            bound = bound.max(candidate.accuracy_max);
            stopped = Some(reason);
            break;
        }
        let stage = Stage::new(Goal::Accuracy).within_budgets(&candidate.budgets);
        match solve_stage(problem, space, stage, gap, limits, best.map(|a| -a)) {
            StageResult::Found { choice, value, bound: own, stopped: why } => {
                bound = bound.max((-own).min(candidate.accuracy_max));
                stopped = stopped.or(why);
                if best.is_none_or(|best| -value > best) {
                    incumbent = Some((-value, choice));
                    limits.report_progress("accuracy", -value, candidates[0].accuracy_max);
                }
            }
            // no solution there beats the incumbent by more than the gap
            StageResult::Infeasible => {
                bound = best.map_or(bound, |best| bound.max(candidate.accuracy_max.min(best * (1.0 + small))));
            }
            StageResult::Unknown(reason) => {
                bound = bound.max(candidate.accuracy_max);
                stopped = Some(reason);
            }
        }
    }
    let Some((accuracy, choice)) = incumbent else {
        return stopped.map_or(StageResult::Infeasible, StageResult::Unknown);
    };
    StageResult::Found { choice, value: -accuracy, bound: -bound.max(accuracy), stopped }
}

/// The optimum of a goal of shortfalls: fewest devices of the only type ([`Goal::Devices`]), or the largest share of the
/// demand on the devices that there are ([`Goal::Demand`]). `None` for other goals, and if enumeration does not apply.
///
/// The envelope of a vector bounds both: a plan needs at least the workers of its linear relaxation, and they grow in
/// proportion to the demand. The bound of all vectors is that of the solved ones, or that of the first one that is left
/// out: so it is within the gap of the value.
pub(crate) fn optimum_of_shortfall(
    problem: &Problem,
    space: &Space,
    goal: Goal,
    gap: f64,
    limits: &RunLimits,
) -> Option<StageResult> {
    let devices = devices_if_applicable(problem, space)?;
    let part = &space.parts[0];
    if part.trie.merged {
        return None;
    }
    let hardware = part.groups.first()?.hardware;
    // each replica takes a whole device
    let stage_goal = if goal == Goal::Devices(hardware) { Goal::Replicas } else { goal };
    // of a plan whose relaxation needs so many workers
    let least_cost = |workers: f64| match stage_goal {
        Goal::Replicas => Some((workers * (1.0 - SLACK) - SLACK).ceil()),
        Goal::Demand(_) => Some(-(devices / workers * (1.0 + SLACK)).min(1.0)),
        _ => None,
    };
    least_cost(1.0)?;
    let mut candidates: Vec<(f64, Vec<f64>)> = Vec::new();
    for budgets in budgets::list_maximal(problem.pipeline(part.index), part, limits)? {
        if limits.exceeded() {
            return None;
        }
        let envelope = AccuracyEnvelope::new(part, &points_within(part, &budgets));
        candidates.extend(envelope.and_then(|e| least_cost(e.workers_min())).map(|cost| (cost, budgets)));
    }
    candidates.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut incumbent: Option<(f64, PlanIntegers)> = None;
    let mut bound = f64::INFINITY;
    // a plan that costs more than this is no better than the incumbent
    let cutoff = |best: f64| best - STAGE_GAP_SHARE * gap * best.abs();
    // replicas are whole
    let rounded = |bound: f64| if stage_goal == Goal::Replicas { (bound - 1e-6).ceil() } else { bound };
    for (least, budgets) in &candidates {
        let best = incumbent.as_ref().map(|(cost, _)| *cost);
        if best.is_some_and(|best| *least >= cutoff(best)) {
            bound = bound.min(*least);
            break;
        }
        match solve_stage(problem, space, Stage::new(stage_goal).within_budgets(budgets), gap, limits, best) {
            StageResult::Found { choice, value, bound: own, stopped: None } => {
                bound = bound.min(rounded(own).max(*least));
                incumbent = Some((value, choice));
            }
            StageResult::Infeasible => bound = best.map_or(bound, |best| bound.min(cutoff(best).max(*least))),
            StageResult::Found { stopped: Some(reason), .. } | StageResult::Unknown(reason) => {
                return Some(StageResult::Unknown(reason));
            }
        }
    }
    Some(match incumbent {
        Some((value, choice)) => StageResult::Found { choice, value, bound: bound.min(value), stopped: None },
        None => StageResult::Infeasible,
    })
}

/// The budget vectors that carry the demand on this many devices, the most accurate bound first. `None` if there are too
/// many, or if the time is up.
pub(crate) fn budget_candidates(
    problem: &Problem,
    part: &PipelineSpace,
    devices: f64,
    limits: &RunLimits,
) -> Option<Vec<CandidateBudgets>> {
    let mut candidates = Vec::new();
    for budgets in budgets::list_maximal(problem.pipeline(part.index), part, limits)? {
        if limits.exceeded() {
            return None;
        }
        let Some(envelope) = AccuracyEnvelope::new(part, &points_within(part, &budgets)) else { continue };
        if let Some(accuracy_max) = envelope.accuracy_at(devices) {
            candidates.push(CandidateBudgets { budgets, envelope, accuracy_max });
        }
    }
    candidates.sort_by(|a, b| b.accuracy_max.total_cmp(&a.accuracy_max));
    Some(candidates)
}

/// Step 3: fewest replicas with accuracy of at least `accuracy * (1 - 1e-6)`.
pub(crate) fn reduce_replicas(
    problem: &Problem,
    space: &Space,
    candidates: &[CandidateBudgets],
    accuracy: f64,
    mut choice: PlanIntegers,
    limits: &RunLimits,
) -> PlanIntegers {
    let least = accuracy * (1.0 - ACCURACY_SLACK);
    for candidate in candidates {
        let fewest = choice.replicas() as f64;
        let workers = candidate.envelope.workers_for(least);
        if workers.is_none_or(|w| (w - 1e-6).ceil() >= fewest) {
            continue;
        }
        let stage = Stage { accuracy_min: Some(least), ..Stage::new(Goal::Replicas).within_budgets(&candidate.budgets) };
        match solve_stage(problem, space, stage, 0.0, limits, Some(fewest)) {
            StageResult::Found { choice: other, .. } if other.replicas() < choice.replicas() => choice = other,
            StageResult::Unknown(reason) if reason.is_limit() => break,
            _ => {}
        }
    }
    choice
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::drawn::{self, ProblemShape, ShapeHardware};
    use crate::exact::model::tightening::Tightening;
    use apportion_domain::{HardwareIndex, Objective, PipelineIndex};
    use std::sync::Arc;
    use std::time::Duration;

    const GAP: f64 = 1e-6;
    const DRAWN: u64 = 60;

    fn shape(devices: u32, min_accuracy: Option<f64>) -> ProblemShape {
        ProblemShape {
            pipelines: 1,
            tasks_max: 3,
            variants_max: 4,
            batches: 4,
            hardware: vec![ShapeHardware { price_per_hour: 1.0, count: Some(devices), speed: 1.0 }],
            halves: false,
            demand_qps: 900.0,
            min_accuracy,
            objective: Objective { latency_rule: LatencyRule::TaskBudget, ..Objective::default() },
        }
    }

    /// The value of the whole formulation; `None` if it is infeasible.
    fn slow(problem: &Problem, space: &Space, goal: Goal, limits: &RunLimits) -> Option<f64> {
        match solve_stage(problem, space, Stage::new(goal), GAP, limits, None) {
            StageResult::Found { value, stopped: None, .. } => Some(value),
            StageResult::Infeasible => None,
            _ => panic!("the whole formulation ends"),
        }
    }

    #[test]
    fn optima_of_shortfalls_are_those_of_the_whole_formulation() {
        let limits = RunLimits::new(Arc::new(Duration::default));
        let (mut compared, mut below_all) = (0, 0);
        for seed in 0..DRAWN {
            let floor = (seed % 3 == 0).then_some(0.8);
            let limited = drawn::problem(70_000 + seed, &shape(3 + (seed % 9) as u32, floor));
            let unlimited = limited.changed(|d| d.hardware[0].count = None).expect("a count may be left out");
            for (problem, goal) in
                [(&limited, Goal::Demand(PipelineIndex(0))), (&unlimited, Goal::Devices(HardwareIndex(0)))]
            {
                let Ok(space) = Space::new(problem, &Tightening::none(problem), &limits) else { continue };
                let value = match optimum_of_shortfall(problem, &space, goal, GAP, &limits) {
                    Some(StageResult::Found { value, bound, stopped: None, .. }) => {
                        assert!(bound <= value + 1e-9, "seed {seed}, {goal:?}: {bound} {value}");
                        assert!(bound >= value - 1e-5 * value.abs(), "seed {seed}, {goal:?}: {bound} is far below {value}");
                        Some(value)
                    }
                    Some(StageResult::Infeasible) => None,
                    _ => continue,
                };
                let expected = slow(problem, &space, goal, &limits);
                let agrees = match (value, expected) {
                    (Some(value), Some(expected)) => (value - expected).abs() <= 1e-5 * expected.abs(),
                    (value, expected) => value == expected,
                };
                assert!(agrees, "seed {seed}, {goal:?}: {value:?}, and {expected:?} by the whole formulation");
                compared += 1;
                below_all += usize::from(value.is_some_and(|v| v > -1.0 && v < 0.0));
            }
        }
        assert!(compared > DRAWN as usize, "{compared} compared");
        assert!(below_all > 10, "the demand is the limit in {below_all} only");
    }
}
