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
    let vectors: Vec<_> = candidates.iter().map(|c| (-c.accuracy_max, c.budgets.as_slice())).collect();
    let reported = Some(ReportedFigure { name: "accuracy", factor: -1.0 });
    VectorSearch { problem, space, goal: Goal::Accuracy, gap, reported }.run(&vectors, limits)
}

/// The optimum of a goal of shortfalls: fewest devices of the only type ([`Goal::Devices`]), the largest share of the
/// demand on the devices that there are ([`Goal::Demand`]), or the highest accuracy there ([`Goal::AccuracyOf`]). `None`
/// for other goals, and if enumeration does not apply.
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
    if matches!(goal, Goal::AccuracyOf(_)) {
        let candidates = budget_candidates(problem, part, devices, limits)?;
        return Some(search_highest_accuracy(problem, space, &candidates, gap, limits));
    }
    let hardware = part.groups.first()?.hardware;
    // each replica takes a whole device
    let stage_goal = if goal == Goal::Devices(hardware) { Goal::Replicas } else { goal };
    let vectors = vectors_by_workers(problem, space, stage_goal, devices, limits)?;
    Some(VectorSearch { problem, space, goal: stage_goal, gap, reported: None }.run(&vectors, limits))
}

/// The least cost on one kind of device without costs of switching, which is that of the fewest replicas. `None` if
/// enumeration does not apply.
pub(crate) fn least_cost(problem: &Problem, space: &Space, gap: f64, limits: &RunLimits) -> Option<StageResult> {
    let devices = devices_if_applicable(problem, space)?;
    let part = &space.parts[0];
    if part.trie.merged || part.groups.iter().any(|g| g.switch_cost > 0.0) {
        return None;
    }
    let price = problem.hardware_at(part.groups.first()?.hardware).price_per_hour;
    let vectors = vectors_by_workers(problem, space, Goal::Replicas, devices, &limits.for_finishing())?;
    let reported = Some(ReportedFigure { name: "cost", factor: price });
    Some(match (VectorSearch { problem, space, goal: Goal::Replicas, gap, reported }).run(&vectors, limits) {
        StageResult::Found { choice, value, bound, stopped } => {
            StageResult::Found { choice, value: price * value, bound: price * bound, stopped }
        }
        other => other,
    })
}

/// What a search tells of each better plan: the value of its goal times a factor.
#[derive(Clone, Copy)]
struct ReportedFigure {
    name: &'static str,
    factor: f64,
}

/// The search for the least value of a goal over budget vectors.
struct VectorSearch<'a> {
    problem: &'a Problem,
    space: &'a Space,
    goal: Goal,
    gap: f64,
    /// `None` reports no plan.
    reported: Option<ReportedFigure>,
}

impl VectorSearch<'_> {
    /// Solves the vectors in their order. Each comes with a value that no plan within it is below, the least first.
    ///
    /// The bound is that of the solved vectors, or that of the first one that is left out. So it is within the gap of the
    /// value.
    fn run(&self, vectors: &[(f64, impl AsRef<[f64]>)], limits: &RunLimits) -> StageResult {
        let mut incumbent: Option<(f64, PlanIntegers)> = None;
        let (mut bound, mut stopped) = (f64::INFINITY, None);
        // a plan whose value is above this is no better than the incumbent
        let cutoff = |best: f64| best - STAGE_GAP_SHARE * self.gap * best.abs();
        // replicas are whole
        let rounded = |bound: f64| if self.goal == Goal::Replicas { (bound - 1e-6).ceil() } else { bound };
        for (least, budgets) in vectors {
            let (best, least) = (incumbent.as_ref().map(|(value, _)| *value), *least);
            if best.is_some_and(|best| least >= cutoff(best)) {
                bound = bound.min(least);
                break;
            }
            if let Some(reason) = limits.stop_reason()
                && (best.is_some() || limits.for_finishing().exceeded())
            {
                bound = bound.min(least);
                stopped = Some(reason);
                break;
            }
            let stage = Stage::new(self.goal).within_budgets(budgets.as_ref());
            match solve_stage(self.problem, self.space, stage, self.gap, limits, best) {
                StageResult::Found { choice, value, bound: own, stopped: why } => {
                    bound = bound.min(rounded(own).max(least));
                    stopped = stopped.or(why);
                    if best.is_none_or(|best| value < best) {
                        incumbent = Some((value, choice));
                        if let Some(ReportedFigure { name, factor }) = self.reported {
                            limits.report_progress(name, factor * value, factor * vectors[0].0);
                        }
                    }
                }
                // no plan there beats the incumbent by more than the gap
                StageResult::Infeasible => bound = best.map_or(bound, |best| bound.min(cutoff(best).max(least))),
                StageResult::Unknown(reason) => {
                    bound = bound.min(least);
                    stopped = Some(reason);
                }
            }
        }
        match (incumbent, stopped) {
            (Some((value, choice)), _) => StageResult::Found { choice, value, bound: bound.min(value), stopped },
            (None, Some(reason)) => StageResult::Unknown(reason),
            (None, None) => StageResult::Infeasible,
        }
    }
}

/// What is kept of each maximal budget vector and its envelope, if anything. `None` if there are too many vectors, or if
/// the time is up.
fn kept_vectors<T>(
    problem: &Problem,
    part: &PipelineSpace,
    limits: &RunLimits,
    keep: impl Fn(Vec<f64>, AccuracyEnvelope) -> Option<T>,
) -> Option<Vec<T>> {
    let mut kept = Vec::new();
    for budgets in budgets::list_maximal(problem.pipeline(part.index), part, limits)? {
        if limits.exceeded() {
            return None;
        }
        let envelope = AccuracyEnvelope::new(part, &points_within(part, &budgets));
        kept.extend(envelope.and_then(|envelope| keep(budgets, envelope)));
    }
    Some(kept)
}

/// The budget vectors that may have a plan, each with the least value of the goal within it: replicas, or minus the share
/// of the demand. `None` for another goal, if there are too many, or if the time is up.
///
/// A plan needs at least the workers of its vector's linear relaxation under the floor, and they grow in proportion to the
/// demand. The vector that needs the fewest comes first.
fn vectors_by_workers(
    problem: &Problem,
    space: &Space,
    goal: Goal,
    devices: f64,
    limits: &RunLimits,
) -> Option<Vec<(f64, Vec<f64>)>> {
    let (least_of, least_max): (fn(f64, f64) -> f64, f64) = match goal {
        Goal::Replicas => (|workers, _| (workers * (1.0 - SLACK) - SLACK).ceil(), devices),
        Goal::Demand(_) => (|workers, devices| -(devices / workers * (1.0 + SLACK)).min(1.0), f64::INFINITY),
        _ => return None,
    };
    let part = &space.parts[0];
    let floor = problem.pipeline(part.index).min_accuracy.unwrap_or(0.0) * (1.0 - ACCURACY_SLACK);
    let mut vectors = kept_vectors(problem, part, limits, |budgets, envelope| {
        let workers = envelope.workers_for(floor)?;
        (least_of(workers, devices) <= least_max).then_some((workers, budgets))
    })?;
    vectors.sort_by(|a, b| a.0.total_cmp(&b.0));
    Some(vectors.into_iter().map(|(workers, budgets)| (least_of(workers, devices), budgets)).collect())
}

/// The budget vectors that carry the demand on this many devices and may keep the floor, the most accurate bound first.
/// `None` if there are too many, or if the time is up.
pub(crate) fn budget_candidates(
    problem: &Problem,
    part: &PipelineSpace,
    devices: f64,
    limits: &RunLimits,
) -> Option<Vec<CandidateBudgets>> {
    let floor = problem.pipeline(part.index).min_accuracy.map_or(f64::NEG_INFINITY, |f| f * (1.0 - ACCURACY_SLACK));
    let mut candidates = kept_vectors(problem, part, limits, |budgets, envelope| {
        let accuracy_max = envelope.accuracy_at(devices)?;
        (accuracy_max >= floor).then_some(CandidateBudgets { budgets, envelope, accuracy_max })
    })?;
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
            let only = PipelineIndex(0);
            let goals = [
                (&limited, Goal::Demand(only)),
                (&unlimited, Goal::Devices(HardwareIndex(0))),
                (&limited, Goal::AccuracyOf(only)),
            ];
            for (problem, goal) in goals {
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
                let is_share = goal == Goal::Demand(only);
                below_all += usize::from(is_share && value.is_some_and(|v| v > -1.0 && v < 0.0));
            }
        }
        assert!(compared > DRAWN as usize, "{compared} compared");
        assert!(below_all > 10, "the demand is the limit in {below_all} only");
    }

    #[test]
    fn the_cheapest_plan_of_the_highest_accuracy_is_that_of_the_whole_formulation() {
        let limits = RunLimits::new(Arc::new(Duration::default));
        let (mut plans, mut infeasible) = (0, 0);
        for seed in 0..DRAWN {
            let floor = (seed % 3 == 0).then_some(0.8);
            let problem = drawn::problem(71_000 + seed, &shape(6 + 2 * (seed % 12) as u32, floor));
            let Ok(space) = Space::new(&problem, &Tightening::none(&problem), &limits) else { continue };
            let found = match most_accurate(&problem, &space, GAP, &limits) {
                Some(StageResult::Found { choice, value, stopped: None, .. }) => Some((value, choice.replicas())),
                Some(StageResult::Infeasible) => None,
                _ => continue,
            };
            let expected = slow(&problem, &space, Goal::Accuracy, &limits);
            assert_eq!(found.is_some(), expected.is_some(), "seed {seed}");
            let (Some((value, replicas)), Some(expected)) = (found, expected) else {
                infeasible += 1;
                continue;
            };
            assert!((value - expected).abs() <= 1e-5, "seed {seed}: {value} instead of {expected}");
            let least = -value * (1.0 - ACCURACY_SLACK);
            let stage = Stage { accuracy_min: Some(least), ..Stage::new(Goal::Cost) };
            // a device costs 1
            match solve_stage(&problem, &space, stage, GAP, &limits, None) {
                StageResult::Found { value: cost, .. } => {
                    assert!((replicas as f64 - cost).abs() < 1e-6, "seed {seed}: {replicas} instead of {cost}");
                }
                _ => panic!("seed {seed}: the plan itself costs {replicas}"),
            }
            plans += 1;
        }
        assert!(plans > 20 && infeasible > 3, "{plans} plans, {infeasible} without one");
    }

    #[test]
    fn the_least_cost_is_that_of_the_whole_formulation() {
        let limits = RunLimits::new(Arc::new(Duration::default));
        let (mut plans, mut infeasible) = (0, 0);
        for seed in 0..DRAWN {
            let floor = (seed % 3 > 0).then_some(0.8);
            let drawn = drawn::problem(72_000 + seed, &shape(6 + 2 * (seed % 12) as u32, floor));
            let problem = drawn.changed(|d| d.hardware[0].price_per_hour = 0.7).expect("a price");
            let Ok(space) = Space::new(&problem, &Tightening::none(&problem), &limits) else { continue };
            let found = match least_cost(&problem, &space, GAP, &limits) {
                Some(StageResult::Found { value, bound, stopped: None, .. }) => {
                    assert!(bound <= value && bound >= value - 1e-5 * value, "seed {seed}: {bound} {value}");
                    Some(value)
                }
                Some(StageResult::Infeasible) => None,
                _ => continue,
            };
            let expected = slow(&problem, &space, Goal::CostAndSwitching, &limits);
            let difference = found.unwrap_or(0.0) - expected.unwrap_or(0.0);
            let agrees = found.is_some() == expected.is_some() && difference.abs() < 1e-5;
            assert!(agrees, "seed {seed}: {found:?} instead of {expected:?}");
            plans += usize::from(found.is_some());
            infeasible += usize::from(found.is_none());
        }
        assert!(plans > 20 && infeasible > 3, "{plans} plans, {infeasible} without one");
    }
}
