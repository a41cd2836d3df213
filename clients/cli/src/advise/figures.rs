//! Which replicas does each group have in the advice and in the deployment?

use apportion_domain::{Plan, Problem};
use std::collections::BTreeMap;

/// The replicas of one group in both plans.
#[derive(Clone, Debug)]
pub struct GroupRow {
    /// The group.
    pub key: AdvisedGroup,
    /// Replicas of the advice.
    pub desired: u32,
    /// Replicas that run now; `None` if nothing is known of the deployment.
    pub deployed: Option<u32>,
}

/// A group with its batch size, in the order of the problem.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AdvisedGroup {
    place: (usize, usize),
    /// The pipeline.
    pub pipeline: String,
    /// The task.
    pub task: String,
    /// The variant.
    pub variant: String,
    /// The hardware type.
    pub hardware: String,
    /// The share of a device, in eighths.
    pub share_eighths: u8,
    /// The batch size.
    pub batch: u32,
}

/// The groups of both plans, in the problem's order.
pub fn group_rows(problem: &Problem, advised: &Plan, deployed: Option<&Plan>) -> Vec<GroupRow> {
    let mut rows: BTreeMap<AdvisedGroup, [u32; 2]> = BTreeMap::new();
    for (side, plan) in [Some(advised), deployed].into_iter().enumerate() {
        for (key, replicas) in plan.map(|plan| groups_of(problem, plan)).unwrap_or_default() {
            rows.entry(key).or_default()[side] += replicas;
        }
    }
    let row = |(key, [desired, now]): (AdvisedGroup, [u32; 2])| GroupRow { key, desired, deployed: deployed.map(|_| now) };
    rows.into_iter().map(row).collect()
}

fn groups_of(problem: &Problem, plan: &Plan) -> Vec<(AdvisedGroup, u32)> {
    let mut groups = Vec::new();
    for part in &plan.pipelines {
        let index = problem.pipelines.iter().position(|p| p.name == part.name).unwrap_or(usize::MAX);
        let tasks = problem.pipelines.get(index).map_or(&[][..], |p| &p.tasks);
        for a in &part.assignments {
            let task = tasks.iter().position(|t| t.name == a.group.task).unwrap_or(usize::MAX);
            let key = AdvisedGroup {
                place: (index, task),
                pipeline: part.name.clone(),
                task: a.group.task.clone(),
                variant: a.group.variant.clone(),
                hardware: a.group.hardware.clone(),
                share_eighths: a.group.share.eighths(),
                batch: a.batch,
            };
            groups.push((key, a.replicas));
        }
    }
    groups
}
