//! Which combinations of variants may a model-less request get?
//!
//! A combination has one group of each task. Each of its groups has replicas, or is offered.

use apportion_domain::{Pipeline, VariantIndex};
use apportion_protocol::v1;
use std::collections::BTreeSet;

/// Most combinations of one pipeline: a gateway scans all of them each second.
const COMBINATIONS_MAX: usize = 256;

/// All combinations of groups that have replicas or are offered, each with the pipeline's accuracy. If they are too many,
/// offered groups are left out: first those of a variant that is faster elsewhere, then the least accurate. If the groups
/// with replicas alone have too many, there are none.
pub(super) fn combinations(
    pipeline: &Pipeline,
    groups: &[v1::GroupTarget],
    with_replicas: &BTreeSet<u64>,
) -> Vec<v1::Choice> {
    let of_task = |task: u32| groups.iter().filter(move |g| g.task == task);
    let is_there = |g: &&v1::GroupTarget| with_replicas.contains(&g.group);
    let may_be = |g: &&v1::GroupTarget| is_there(g) || g.offered;
    let tasks = 0..pipeline.tasks.len() as u32;
    let mut by_task: Vec<Vec<&v1::GroupTarget>> = tasks.map(|task| of_task(task).filter(may_be).collect()).collect();
    if count(&by_task) > COMBINATIONS_MAX {
        by_task.iter_mut().for_each(|of_task| keep_fastest(of_task, is_there));
    }
    while count(&by_task) > COMBINATIONS_MAX {
        if !drop_least_accurate(&mut by_task, is_there) {
            return Vec::new();
        }
    }
    let mut all: Vec<Vec<&v1::GroupTarget>> = vec![Vec::new()];
    for of_task in &by_task {
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

/// How many combinations these groups have.
fn count(by_task: &[Vec<&v1::GroupTarget>]) -> usize {
    by_task.iter().map(Vec::len).fold(1, usize::saturating_mul)
}

/// Time until a query of an offered group is done: its load, and a full batch.
fn start_ns(group: &v1::GroupTarget) -> u64 {
    let batch_ns = group.service.iter().filter(|p| p.batch <= group.batch).map(|p| p.latency_ns).max();
    group.load_ns.saturating_add(batch_ns.unwrap_or(0))
}

/// Keeps one offered group of each variant: the one that would be done first.
fn keep_fastest(of_task: &mut Vec<&v1::GroupTarget>, is_there: impl Fn(&&v1::GroupTarget) -> bool) {
    let all = of_task.clone();
    let is_slower = |g: &v1::GroupTarget| {
        let rank = |g: &v1::GroupTarget| (start_ns(g), g.group);
        let same = all.iter().filter(|other| !is_there(other) && other.variant == g.variant);
        same.map(|other| rank(other)).min().is_some_and(|first| first < rank(g))
    };
    of_task.retain(|g| is_there(g) || !is_slower(g));
}

/// Leaves out the least accurate offered group of the task with the most groups; returns whether there was one.
fn drop_least_accurate(by_task: &mut [Vec<&v1::GroupTarget>], is_there: impl Fn(&&v1::GroupTarget) -> bool) -> bool {
    let largest =
        by_task.iter_mut().filter(|of_task| of_task.iter().any(|g| !is_there(g))).max_by_key(|of_task| of_task.len());
    let Some(of_task) = largest else { return false };
    let offered = of_task.iter().enumerate().filter(|(_, g)| !is_there(g));
    let Some((at, _)) = offered.min_by(|(_, a), (_, b)| a.accuracy.total_cmp(&b.accuracy)) else { return false };
    of_task.remove(at);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(group: u64, task: u32, variant: &str, accuracy: f64, offered: bool) -> v1::GroupTarget {
        let service = vec![v1::ServicePoint { batch: 1, latency_ns: group, ..Default::default() }];
        v1::GroupTarget { group, task, variant: variant.into(), batch: 1, accuracy, service, offered, ..Default::default() }
    }

    #[test]
    fn one_offer_of_each_variant_stays_when_there_are_too_many() {
        let [planned, slow, fast] =
            [group(1, 0, "v", 0.9, false), group(9, 0, "v", 0.9, true), group(5, 0, "v", 0.9, true)];
        let mut of_task = vec![&planned, &slow, &fast];
        keep_fastest(&mut of_task, |g| !g.offered);
        assert_eq!(of_task.iter().map(|g| g.group).collect::<Vec<_>>(), [1, 5]);
    }

    #[test]
    fn the_least_accurate_offer_of_the_widest_task_goes_first() {
        let wide = [group(1, 0, "a", 0.1, false), group(2, 0, "b", 0.5, true), group(3, 0, "c", 0.4, true)];
        let narrow = [group(4, 1, "d", 0.2, true), group(5, 1, "e", 0.3, false)];
        let mut by_task: Vec<Vec<&v1::GroupTarget>> = vec![wide.iter().collect(), narrow.iter().collect()];
        let mut left = Vec::new();
        while drop_least_accurate(&mut by_task, |g| !g.offered) {
            left.push(by_task.iter().map(Vec::len).collect::<Vec<_>>());
        }
        assert_eq!(left, [[2, 2], [2, 1], [1, 1]], "the widest first, the last of equals");
        assert_eq!(count(&by_task), 1);
    }
}
