//! Does every query keep to the SLO? The two latency rules.

use crate::compare::at_most;
use crate::finding::Finding;
use crate::groups::{ResolvedGroup, ResolvedGroups};
use crate::rules;
use crate::traffic::Traffic;
use apportion_domain::{Edge, LatencyRule, Pipeline, PipelinePlan, SLACK};

/// Checks the rule of the problem.
pub(crate) fn check_latency(
    rule: LatencyRule,
    pipeline: &Pipeline,
    part: &PipelinePlan,
    groups: &ResolvedGroups<'_>,
    traffic: &Traffic,
    findings: &mut Vec<Finding>,
) {
    match rule {
        LatencyRule::TaskBudget => check_tasks(pipeline, groups, findings),
        LatencyRule::Path if part.flows.is_empty() => check_groups_with_traffic(pipeline, groups, traffic, findings),
        LatencyRule::Path => check_paths(pipeline, part, groups, findings),
    }
}

/// `sum of queue_factor * t_i + h_i <= slo` on every task path: t_i is the slowest group of each task, h_i the hop into it.
fn check_tasks(pipeline: &Pipeline, groups: &ResolvedGroups<'_>, findings: &mut Vec<Finding>) {
    let charges = charges(pipeline, groups, |_| true);
    report_longest(pipeline, longest_way(pipeline, &charges, |_| true), findings);
}

/// Rule `path` without flows: every combination of groups with traffic is a path, so the slowest of each task count.
fn check_groups_with_traffic(
    pipeline: &Pipeline,
    groups: &ResolvedGroups<'_>,
    traffic: &Traffic,
    findings: &mut Vec<Finding>,
) {
    let charges = charges(pipeline, groups, |g| traffic.share[g] > 0.0);
    report_longest(pipeline, longest_way(pipeline, &charges, |edge| edge.primary), findings);
}

/// Rule `path` with flows: the groups of each path, one after the other, keep to the SLO.
fn check_paths(pipeline: &Pipeline, part: &PipelinePlan, groups: &ResolvedGroups<'_>, findings: &mut Vec<Finding>) {
    for flow in part.flows.iter().filter(|f| f.share > SLACK) {
        let of_group = |group: &ResolvedGroup<'_>| pipeline.hop_charge_ms(group.task, group.latency_ms);
        let charge = |name| groups.position(name).map_or(0.0, |g| of_group(&groups.groups[g]));
        let total: f64 = flow.path.iter().map(charge).sum();
        if !at_most(total, pipeline.slo_ms) {
            let names: Vec<_> = flow.path.iter().map(ToString::to_string).collect();
            let place = format!("{}: {}", pipeline.name, names.join(" > "));
            let evidence = format!("the path takes {total:.6} ms, the SLO is {}", pipeline.slo_ms);
            findings.push(Finding::new(rules::LATENCY, place, evidence));
        }
    }
}

/// The charge of each task in milliseconds: that of its slowest group that counts. It is 0 if no group counts, because no
/// query passes there.
fn charges(pipeline: &Pipeline, groups: &ResolvedGroups<'_>, counts: impl Fn(usize) -> bool) -> Vec<f64> {
    let mut charges = vec![0.0_f64; pipeline.tasks.len()];
    for (_, group) in groups.groups.iter().enumerate().filter(|&(g, _)| counts(g)) {
        let charge = &mut charges[group.task.get()];
        *charge = charge.max(pipeline.hop_charge_ms(group.task, group.latency_ms));
    }
    charges
}

/// The longest way from the root.
#[derive(Default)]
struct LongestWay {
    total_ms: f64,
    /// Name of the task where it ends.
    task: String,
}

/// The longest way from the root over the edges that delay the tasks after them.
fn longest_way(pipeline: &Pipeline, charges: &[f64], delays: impl Fn(&Edge) -> bool) -> LongestWay {
    let mut finish = vec![0.0_f64; pipeline.tasks.len()];
    let mut worst = LongestWay::default();
    for &t in pipeline.order() {
        let before = pipeline.edges_into(t).filter(|e| delays(e)).map(|e| finish[e.from.get()]).fold(0.0, f64::max);
        finish[t.get()] = before + charges[t.get()];
        if finish[t.get()] > worst.total_ms {
            worst = LongestWay { total_ms: finish[t.get()], task: pipeline.task(t).name.clone() };
        }
    }
    worst
}

/// Adds a finding if the longest way takes longer than the SLO.
fn report_longest(pipeline: &Pipeline, longest: LongestWay, findings: &mut Vec<Finding>) {
    let LongestWay { total_ms, task } = longest;
    if !at_most(total_ms, pipeline.slo_ms) {
        let evidence = format!("a query may take {total_ms:.6} ms up to {task:?}, the SLO is {}", pipeline.slo_ms);
        findings.push(Finding::new(rules::LATENCY, &pipeline.name, evidence));
    }
}
