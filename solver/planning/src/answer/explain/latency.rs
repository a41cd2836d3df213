//! Which task and variant does a group belong to, and how long may a query take?

use crate::exact::model::latency::finish_times;
use apportion_domain::{Assignment, GroupName, LatencyRule, Pipeline, PipelinePlan, SLACK, TaskIndex, VariantIndex};

/// Task and variant of a group.
pub(super) fn located(pipeline: &Pipeline, group: &GroupName) -> Option<(TaskIndex, VariantIndex)> {
    let task = pipeline.task_named(&group.task)?;
    let variant = pipeline.task(task).variants.iter().position(|v| v.name == group.variant)?;
    Some((task, VariantIndex(variant)))
}

/// The longest that a query may take under the latency rule, in milliseconds; with `swap` as if that group charged so much.
pub(super) fn longest_ms(
    rule: LatencyRule,
    pipeline: &Pipeline,
    part: &PipelinePlan,
    swap: Option<(&GroupName, f64)>,
) -> f64 {
    let charge = |a: &Assignment| match swap {
        Some((group, charge)) if *group == a.group => charge,
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
