//! Which workloads on Kubernetes are refused in a pipeline?

use crate::spec::{PipelineSpec, TaskSpec};
use crate::workloads::{
    AT_A_TIME_MAX, CHANGES_PER_HOUR_MAX, READY_WITHIN_S_MAX, WORKLOAD_NAME_CHARS_MAX, WORKLOADS_MAX, WorkloadSpec,
};
use apportion_domain::Invalid;
use std::collections::BTreeSet;

/// The place of the workloads in a pipeline.
const AT: &str = "/replan/kubernetes";

/// The refused workloads of a pipeline.
pub(crate) fn check_workloads(pipeline: &PipelineSpec) -> Vec<Invalid> {
    let Some(replan) = &pipeline.replan else { return Vec::new() };
    let Some(spec) = &replan.kubernetes else { return Vec::new() };
    let mut problems = Vec::new();
    if replan.demand.is_none() {
        let expected = "`demand` beside it, or no such member";
        problems.push(Invalid::new(AT, "workloads without a source of demand", expected));
    }
    let mut refuse = |key: &str, found: String, expected: String| {
        problems.push(Invalid::new(format!("{AT}/{key}"), found, expected));
    };
    if !(1..=WORKLOADS_MAX).contains(&spec.workloads.len()) {
        let found = format!("{} workloads", spec.workloads.len());
        refuse("workloads", found, format!("1 to {WORKLOADS_MAX} workloads"));
    }
    if !(1..=AT_A_TIME_MAX).contains(&spec.at_a_time_max) {
        refuse("at_a_time_max", spec.at_a_time_max.to_string(), format!("a number from 1 to {AT_A_TIME_MAX}"));
    }
    if !(1.0..=READY_WITHIN_S_MAX).contains(&spec.ready_within_s) {
        refuse("ready_within_s", spec.ready_within_s.to_string(), format!("a number from 1 to {READY_WITHIN_S_MAX}"));
    }
    if !(1..=CHANGES_PER_HOUR_MAX).contains(&spec.changes_per_hour_max) {
        let found = spec.changes_per_hour_max.to_string();
        refuse("changes_per_hour_max", found, format!("a number from 1 to {CHANGES_PER_HOUR_MAX}"));
    }
    problems.extend(check_names(pipeline, &spec.workloads));
    problems
}

fn check_names(pipeline: &PipelineSpec, workloads: &[WorkloadSpec]) -> Vec<Invalid> {
    let mut problems = Vec::new();
    let (mut groups, mut names) = (BTreeSet::new(), BTreeSet::new());
    for (at, workload) in workloads.iter().enumerate() {
        let WorkloadSpec { task, variant, hardware, batch, namespace, kind, name } = workload;
        let at = format!("{AT}/workloads/{at}");
        let is_task = |found: &&TaskSpec| found.name == *task;
        match pipeline.tasks.iter().find(is_task) {
            None => problems.push(Invalid::new(format!("{at}/task"), task, "a task of this pipeline")),
            Some(found) if !found.variants.iter().any(|found| found.name == *variant) => {
                problems.push(Invalid::new(format!("{at}/variant"), variant, "a variant of this task"));
            }
            Some(_) => {}
        }
        if !groups.insert((task, variant, hardware, batch)) {
            problems.push(Invalid::new(at.as_str(), "a second workload for this group", "one workload for each group"));
        }
        if !names.insert((namespace, kind, name)) {
            let found = format!("{kind} {namespace}/{name} for a second group");
            problems.push(Invalid::new(at.as_str(), found, "one group for each workload"));
        }
        for (key, value) in [("namespace", namespace), ("name", name)] {
            if !is_name(value) {
                problems.push(Invalid::new(format!("{at}/{key}"), format!("{value:?}"), "a name of Kubernetes"));
            }
        }
    }
    problems
}

/// Whether Kubernetes may have an object with this name (a DNS subdomain of RFC 1123).
fn is_name(text: &str) -> bool {
    let is_inside = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    let is_edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    text.len() <= WORKLOAD_NAME_CHARS_MAX
        && text.chars().all(is_inside)
        && is_edge(text.chars().next())
        && is_edge(text.chars().last())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::{KubernetesSpec, kind, namespace};

    fn workload(name: &str) -> WorkloadSpec {
        let text = |text: &str| text.to_owned();
        WorkloadSpec {
            task: text("find"),
            variant: text(name),
            hardware: text("t4"),
            batch: None,
            namespace: namespace(),
            kind: kind(),
            name: text(name),
        }
    }

    fn spec(workloads: Vec<WorkloadSpec>) -> KubernetesSpec {
        KubernetesSpec { workloads, at_a_time_max: 1, ready_within_s: 600.0, changes_per_hour_max: 60, dry_run: false }
    }

    /// The pipeline of the example with these workloads, and what is refused of it.
    fn refused(kubernetes: &KubernetesSpec) -> Vec<String> {
        let document = serde_json::json!({
            "name": "photos", "slo_ms": 250, "edges": [],
            "tasks": [{"name": "find", "variants": [{"name": "a"}, {"name": "b"}]}],
            "replan": {"mode": "advisory", "demand": {"pushed": {}}, "kubernetes": kubernetes},
        });
        let pipeline: PipelineSpec = serde_json::from_value(document).expect("a pipeline");
        check_workloads(&pipeline).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn wrong_workloads_are_refused_with_their_place() {
        let (a, b) = (|| workload("a"), || workload("b"));
        let good = spec(vec![a(), b()]);
        assert_eq!(refused(&good), [""; 0]);
        let batches = |n| (0..n).map(|n| WorkloadSpec { batch: Some(n), name: format!("w{n}"), ..a() }).collect();
        assert_eq!(refused(&spec(batches(WORKLOADS_MAX as u32))), [""; 0]);
        let one = |wrong: WorkloadSpec| spec(vec![wrong]);
        let table = [
            (spec(vec![]), "workloads"),
            (spec(batches(WORKLOADS_MAX as u32 + 1)), "workloads"),
            (KubernetesSpec { at_a_time_max: 0, ..good.clone() }, "at_a_time_max"),
            (KubernetesSpec { at_a_time_max: AT_A_TIME_MAX + 1, ..good.clone() }, "at_a_time_max"),
            (KubernetesSpec { ready_within_s: 0.5, ..good.clone() }, "ready_within_s"),
            (KubernetesSpec { ready_within_s: READY_WITHIN_S_MAX + 1.0, ..good.clone() }, "ready_within_s"),
            (KubernetesSpec { changes_per_hour_max: 0, ..good.clone() }, "changes_per_hour_max"),
            (KubernetesSpec { changes_per_hour_max: CHANGES_PER_HOUR_MAX + 1, ..good.clone() }, "changes_per_hour_max"),
            (spec(vec![a(), WorkloadSpec { name: "a".to_owned(), ..b() }]), "workloads/1"),
            (spec(vec![a(), WorkloadSpec { name: "c".to_owned(), ..a() }]), "workloads/1"),
            (one(WorkloadSpec { task: "look".to_owned(), ..a() }), "workloads/0/task"),
            (one(workload("c")), "workloads/0/variant"),
            (one(WorkloadSpec { name: "../secrets".to_owned(), ..a() }), "workloads/0/name"),
            (one(WorkloadSpec { name: "n".repeat(WORKLOAD_NAME_CHARS_MAX + 1), ..a() }), "workloads/0/name"),
            (one(WorkloadSpec { namespace: String::new(), ..a() }), "workloads/0/namespace"),
        ];
        for (wrong, place) in table {
            let found = refused(&wrong);
            assert!(found.len() == 1 && found[0].starts_with(&format!("{AT}/{place}: ")), "{place}: {found:?}");
        }
    }
}
