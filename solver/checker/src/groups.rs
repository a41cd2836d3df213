//! Which tasks, variants and hardware do the names of a plan's groups mean?

use crate::finding::Finding;
use crate::rules;
use apportion_domain::{GroupName, HardwareIndex, Pipeline, PipelinePlan, Problem, TaskIndex, VariantIndex};
use std::collections::BTreeMap;

/// One group of a plan.
pub(crate) struct ResolvedGroup<'a> {
    pub name: &'a GroupName,
    pub task: TaskIndex,
    pub variant: VariantIndex,
    pub replicas: u32,
    /// Latency of one batch at the group's batch size, in milliseconds.
    pub latency_ms: f64,
    /// Throughput of one replica, in queries per second.
    pub replica_qps: f64,
}

/// All groups of one pipeline's part of a plan.
pub(crate) struct ResolvedGroups<'a> {
    pub groups: Vec<ResolvedGroup<'a>>,
    by_name: BTreeMap<&'a GroupName, usize>,
    pipeline: &'a str,
}

impl<'a> ResolvedGroups<'a> {
    /// Resolves names, batch sizes and memory. A group that cannot be resolved gives a finding.
    pub fn resolve(
        problem: &Problem,
        pipeline: &Pipeline,
        part: &'a PipelinePlan,
        findings: &mut Vec<Finding>,
    ) -> ResolvedGroups<'a> {
        let mut all = ResolvedGroups { groups: Vec::new(), by_name: BTreeMap::new(), pipeline: &part.name };
        for assignment in &part.assignments {
            let name = &assignment.group;
            let place = all.place(name);
            let mut refuse = |rule, evidence: String| findings.push(Finding::new(rule, place.clone(), evidence));
            let Some((task, variant, hardware)) = resolve_names(problem, pipeline, name, &mut refuse) else { continue };
            if all.by_name.contains_key(name) {
                refuse(rules::DUPLICATE_GROUP, "the group is listed twice; it runs one batch size".into());
                continue;
            }
            let v = pipeline.variant(task, variant);
            if !problem.fits_memory(v.memory_mib, hardware, name.share) {
                let there = problem.hardware_at(hardware).memory_mib.unwrap_or(f64::INFINITY) * name.share.value();
                refuse(rules::MEMORY, format!("needs {} MiB, its share has {there}", v.memory_mib.unwrap_or(0.0)));
            }
            let Some(row) = v.profile.row(hardware, name.share, assignment.batch) else {
                let sizes: Vec<u32> = v.profile.on(hardware, name.share).iter().map(|r| r.batch).collect();
                refuse(rules::BATCH, format!("batch {} was not measured, only {sizes:?}", assignment.batch));
                continue;
            };
            if assignment.replicas == 0 {
                refuse(rules::REPLICAS, "a group that is listed has at least one replica".into());
            }
            all.by_name.insert(name, all.groups.len());
            all.groups.push(ResolvedGroup {
                name,
                task,
                variant,
                replicas: assignment.replicas,
                latency_ms: row.latency_ms,
                replica_qps: row.throughput_qps(),
            });
        }
        all
    }

    /// The position of the group with this name.
    pub fn position(&self, name: &GroupName) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// The groups of one task with their positions.
    pub fn of(&self, task: TaskIndex) -> impl Iterator<Item = (usize, &ResolvedGroup<'a>)> + '_ {
        self.groups.iter().enumerate().filter(move |(_, g)| g.task == task)
    }

    /// How findings name a group.
    pub fn place(&self, name: &GroupName) -> String {
        format!("{}/{name}", self.pipeline)
    }

    /// Checks that each task has at least `min_replicas`.
    pub fn check_replicas(&self, pipeline: &Pipeline, findings: &mut Vec<Finding>) {
        for (t, task) in pipeline.tasks.iter().enumerate() {
            let replicas: u64 = self.of(TaskIndex(t)).map(|(_, g)| u64::from(g.replicas)).sum();
            if replicas < u64::from(task.min_replicas) {
                let place = format!("{}/{}", pipeline.name, task.name);
                let evidence = format!("{replicas} replicas, at least {} are asked for", task.min_replicas);
                findings.push(Finding::new(rules::MIN_REPLICAS, place, evidence));
            }
        }
    }
}

/// Task, variant and hardware of a group. Calls `refuse` for each unknown name.
fn resolve_names(
    problem: &Problem,
    pipeline: &Pipeline,
    name: &GroupName,
    refuse: &mut impl FnMut(&'static str, String),
) -> Option<(TaskIndex, VariantIndex, HardwareIndex)> {
    let Some(task) = pipeline.task_named(&name.task) else {
        refuse(rules::UNKNOWN_TASK, format!("the pipeline has no task {:?}", name.task));
        return None;
    };
    let variants = &pipeline.task(task).variants;
    let variant = variants.iter().position(|v| v.name == name.variant).map(VariantIndex);
    if variant.is_none() {
        refuse(rules::UNKNOWN_VARIANT, format!("task {:?} has no variant {:?}", name.task, name.variant));
    }
    let hardware = problem.hardware_named(&name.hardware);
    if hardware.is_none() {
        refuse(rules::UNKNOWN_HARDWARE, format!("the problem has no hardware {:?}", name.hardware));
    }
    Some((task, variant?, hardware?))
}
