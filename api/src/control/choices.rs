//! Which variants requests that say what they need may be given: one staffed group of each task.

use apportion_domain::{AccuracyModel, Pipeline, TaskIndex, VariantIndex};
use apportion_protocol::v1;
use std::collections::BTreeSet;

/// Most combinations of variants that requests may choose from; a gateway goes through all of them each second.
const CHOICES_MAX: usize = 256;

/// Each combination of the staffed groups, one for each task, with the pipeline's accuracy; none if there are too many.
pub(super) fn choices(pipeline: &Pipeline, groups: &[v1::GroupTarget], staffed: &BTreeSet<u64>) -> Vec<v1::Choice> {
    let mut all: Vec<Vec<&v1::GroupTarget>> = vec![Vec::new()];
    for task in 0..pipeline.tasks.len() as u32 {
        let of_task: Vec<_> = groups.iter().filter(|g| g.task == task && staffed.contains(&g.group)).collect();
        if all.len() * of_task.len() > CHOICES_MAX {
            return Vec::new();
        }
        all = all.iter().flat_map(|c| of_task.iter().map(|g| [c.as_slice(), &[*g]].concat())).collect();
    }
    let choice = |chosen: &Vec<&v1::GroupTarget>| {
        let variants: Vec<VariantIndex> = chosen
            .iter()
            .zip(&pipeline.tasks)
            .filter_map(|(g, task)| task.variants.iter().position(|v| v.name == g.variant).map(VariantIndex))
            .collect();
        let accuracy = accuracy(pipeline, &variants);
        v1::Choice { groups: chosen.iter().map(|g| g.group).collect(), accuracy }
    };
    all.iter().map(choice).collect()
}

/// Accuracy of a pipeline whose tasks have these variants: the mean over sinks, by their weights, of the accuracy of the path there;
/// under `task_mean` the mean over tasks.
fn accuracy(pipeline: &Pipeline, variants: &[VariantIndex]) -> f64 {
    if pipeline.accuracy_model == AccuracyModel::TaskMean {
        let all = variants.iter().enumerate().map(|(t, v)| pipeline.variant(TaskIndex(t), *v).accuracy);
        return all.sum::<f64>() / variants.len() as f64;
    }
    let to = |sink: TaskIndex| {
        let up = std::iter::successors(Some(sink), |t| pipeline.primary_parent(*t).map(|e| e.from));
        let mut path: Vec<_> = up.map(|t| (t, variants[t.0])).collect();
        path.reverse();
        pipeline.leaf_weight(sink) * pipeline.path_accuracy(&path)
    };
    pipeline.sinks().map(to).sum()
}
