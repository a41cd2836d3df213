//! How can the SLO be divided among the tasks? By budget vectors, one budget for each task.
//!
//! Only maximal vectors matter, because a larger budget never hurts.

use super::latency::{finish_times, optional_tasks};
use super::space::PipelineSpace;
use apportion_domain::{LatencyRule, Pipeline, SLACK, TaskIndex};
use apportion_mip::RunLimits;

/// Most vectors that are enumerated. Beyond it the formulation chooses budgets with binaries.
pub(crate) const VECTORS_MAX: usize = 400;
/// Most candidates that are tested for maximality.
const CANDIDATES_MAX: usize = 200_000;

/// Candidates between two checks of the limits.
const CANDIDATES_PER_CHECK: usize = 256;

/// All maximal budget vectors in charges by task, or `None` if there are more than [`VECTORS_MAX`], or time is up first.
pub(crate) fn list_maximal(pipeline: &Pipeline, part: &PipelineSpace, limits: &RunLimits) -> Option<Vec<Vec<f64>>> {
    list_at_most(VECTORS_MAX, pipeline, part, limits)
}

/// All maximal budget vectors, or `None` if there are more than `vectors_max`, or time is up first.
pub(crate) fn list_at_most(
    vectors_max: usize,
    pipeline: &Pipeline,
    part: &PipelineSpace,
    limits: &RunLimits,
) -> Option<Vec<Vec<f64>>> {
    if optional_tasks(pipeline).iter().any(|&o| o) {
        return None;
    }
    let inner: Vec<TaskIndex> =
        pipeline.order().iter().copied().filter(|&t| pipeline.edges_from(t).next().is_some()).collect();
    let candidates: usize =
        inner.iter().try_fold(1_usize, |n, t| n.checked_mul(part.levels[t.get()].len())).unwrap_or(usize::MAX);
    if candidates > CANDIDATES_MAX {
        return None;
    }
    let mut vectors = Vec::new();
    for code in 0..candidates {
        if code.is_multiple_of(CANDIDATES_PER_CHECK) && limits.exceeded() {
            return None;
        }
        if let Some(vector) = vector_of_code(pipeline, part, &inner, code)
            && is_maximal(pipeline, part, &inner, &vector)
        {
            vectors.push(vector);
            if vectors.len() > vectors_max {
                return None;
            }
        }
    }
    Some(vectors)
}

/// A few maximal vectors, if there are too many to list. From the least charges on, each task in turn is raised as far as
/// possible before the others, and then all tasks level by level. Optional tasks keep a budget too. When the time is up,
/// those that were found so far, and at least one.
pub(crate) fn list_some(pipeline: &Pipeline, part: &PipelineSpace, limits: &RunLimits) -> Vec<Vec<f64>> {
    let tasks = pipeline.tasks.len();
    let slo = pipeline.slo_ms + SLACK * pipeline.slo_ms.max(1.0);
    let fits = |charges: &[f64]| finish_times(pipeline, LatencyRule::TaskBudget, charges).iter().all(|&f| f <= slo);
    let start: Vec<f64> = part.levels.iter().map(|l| l.first().copied().unwrap_or(0.0)).collect();
    if !fits(&start) {
        return Vec::new();
    }
    let raise = |charges: &mut Vec<f64>, t: usize| {
        let Some(&above) = part.levels[t].iter().find(|&&theta| theta > charges[t]) else { return false };
        let before = std::mem::replace(&mut charges[t], above);
        let ok = fits(charges);
        charges[t] = if ok { above } else { before };
        ok
    };
    let mut vectors: Vec<Vec<f64>> = Vec::new();
    for first in 0..=tasks {
        if !vectors.is_empty() && limits.exceeded() {
            break;
        }
        let mut charges = start.clone();
        while first < tasks && raise(&mut charges, first) {}
        while (0..tasks).filter(|&t| raise(&mut charges, t)).count() > 0 {}
        if !vectors.contains(&charges) {
            vectors.push(charges);
        }
    }
    vectors
}

/// The vector whose inner levels have this code in the mixed radix of their counts. Tasks at the end take the rest.
fn vector_of_code(pipeline: &Pipeline, part: &PipelineSpace, inner: &[TaskIndex], mut code: usize) -> Option<Vec<f64>> {
    let mut charges = vec![0.0; pipeline.tasks.len()];
    for t in inner {
        let levels = &part.levels[t.get()];
        charges[t.get()] = levels[code % levels.len()];
        code /= levels.len();
    }
    let finish = finish_times(pipeline, LatencyRule::TaskBudget, &charges);
    let slo = pipeline.slo_ms + SLACK * pipeline.slo_ms.max(1.0);
    for t in (0..pipeline.tasks.len()).map(TaskIndex).filter(|t| !inner.contains(t)) {
        let before = pipeline.edges_into(t).map(|e| finish[e.from.get()]).fold(0.0, f64::max);
        charges[t.get()] = *part.levels[t.get()].iter().rev().find(|&&theta| before + theta <= slo)?;
    }
    finish_times(pipeline, LatencyRule::TaskBudget, &charges).iter().all(|&f| f <= slo).then_some(charges)
}

fn is_maximal(pipeline: &Pipeline, part: &PipelineSpace, inner: &[TaskIndex], vector: &[f64]) -> bool {
    let slo = pipeline.slo_ms + SLACK * pipeline.slo_ms.max(1.0);
    inner.iter().all(|t| {
        let Some(&above) = part.levels[t.get()].iter().find(|&&theta| theta > vector[t.get()]) else { return true };
        let mut raised = vector.to_vec();
        raised[t.get()] = above;
        finish_times(pipeline, LatencyRule::TaskBudget, &raised).iter().any(|&f| f > slo)
    })
}
