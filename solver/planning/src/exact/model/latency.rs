//! When do the tasks of a pipeline finish, given the charge of each task?

use apportion_domain::{Edge, LatencyRule, Pipeline, VariantIndex};

/// Which tasks are optional: some choice of variants makes no queries for them.
pub(crate) fn optional_tasks(pipeline: &Pipeline) -> Vec<bool> {
    let mut optional = vec![false; pipeline.tasks.len()];
    for &t in pipeline.order() {
        let Some(edge) = pipeline.primary_parent(t) else { continue };
        let none = (0..pipeline.task(edge.from).variants.len()).any(|v| makes_no_queries(pipeline, edge, VariantIndex(v)));
        optional[t.get()] = none || optional[edge.from.get()];
    }
    optional
}

/// Whether a variant makes no queries over an edge.
pub(crate) fn makes_no_queries(pipeline: &Pipeline, edge: &Edge, variant: VariantIndex) -> bool {
    pipeline.fanout(edge, variant) <= 0.0
}

/// Whether an edge delays the tasks after it. Rule `path` counts the paths of queries, and an edge that is not primary
/// makes no query.
pub(crate) fn delays(rule: LatencyRule, edge: &Edge) -> bool {
    edge.primary || rule == LatencyRule::TaskBudget
}

/// Longest time from the root to the end of each task, given the charge of each task.
pub(crate) fn finish_times(pipeline: &Pipeline, rule: LatencyRule, charges: &[f64]) -> Vec<f64> {
    let mut finish = vec![0.0; pipeline.tasks.len()];
    for &t in pipeline.order() {
        let into = pipeline.edges_into(t).filter(|e| delays(rule, e));
        let before = into.map(|e| finish[e.from.get()]).fold(0.0, f64::max);
        finish[t.get()] = before + charges[t.get()];
    }
    finish
}

/// Longest time from the end of each task to the end of the pipeline.
pub(crate) fn remaining_times(pipeline: &Pipeline, rule: LatencyRule, charges: &[f64]) -> Vec<f64> {
    let mut remaining = vec![0.0; pipeline.tasks.len()];
    for &t in pipeline.order().iter().rev() {
        let out_of = pipeline.edges_from(t).filter(|e| delays(rule, e));
        let after = out_of.map(|e| remaining[e.to.get()] + charges[e.to.get()]).fold(0.0, f64::max);
        remaining[t.get()] = after;
    }
    remaining
}
