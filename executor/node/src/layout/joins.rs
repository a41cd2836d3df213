//! For which results does a query of a join wait? The same as in the estimator.
//!
//! The edges that make queries form a tree. Each edge into a join has a *fork*: the nearest common ancestor, in that
//! tree, of its parent and the join. A query of the join waits for the results over the edge that stem from the same
//! query of the fork.

use super::error::PipelineError;
use super::model::{JoinWait, LayoutTask, WAITS_MAX};

/// What the queries at joins wait for.
///
/// # Errors
/// If the tasks have a cycle, one cannot be reached, or there are too many edges into joins.
pub(super) fn waits(tasks: &[LayoutTask], root: usize) -> Result<Vec<JoinWait>, PipelineError> {
    let mut makers = vec![None; tasks.len()];
    for (parent, task) in tasks.iter().enumerate() {
        task.children.iter().for_each(|edge| makers[edge.to] = Some(parent));
    }
    let mut waits: Vec<JoinWait> = Vec::new();
    for (parent, task) in tasks.iter().enumerate() {
        let way = lineage(&makers, parent).filter(|way| way.last() == Some(&root));
        let way = way.ok_or_else(|| PipelineError::Unreachable(task.name.clone()))?;
        for edge in &task.delays {
            let above = lineage(&makers, edge.to).ok_or(PipelineError::Cycle)?;
            let meets = way.iter().position(|t| above[1..].contains(t));
            let at = meets.ok_or_else(|| PipelineError::DelaysAncestor(task.name.clone()))?;
            // A parent that is an ancestor has ended before: there is nothing to wait for but what it brings.
            if at == 0 && edge.map.is_empty() {
                continue;
            }
            let (join, fork) = (edge.to, way[at]);
            waits.push(JoinWait { join, fork, parent, makes: false, counted: way[..at].to_vec() });
            if !waits.iter().any(|w| w.makes && (w.join, w.fork) == (join, fork)) {
                let counted: Vec<usize> = above[1..].iter().copied().take_while(|t| *t != fork).collect();
                waits.push(JoinWait { join, fork, parent: above[1], makes: true, counted });
            }
        }
    }
    if waits.len() > WAITS_MAX {
        return Err(PipelineError::Joins(waits.len()));
    }
    Ok(waits)
}

/// A task and its ancestors over the edges that make queries, itself first; none if there is a cycle.
fn lineage(makers: &[Option<usize>], task: usize) -> Option<Vec<usize>> {
    let mut all = vec![task];
    while let Some(parent) = makers[*all.last()?] {
        if all.len() > makers.len() {
            return None;
        }
        all.push(parent);
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{LayoutEdge, MappedInput};

    /// Tasks from (makes queries, from, to).
    fn tasks(count: usize, edges: &[(bool, usize, usize)]) -> Vec<LayoutTask> {
        let task = |at: usize| {
            let of = |makes: bool| {
                let edge = |&(_, _, to): &(bool, usize, usize)| LayoutEdge { to, map: vec![], ratio: 1.0 };
                edges.iter().filter(|(m, from, _)| (*m, *from) == (makes, at)).map(edge).collect()
            };
            let (children, delays) = (of(true), of(false));
            LayoutTask {
                name: at.to_string(),
                inputs: vec![],
                outputs: vec![],
                children,
                delays,
                one_of: false,
                is_continuous: false,
                glue: Default::default(),
            }
        };
        (0..count).map(task).collect()
    }

    #[test]
    fn the_fork_is_the_nearest_common_ancestor() {
        // 0 -> 1 -> {2 -> 4, 3}; 4 waits for 3 and, without a map, for its ancestor 1.
        let tasks = tasks(5, &[(true, 0, 1), (true, 1, 2), (true, 1, 3), (true, 2, 4), (false, 3, 4), (false, 1, 4)]);
        let wait =
            |parent, makes, counted: &[usize]| JoinWait { join: 4, fork: 1, parent, makes, counted: counted.to_vec() };
        assert_eq!(waits(&tasks, 0), Ok(vec![wait(3, false, &[3]), wait(2, true, &[2])]));
        assert!(wait(2, true, &[2]).leads(2, 4) && !wait(3, false, &[3]).leads(3, 4));
    }

    #[test]
    fn what_an_ancestor_brings_comes_from_the_fork_itself() {
        let mut tasks = tasks(3, &[(true, 0, 1), (true, 1, 2), (false, 0, 2)]);
        tasks[0].delays[0].map = vec![MappedInput { input: "x".into(), output: "y".into() }];
        let wait =
            |parent, makes, counted: &[usize]| JoinWait { join: 2, fork: 0, parent, makes, counted: counted.to_vec() };
        assert_eq!(waits(&tasks, 0), Ok(vec![wait(0, false, &[]), wait(1, true, &[1])]));
    }

    #[test]
    fn what_is_no_pipeline_is_refused() {
        assert!(waits(&tasks(3, &[(true, 1, 2), (true, 2, 1)]), 0).is_err());
        assert!(waits(&tasks(2, &[(true, 0, 1), (false, 1, 0)]), 0).is_err());
    }
}
