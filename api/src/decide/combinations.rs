//! Which combinations of variants may a model-less request get?
//!
//! A combination has one group of each task, and each of its groups has replicas.

use apportion_domain::{Pipeline, VariantIndex};
use apportion_protocol::v1;
use std::collections::BTreeSet;

/// Most combinations of one pipeline: a gateway scans all of them each second.
const COMBINATIONS_MAX: usize = 256;

/// All combinations of groups with replicas, each with the pipeline's accuracy; none if there are too many.
pub(super) fn combinations(
    pipeline: &Pipeline,
    groups: &[v1::GroupTarget],
    with_replicas: &BTreeSet<u64>,
) -> Vec<v1::Choice> {
    let mut all: Vec<Vec<&v1::GroupTarget>> = vec![Vec::new()];
    for task in 0..pipeline.tasks.len() as u32 {
        let of_task: Vec<_> = groups.iter().filter(|g| g.task == task && with_replicas.contains(&g.group)).collect();
        if all.len() * of_task.len() > COMBINATIONS_MAX {
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
        v1::Choice { groups: chosen.iter().map(|g| g.group).collect(), accuracy: pipeline.accuracy_of(&variants) }
    };
    all.iter().map(choice).collect()
}
