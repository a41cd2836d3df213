//! Budget vectors: how the SLO is divided among the tasks. Only maximal ones matter, since a larger budget never hurts.

use super::space::{Part, finish_times, optional_tasks};
use apportion_domain::{LatencyRule, Pipeline, SLACK, TaskIndex};

/// Most vectors that are enumerated; beyond it the formulation chooses budgets with binaries.
pub(crate) const VECTORS_MAX: usize = 400;
/// Most candidates that are looked at for maximality.
const CANDIDATES_MAX: usize = 200_000;

/// All maximal budget vectors in charges by task, or `None` if there are more than [`VECTORS_MAX`].
pub(crate) fn maximal(pipeline: &Pipeline, part: &Part) -> Option<Vec<Vec<f64>>> {
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
        if let Some(vector) = complete(pipeline, part, &inner, code)
            && is_maximal(pipeline, part, &inner, &vector)
        {
            vectors.push(vector);
            if vectors.len() > VECTORS_MAX {
                return None;
            }
        }
    }
    Some(vectors)
}

/// The vector whose inner levels have this code in the mixed radix of their counts; tasks at the end take the rest.
fn complete(pipeline: &Pipeline, part: &Part, inner: &[TaskIndex], mut code: usize) -> Option<Vec<f64>> {
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

fn is_maximal(pipeline: &Pipeline, part: &Part, inner: &[TaskIndex], vector: &[f64]) -> bool {
    let slo = pipeline.slo_ms + SLACK * pipeline.slo_ms.max(1.0);
    inner.iter().all(|t| {
        let Some(&above) = part.levels[t.get()].iter().find(|&&theta| theta > vector[t.get()]) else { return true };
        let mut raised = vector.to_vec();
        raised[t.get()] = above;
        finish_times(pipeline, LatencyRule::TaskBudget, &raised).iter().any(|&f| f > slo)
    })
}
