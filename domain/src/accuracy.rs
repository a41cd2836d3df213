//! How accurate is a pipeline if each task runs one variant?

use crate::ids::{TaskIndex, VariantIndex};
use crate::pipeline::{AccuracyModel, Pipeline};

impl Pipeline {
    /// The stages from the root towards the task `end` if task `t` runs `variants[t]`. The path ends early at a variant
    /// that makes no queries towards `end`. Otherwise it ends at `end`.
    ///
    /// # Panics
    /// If `variants` does not have one variant for each task.
    #[must_use]
    pub fn path_towards(&self, end: TaskIndex, variants: &[VariantIndex]) -> Vec<(TaskIndex, VariantIndex)> {
        assert!(variants.len() == self.tasks.len(), "a variant of each task");
        let parent = |t: &TaskIndex| self.primary_parent(*t).map(|e| e.from);
        let mut path: Vec<TaskIndex> = std::iter::successors(Some(end), parent).collect();
        path.reverse();
        let makes_no_queries = |pair: &[TaskIndex]| {
            let edge = self.primary_parent(pair[1]).expect("each task but the root has one");
            self.fanout(edge, variants[pair[0].get()]) <= 0.0
        };
        let stages = path.windows(2).position(makes_no_queries).map_or(path.len(), |last| last + 1);
        path.truncate(stages);
        path.into_iter().map(|t| (t, variants[t.get()])).collect()
    }

    /// Accuracy of the pipeline, 0 to 1, if task `t` runs `variants[t]`.
    ///
    /// It is the mean accuracy of the paths towards the sinks, by the weights of the sinks. A path that ends early counts
    /// with its own stages. Under `task_mean` it is the mean over all tasks. Tasks that no query reaches add 0.
    #[must_use]
    pub fn accuracy_of(&self, variants: &[VariantIndex]) -> f64 {
        if self.accuracy_model == AccuracyModel::TaskMean {
            let is_reached = |t: &TaskIndex| self.path_towards(*t, variants).last().is_some_and(|(last, _)| last == t);
            let reached = (0..self.tasks.len()).map(TaskIndex).filter(is_reached);
            return reached.map(|t| self.variant(t, variants[t.get()]).accuracy).sum::<f64>() / self.tasks.len() as f64;
        }
        let of = |sink| self.leaf_weight(sink) * self.path_accuracy(&self.path_towards(sink, variants));
        self.sinks().map(of).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::{Hardware, Share};
    use crate::ids::HardwareIndex;
    use crate::pipeline::{Edge, Partial, PathAccuracy, PipelineDraft, Route, Task, TaskKind};
    use crate::profile::{Profile, ProfileRow};
    use crate::serving::ServingWishes;
    use crate::variant::Variant;
    use std::collections::BTreeMap;

    fn variant(accuracy: f64, fanout: f64) -> Variant {
        let row = ProfileRow::of_median(HardwareIndex(0), Share::WHOLE, 1, 1.0);
        Variant {
            name: format!("{accuracy} {fanout}"),
            accuracy,
            fanout,
            fanout_to: BTreeMap::new(),
            fanout_counts: BTreeMap::new(),
            load_ms: 0.0,
            memory_mib: None,
            profile: Profile::new(vec![row]),
        }
    }

    /// a leads to b, which leads to c, and to d; the sinks c and d weigh 0.75 and 0.25. With its second variant b makes no
    /// queries.
    fn pipeline(change: impl FnOnce(&mut PipelineDraft)) -> Pipeline {
        let task = |name: &str, variants| Task {
            name: name.into(),
            kind: TaskKind::Batch,
            route: Route::All,
            min_replicas: 1,
            variants,
        };
        let edge = |from, to| Edge::between(TaskIndex(from), TaskIndex(to));
        let mut draft = PipelineDraft {
            name: "p".into(),
            demand_qps: 1.0,
            slo_ms: 100.0,
            percentile: 99.0,
            queue_factor: 2.0,
            network_ms: 0.0,
            weight: 1.0,
            min_accuracy: None,
            accuracy_model: AccuracyModel::Product,
            path_accuracy: vec![],
            leaf_weights: [(TaskIndex(2), 0.75), (TaskIndex(3), 0.25)].into(),
            survive: 0,
            partial: Partial::Deny,
            serving: ServingWishes::default(),
            tasks: vec![
                task("a", vec![variant(0.9, 1.0)]),
                task("b", vec![variant(0.8, 1.0), variant(0.7, 0.0)]),
                task("c", vec![variant(0.5, 1.0)]),
                task("d", vec![variant(0.6, 1.0)]),
            ],
            edges: vec![edge(0, 1), edge(1, 2), edge(0, 3)],
            ..PipelineDraft::default()
        };
        change(&mut draft);
        let hardware = [Hardware { name: "h".into(), price_per_hour: 1.0, count: None, memory_mib: None }];
        Pipeline::new(draft, &hardware, "").expect("a valid pipeline")
    }

    fn by_model(model: AccuracyModel) -> [f64; 2] {
        let pipeline = pipeline(|d| d.accuracy_model = model);
        [0, 1].map(|b| pipeline.accuracy_of(&[0, b, 0, 0].map(VariantIndex)))
    }

    fn assert_near(seen: [f64; 2], expected: [f64; 2]) {
        assert!(seen.iter().zip(expected).all(|(s, e)| (s - e).abs() < 1e-12), "{seen:?}, not {expected:?}");
    }

    #[test]
    fn a_short_path_counts_with_its_own_tasks() {
        let to_d = 0.25 * 0.9 * 0.6;
        assert_near(by_model(AccuracyModel::Product), [0.75 * 0.9 * 0.8 * 0.5 + to_d, 0.75 * 0.9 * 0.7 + to_d]);
        let to_d = 0.25 * (0.9 + 0.6) / 2.0;
        let whole = 0.75 * (0.9 + 0.8 + 0.5) / 3.0 + to_d;
        assert_near(by_model(AccuracyModel::Mean), [whole, 0.75 * (0.9 + 0.7) / 2.0 + to_d]);
        assert_near(by_model(AccuracyModel::TaskMean), [(0.9 + 0.8 + 0.5 + 0.6) / 4.0, (0.9 + 0.7 + 0.6) / 4.0]);
    }

    #[test]
    fn the_table_applies_to_paths_that_end_early() {
        let stages = |stages: &[(usize, usize)]| stages.iter().map(|&(t, v)| (TaskIndex(t), VariantIndex(v))).collect();
        let short = PathAccuracy { path: stages(&[(0, 0), (1, 1)]), accuracy: 0.33 };
        let measured = pipeline(|d| d.path_accuracy = vec![short.clone()]);
        assert_eq!(measured.path_towards(TaskIndex(2), &[0, 1, 0, 0].map(VariantIndex)), short.path);
        let seen = measured.accuracy_of(&[0, 1, 0, 0].map(VariantIndex));
        assert!((seen - (0.75 * 0.33 + 0.25 * 0.9 * 0.6)).abs() < 1e-12, "{seen}");
    }
}
