//! Maximal budget vectors: with the budgets given, the best batch of every group is given too, and no binaries are left.

use super::variables::Space;
use apportion_domain::{Pipeline, Problem, SLACK, TaskIndex};

/// Most vectors that are enumerated; more, and the levels become binaries of one program.
pub const VECTORS_MAX: usize = 64;
/// Most partial vectors that are looked at.
const STEPS_MAX: usize = 20_000;

/// Every budget vector of the only pipeline that no single level can be raised of; `None` if there are too many, or several
/// pipelines.
#[must_use]
pub fn maximal(problem: &Problem, space: &Space) -> Option<Vec<Vec<f64>>> {
    let [pipeline] = problem.pipelines.as_slice() else { return None };
    let levels = &space.levels[0];
    let order: Vec<usize> = pipeline.order().iter().map(|t| t.get()).collect();
    let mut vector: Vec<f64> = levels.iter().map(|l| l[0]).collect();
    let mut found = Vec::new();
    let mut steps = 0;
    walk(pipeline, levels, &order, &mut vector, &mut found, &mut steps)?;
    let maximal = |v: &&Vec<f64>| !(0..v.len()).any(|t| can_rise(pipeline, levels, v, t));
    let vectors: Vec<_> = found.iter().filter(maximal).cloned().collect();
    (vectors.len() <= VECTORS_MAX).then_some(vectors)
}

/// Whether every path of tasks is within the SLO.
fn fits(pipeline: &Pipeline, vector: &[f64]) -> bool {
    let mut ends = vec![0.0_f64; vector.len()];
    for &t in pipeline.order() {
        let before = pipeline.edges_into(t).map(|e| ends[e.from.get()]).fold(0.0, f64::max);
        ends[t.get()] = before + vector[t.get()];
    }
    ends.iter().all(|&end| end <= pipeline.slo_ms * (1.0 + SLACK))
}

fn can_rise(pipeline: &Pipeline, levels: &[Vec<f64>], vector: &[f64], task: usize) -> bool {
    let Some(&higher) = levels[task].iter().find(|&&l| l > vector[task]) else { return false };
    let mut raised = vector.to_vec();
    raised[task] = higher;
    fits(pipeline, &raised)
}

/// Internal tasks take each level in turn, tasks without successors the highest that fits.
fn walk(
    pipeline: &Pipeline,
    levels: &[Vec<f64>],
    rest: &[usize],
    vector: &mut Vec<f64>,
    found: &mut Vec<Vec<f64>>,
    steps: &mut usize,
) -> Option<()> {
    *steps += 1;
    if *steps > STEPS_MAX {
        return None;
    }
    let Some((&task, rest)) = rest.split_first() else {
        found.push(vector.clone());
        return Some(());
    };
    let lowest = vector[task];
    let last = pipeline.edges_from(TaskIndex(task)).next().is_none();
    for &level in levels[task].iter().rev() {
        vector[task] = level;
        if fits(pipeline, vector) {
            walk(pipeline, levels, rest, vector, found, steps)?;
            if last {
                break;
            }
        }
    }
    vector[task] = lowest;
    Some(())
}
