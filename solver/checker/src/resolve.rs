//! Names of a plan to positions in its problem.

use crate::Finding;
use apportion_domain::{
    Assignment, HardwareIndex, Pipeline, PipelinePlan, Plan, Problem, ProfileRow, Share, TaskIndex, VariantIndex,
};
use std::collections::BTreeSet;

/// A group by position.
pub(crate) type Key = (TaskIndex, VariantIndex, HardwareIndex, Share);

/// An assignment whose names the problem knows.
pub(crate) struct Group<'a> {
    pub key: Key,
    pub row: &'a ProfileRow,
    pub assignment: &'a Assignment,
}

/// One pipeline's part of the plan with its names resolved.
pub(crate) struct Part<'a> {
    pub pipeline: &'a Pipeline,
    pub plan: &'a PipelinePlan,
    pub groups: Vec<Group<'a>>,
    /// Whether every name was known and every task has a group: only then do flows make sense.
    pub complete: bool,
}

impl Part<'_> {
    pub fn place(&self, what: impl std::fmt::Display) -> String {
        format!("{}: {what}", self.plan.name)
    }

    pub fn group(&self, key: Key) -> Option<&Group<'_>> {
        self.groups.iter().find(|g| g.key == key)
    }
}

pub(crate) fn resolve<'a>(problem: &'a Problem, plan: &'a Plan, findings: &mut Vec<Finding>) -> Vec<Part<'a>> {
    let mut parts = Vec::new();
    let mut seen = BTreeSet::new();
    for part in &plan.pipelines {
        if !seen.insert(&part.name) {
            findings.push(Finding::new("duplicate", &part.name, "the pipeline is planned twice"));
            continue;
        }
        match problem.pipeline_named(&part.name) {
            Some(index) => parts.push(resolve_part(problem, problem.pipeline(index), part, findings)),
            None => findings.push(Finding::new("unknown", &part.name, "the problem has no pipeline of this name")),
        }
    }
    for pipeline in problem.pipelines.iter().filter(|p| plan.pipeline(&p.name).is_none()) {
        findings.push(Finding::new("missing", &pipeline.name, "the plan has nothing for this pipeline"));
    }
    parts
}

fn resolve_part<'a>(
    problem: &'a Problem,
    pipeline: &'a Pipeline,
    plan: &'a PipelinePlan,
    findings: &mut Vec<Finding>,
) -> Part<'a> {
    let before = findings.len();
    let mut groups: Vec<Group<'a>> = Vec::new();
    for assignment in &plan.assignments {
        let place = format!("{}: {}", plan.name, assignment.group);
        match resolve_group(problem, pipeline, assignment) {
            Err((rule, evidence)) => findings.push(Finding::new(rule, place, evidence)),
            Ok(group) if groups.iter().any(|g| g.key == group.key) => {
                findings.push(Finding::new("duplicate", place, "the group is assigned twice; it runs one batch size"));
            }
            Ok(group) => groups.push(group),
        }
    }
    let known = findings.len() == before;
    let staffed = |t: usize| groups.iter().any(|g| g.key.0 == TaskIndex(t));
    let empty: Vec<_> = (0..pipeline.tasks.len()).filter(|&t| !staffed(t)).collect();
    let needed = |&t: &usize| pipeline.tasks[t].min_replicas > 0 || TaskIndex(t) == pipeline.root();
    for t in empty.into_iter().filter(needed) {
        let place = format!("{}: {}", plan.name, pipeline.tasks[t].name);
        findings.push(Finding::new("missing", place, "no group serves this task"));
    }
    let complete = known && findings.len() == before;
    Part { pipeline, plan, groups, complete }
}

fn resolve_group<'a>(
    problem: &'a Problem,
    pipeline: &'a Pipeline,
    assignment: &'a Assignment,
) -> Result<Group<'a>, (&'static str, String)> {
    let name = &assignment.group;
    let unknown = |what: &str, word: &str| ("unknown", format!("the problem has no {what} {word:?} there"));
    let task = pipeline.task_named(&name.task).ok_or_else(|| unknown("task", &name.task))?;
    let variants = &pipeline.task(task).variants;
    let variant = variants.iter().position(|v| v.name == name.variant).ok_or_else(|| unknown("variant", &name.variant))?;
    let hardware = problem.hardware_named(&name.hardware).ok_or_else(|| unknown("hardware", &name.hardware))?;
    let row = variants[variant].profile.row(hardware, name.share, assignment.batch).ok_or_else(|| {
        let evidence = format!("batch {} on {} share {} is not in the profile", assignment.batch, name.hardware, name.share);
        ("batch", evidence)
    })?;
    Ok(Group { key: (task, VariantIndex(variant), hardware, name.share), row, assignment })
}
