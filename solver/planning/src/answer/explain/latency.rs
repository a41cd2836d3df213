//! Which task and variant does a group belong to? How long may a query take?

use crate::exact::model::latency::finish_times;
use apportion_domain::{Assignment, GroupName, LatencyRule, Pipeline, PipelinePlan, SLACK, TaskIndex, VariantIndex};

/// Task and variant of a group; `None` if the pipeline does not have them.
pub(super) fn task_and_variant(pipeline: &Pipeline, group: &GroupName) -> Option<(TaskIndex, VariantIndex)> {
    let task = pipeline.task_named(&group.task)?;
    let variant = pipeline.task(task).variants.iter().position(|v| v.name == group.variant)?;
    Some((task, VariantIndex(variant)))
}

/// Another charge for one group.
#[derive(Clone, Copy)]
pub(super) struct ChangedCharge<'a> {
    pub group: &'a GroupName,
    pub charge_ms: f64,
}

/// The longest time that a query may take under the latency rule, in milliseconds. With `changed`, one group has another
/// charge.
pub(super) fn longest_ms(
    rule: LatencyRule,
    pipeline: &Pipeline,
    part: &PipelinePlan,
    changed: Option<ChangedCharge<'_>>,
) -> f64 {
    let charge = |a: &Assignment| match changed {
        Some(changed) if *changed.group == a.group => changed.charge_ms,
        _ => a.latency_budget_ms,
    };
    if rule == LatencyRule::Path && !part.flows.is_empty() {
        let of = |name: &GroupName| part.assignments.iter().find(|a| a.group == *name).map_or(0.0, &charge);
        let flows = part.flows.iter().filter(|f| f.share > SLACK);
        return flows.map(|f| f.path.iter().map(of).sum()).fold(0.0, f64::max);
    }
    let mut slowest = vec![0.0_f64; pipeline.tasks.len()];
    for a in &part.assignments {
        if let Some(t) = pipeline.task_named(&a.group.task) {
            slowest[t.get()] = slowest[t.get()].max(charge(a));
        }
    }
    finish_times(pipeline, rule, &slowest).into_iter().fold(0.0, f64::max)
}
