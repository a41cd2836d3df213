//! Which few paths of groups load every group by its share?
//!
//! Example: two tasks with the shares .5, .5 and .25, .75. The product of the shares has four paths. Three do as well:
//! .25 takes the first group of both, .25 the first and then the second, .5 the second of both.

use super::flows::FLOW_MIN;
use apportion_domain::{Pipeline, TaskIndex};

/// A group with its share of the queries of its task.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct GroupShare {
    /// By position in the pipeline's space.
    pub group: usize,
    pub share: f64,
}

/// A path of groups from the root to a sink.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct GroupPath {
    /// By position in the pipeline's space, root first.
    pub groups: Vec<usize>,
    /// Share of the root's queries.
    pub share: f64,
}

/// Paths to each sink that give every group its share, at most one path for each group on the way to a sink.
///
/// `shares` has the groups of each task; those of one task sum to 1. The queries of the root are the interval from 0 to 1,
/// and each task cuts it into its shares. So the paths to two sinks agree about the groups that they have in common.
pub(super) fn coupled_paths(pipeline: &Pipeline, shares: &[Vec<GroupShare>]) -> Vec<GroupPath> {
    pipeline.sinks().flat_map(|sink| paths_to(&way_to(pipeline, sink), shares)).collect()
}

/// The tasks from the root to a sink.
fn way_to(pipeline: &Pipeline, sink: TaskIndex) -> Vec<TaskIndex> {
    let mut tasks = vec![sink];
    while let Some(edge) = pipeline.primary_parent(tasks[tasks.len() - 1]) {
        tasks.push(edge.from);
    }
    tasks.reverse();
    tasks
}

/// The pieces between all cuts of the tasks of one way.
fn paths_to(way: &[TaskIndex], shares: &[Vec<GroupShare>]) -> Vec<GroupPath> {
    let of: Vec<&[GroupShare]> = way.iter().map(|t| shares[t.get()].as_slice()).collect();
    let mut at = vec![0; of.len()];
    let mut left: Vec<f64> = of.iter().map(|groups| groups.first().map_or(0.0, |g| g.share)).collect();
    let mut paths = Vec::new();
    while at.iter().zip(&of).all(|(&i, groups)| i < groups.len()) {
        let share = left.iter().copied().fold(f64::INFINITY, f64::min);
        if share > FLOW_MIN {
            let groups = at.iter().zip(&of).map(|(&i, groups)| groups[i].group).collect();
            paths.push(GroupPath { groups, share });
        }
        for ((i, left), groups) in at.iter_mut().zip(&mut left).zip(&of) {
            *left -= share;
            // the rounding of a share is no piece of its own
            if *left <= FLOW_MIN {
                *i += 1;
                *left = groups.get(*i).map_or(0.0, |g| g.share);
            }
        }
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::{GroupPath, GroupShare, coupled_paths};
    use crate::fixtures::{draft, problem, task, variant};
    use crate::scaling::drawn::Draw;
    use apportion_domain::Pipeline;
    use std::collections::BTreeMap;

    /// Task a, then b and c, and d after c; one variant each, because shares are given by hand.
    fn tree() -> Pipeline {
        let one = |name: &str| task(name, vec![variant(name, 0.9, 1.0, &[(0, 1, 1.0)])]);
        let tasks = ["a", "b", "c", "d"].map(one).to_vec();
        problem(draft(1000.0, tasks, &[(0, 1), (0, 2), (2, 3)])).pipelines[0].clone()
    }

    /// Groups that are numbered through all tasks; shares of a task sum to 1.
    fn numbered(by_task: &[Vec<f64>]) -> Vec<Vec<GroupShare>> {
        let mut group = 0;
        let mut share = |share: f64| {
            group += 1;
            GroupShare { group: group - 1, share }
        };
        by_task.iter().map(|shares| shares.iter().map(|&s| share(s)).collect()).collect()
    }

    /// Share of the root's queries behind each prefix of groups, by the first path's sink or the second's.
    fn prefixes(paths: &[GroupPath], length: usize) -> BTreeMap<Vec<usize>, f64> {
        let mut shares = BTreeMap::new();
        for path in paths {
            *shares.entry(path.groups[..length].to_vec()).or_insert(0.0) += path.share;
        }
        shares
    }

    #[test]
    fn two_cuts_of_a_chain_make_three_paths() {
        let one = |name: &str| task(name, vec![variant(name, 0.9, 1.0, &[(0, 1, 1.0)])]);
        let chain = problem(draft(1000.0, vec![one("a"), one("b")], &[(0, 1)])).pipelines[0].clone();
        let paths = coupled_paths(&chain, &numbered(&[vec![0.5, 0.5], vec![0.25, 0.75]]));
        let path = |groups: [usize; 2], share| GroupPath { groups: groups.to_vec(), share };
        assert_eq!(paths, [path([0, 2], 0.25), path([0, 3], 0.25), path([1, 3], 0.5)]);
    }

    #[test]
    fn drawn_shares_are_kept_by_few_paths_to_each_sink() {
        let pipeline = tree();
        let mut draw = Draw::new(7);
        for _ in 0..200 {
            let drawn: Vec<Vec<f64>> = (0..4)
                .map(|_| {
                    let count = 1 + draw.below(40);
                    let raw: Vec<f64> = (0..count).map(|_| ((1 + draw.below(1000)) as f64).powi(3)).collect();
                    let sum: f64 = raw.iter().sum();
                    raw.iter().map(|r| r / sum).collect()
                })
                .collect();
            let shares = numbered(&drawn);
            let paths = coupled_paths(&pipeline, &shares);
            for (length, tasks) in [(2, vec![0, 1]), (3, vec![0, 2, 3])] {
                let to_sink: Vec<GroupPath> = paths.iter().filter(|p| p.groups.len() == length).cloned().collect();
                let groups: usize = tasks.iter().map(|&t| shares[t].len()).sum();
                assert!(to_sink.len() <= groups, "{} paths, {groups} groups", to_sink.len());
                for (place, &t) in tasks.iter().enumerate() {
                    for wanted in &shares[t] {
                        let of: f64 = to_sink.iter().filter(|p| p.groups[place] == wanted.group).map(|p| p.share).sum();
                        assert!((of - wanted.share).abs() < 1e-9, "{wanted:?}: {of}");
                    }
                }
            }
            let both: Vec<Vec<GroupPath>> =
                [2, 3].map(|n| paths.iter().filter(|p| p.groups.len() == n).cloned().collect()).to_vec();
            let (first, second) = (prefixes(&both[0], 1), prefixes(&both[1], 1));
            assert!(first.iter().all(|(group, share)| (share - second[group]).abs() < 1e-9), "{first:?} {second:?}");
        }
    }
}
