//! Which replicas does a plan have for each workload of a pipeline, and what of the plan can replicas not express?

use apportion_kubernetes::{WorkloadGoal, WorkloadKind, WorkloadName};
use apportion_wire::{KubernetesSpec, WorkloadSpec};

/// One group of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadGroup {
    /// Its task.
    pub task: String,
    /// Its variant.
    pub variant: String,
    /// Its hardware type.
    pub hardware: String,
    /// Its batch.
    pub batch: u32,
    /// Its replicas.
    pub replicas: u32,
}

/// Why the workloads of a pipeline cannot carry a plan out. Nothing of the plan is tried.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkloadMismatch {
    /// No workload runs a group.
    #[error(
        "no workload for {task}/{variant}/{hardware}, which has {replicas} replicas in the plan: expected one in \
         `replan.kubernetes.workloads`"
    )]
    NoWorkload {
        /// The group's task.
        task: String,
        /// Its variant.
        variant: String,
        /// Its hardware type.
        hardware: String,
        /// Its replicas.
        replicas: u32,
    },
    /// The workload of a group runs another batch, which its replicas do not change.
    #[error(
        "the plan has batch {planned} for {task}/{variant}/{hardware}, and {workload} runs batch {configured}: expected \
         a workload with this batch (`apportion export` writes its files)"
    )]
    OtherBatch {
        /// The group's task.
        task: String,
        /// Its variant.
        variant: String,
        /// Its hardware type.
        hardware: String,
        /// The batch of the plan.
        planned: u32,
        /// The batch of the workload.
        configured: u32,
        /// The workload.
        workload: Box<WorkloadName>,
    },
}

/// The replicas of each workload of the settings. A workload whose group the plan lacks gets none.
///
/// # Errors
/// If the workloads do not cover the plan.
pub fn workload_goals(spec: &KubernetesSpec, groups: &[WorkloadGroup]) -> Result<Vec<WorkloadGoal>, WorkloadMismatch> {
    let mut goals: Vec<_> =
        spec.workloads.iter().map(|entry| WorkloadGoal { workload: workload_name(entry), replicas: 0 }).collect();
    for group in groups.iter().filter(|group| group.replicas > 0) {
        let is_same = |entry: &WorkloadSpec| {
            (&entry.task, &entry.variant, &entry.hardware) == (&group.task, &group.variant, &group.hardware)
        };
        let of_group = || spec.workloads.iter().enumerate().filter(|(_, entry)| is_same(entry));
        let exact = of_group().find(|(_, entry)| entry.batch == Some(group.batch));
        match exact.or_else(|| of_group().find(|(_, entry)| entry.batch.is_none())) {
            Some((at, _)) => goals[at].replicas += group.replicas,
            None => return Err(mismatch(group, of_group().next().map(|(_, entry)| entry))),
        }
    }
    Ok(goals)
}

/// The name of the workload of an entry.
#[must_use]
pub fn workload_name(entry: &WorkloadSpec) -> WorkloadName {
    WorkloadName {
        namespace: entry.namespace.clone(),
        // The settings were checked when they were registered.
        kind: WorkloadKind::parse(&entry.kind).unwrap_or(WorkloadKind::Deployment),
        name: entry.name.clone(),
    }
}

fn mismatch(group: &WorkloadGroup, entry: Option<&WorkloadSpec>) -> WorkloadMismatch {
    let WorkloadGroup { task, variant, hardware, batch, replicas } = group.clone();
    match entry.and_then(|entry| Some((workload_name(entry), entry.batch?))) {
        Some((workload, configured)) => {
            let (planned, workload) = (batch, Box::new(workload));
            WorkloadMismatch::OtherBatch { task, variant, hardware, planned, configured, workload }
        }
        None => WorkloadMismatch::NoWorkload { task, variant, hardware, replicas },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(variant: &str, batch: Option<u32>, name: &str) -> WorkloadSpec {
        let text = |text: &str| text.to_owned();
        let (task, hardware, namespace, kind) = (text("find"), text("t4"), text("serving"), text("Deployment"));
        WorkloadSpec { task, variant: text(variant), hardware, batch, namespace, kind, name: text(name) }
    }

    fn group(variant: &str, batch: u32, replicas: u32) -> WorkloadGroup {
        let (task, hardware) = ("find".to_owned(), "t4".to_owned());
        WorkloadGroup { task, variant: variant.to_owned(), hardware, batch, replicas }
    }

    /// The goals by name, or the mismatch.
    fn goals(entries: Vec<WorkloadSpec>, groups: &[WorkloadGroup]) -> String {
        let spec = KubernetesSpec {
            workloads: entries,
            at_a_time_max: 1,
            ready_within_s: 600.0,
            changes_per_hour_max: 60,
            dry_run: false,
        };
        match workload_goals(&spec, groups) {
            Ok(goals) => goals.iter().map(|goal| format!("{} {};", goal.workload.name, goal.replicas)).collect(),
            Err(mismatch) => mismatch.to_string(),
        }
    }

    #[test]
    fn groups_find_their_workloads_by_batch() {
        let (l, s) = (|batch, name| entry("find-l", batch, name), |name| entry("find-s", None, name));
        let table = [
            (vec![l(None, "l"), s("s")], vec![group("find-l", 4, 3)], "l 3;s 0;"),
            (vec![l(None, "l"), s("s")], vec![group("find-l", 4, 3), group("find-l", 8, 1)], "l 4;s 0;"),
            (vec![l(None, "any"), l(Some(4), "four")], vec![group("find-l", 4, 3), group("find-l", 8, 1)], "any 1;four 3;"),
            (vec![l(None, "l")], vec![], "l 0;"),
            (vec![l(None, "l")], vec![group("find-s", 1, 0)], "l 0;"),
        ];
        for (entries, groups, expected) in table {
            assert_eq!(goals(entries, &groups), expected);
        }
    }

    #[test]
    fn what_replicas_cannot_express_is_said() {
        let said = goals(vec![entry("find-l", None, "l")], &[group("find-s", 1, 2)]);
        assert!(said.starts_with("no workload for find/find-s/t4, which has 2 replicas"), "{said}");
        let said = goals(vec![entry("find-l", Some(4), "l")], &[group("find-l", 8, 2)]);
        assert!(
            said.starts_with("the plan has batch 8 for find/find-l/t4, and Deployment serving/l runs batch 4"),
            "{said}"
        );
    }
}
