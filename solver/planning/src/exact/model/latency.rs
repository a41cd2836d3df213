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

/// Every time at which some task can finish if the charge of each task is one of its `levels`: increasing, distinct.
/// `None` if there are more than `max` for one task.
pub(crate) fn possible_finish_times(
    pipeline: &Pipeline,
    rule: LatencyRule,
    levels: &[Vec<f64>],
    max: usize,
) -> Option<Vec<f64>> {
    let mut finish: Vec<Vec<f64>> = vec![Vec::new(); pipeline.tasks.len()];
    for &t in pipeline.order() {
        let into = pipeline.edges_into(t).filter(|e| delays(rule, e));
        let mut before: Vec<f64> = into.flat_map(|e| finish[e.from.get()].iter().copied()).collect();
        if before.is_empty() {
            before.push(0.0);
        }
        let levels = &levels[t.get()];
        if before.len().saturating_mul(levels.len()) > max {
            return None;
        }
        let mut all: Vec<f64> = before.iter().flat_map(|b| levels.iter().map(move |charge| b + charge)).collect();
        all.sort_by(f64::total_cmp);
        all.dedup();
        finish[t.get()] = all;
    }
    let mut all = finish.concat();
    all.sort_by(f64::total_cmp);
    all.dedup();
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    /// All finish times of all choices of charges, by [`finish_times`].
    fn slow(pipeline: &Pipeline, rule: LatencyRule, levels: &[Vec<f64>]) -> Vec<f64> {
        let choices: usize = levels.iter().map(Vec::len).product();
        let mut all = Vec::new();
        for mut code in 0..choices {
            let charges: Vec<f64> = levels
                .iter()
                .map(|of_task| {
                    let charge = of_task[code % of_task.len()];
                    code /= of_task.len();
                    charge
                })
                .collect();
            all.extend(finish_times(pipeline, rule, &charges));
        }
        all.sort_by(f64::total_cmp);
        all.dedup();
        all
    }

    #[test]
    fn possible_finish_times_are_those_of_all_choices() {
        let task = |name| fixtures::task(name, vec![fixtures::variant(name, 1.0, 1.0, &[(0, 1, 5.0)])]);
        let join = [(0, 1), (0, 2), (1, 3), (2, 3)];
        let draft = fixtures::draft(500.0, ["a", "b", "c", "d"].map(task).into(), &join);
        let mut draft = draft;
        // of two edges into a task one makes queries, the other one is waited for
        draft.edges[3].primary = false;
        let hardware = fixtures::problem(fixtures::chain(500.0)).hardware.clone();
        let pipeline = Pipeline::new(draft, &hardware, "").expect("a valid pipeline");
        let levels = [vec![1.0, 2.5], vec![4.0, 8.0, 16.0], vec![3.0, 32.0], vec![64.0, 128.0]];
        for rule in [LatencyRule::TaskBudget, LatencyRule::Path] {
            let times = possible_finish_times(&pipeline, rule, &levels, 1_000).expect("few times");
            let slow = slow(&pipeline, rule, &levels);
            // of a slow and a fast way into a task only the slow one decides, so there may be more times than choices give
            assert!(slow.iter().all(|time| times.contains(time)), "{rule:?}: {slow:?} {times:?}");
            assert!(times.len() <= 2 + 6 + 4 + 20, "{rule:?}: {}", times.len());
            assert!(times.is_sorted());
        }
        assert_eq!(possible_finish_times(&pipeline, LatencyRule::TaskBudget, &levels, 5), None);
    }
}
