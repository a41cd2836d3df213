//! The two latency rules.

use crate::compare::at_most;
use crate::finding::Finding;
use crate::groups::ResolvedGroups;
use crate::rules;
use crate::traffic::Traffic;
use apportion_domain::{LatencyRule, Pipeline, PipelinePlan, SLACK};

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
        LatencyRule::Path if part.flows.is_empty() => check_busy(pipeline, groups, traffic, findings),
        LatencyRule::Path => check_paths(pipeline, part, groups, findings),
    }
}

/// `sum of queue_factor * t_i + network <= slo` on every task path, t_i the slowest group of each task.
fn check_tasks(pipeline: &Pipeline, groups: &ResolvedGroups<'_>, findings: &mut Vec<Finding>) {
    let charges = charges(pipeline, groups, |_| true);
    report(pipeline, longest(pipeline, &charges, |_| true), findings);
}

/// Rule `path` without flows: every combination of groups with traffic is a path, so the slowest of each task count.
fn check_busy(pipeline: &Pipeline, groups: &ResolvedGroups<'_>, traffic: &Traffic, findings: &mut Vec<Finding>) {
    let charges = charges(pipeline, groups, |g| traffic.share[g] > 0.0);
    report(pipeline, longest(pipeline, &charges, |primary| primary), findings);
}

fn check_paths(pipeline: &Pipeline, part: &PipelinePlan, groups: &ResolvedGroups<'_>, findings: &mut Vec<Finding>) {
    for flow in part.flows.iter().filter(|f| f.share > SLACK) {
        let charge = |name| groups.position(name).map_or(0.0, |g| pipeline.hop_charge_ms(groups.groups[g].latency_ms));
        let total: f64 = flow.path.iter().map(charge).sum();
        if !at_most(total, pipeline.slo_ms) {
            let names: Vec<_> = flow.path.iter().map(ToString::to_string).collect();
            let place = format!("{}: {}", pipeline.name, names.join(" > "));
            let evidence = format!("the path takes {total:.6} ms, the SLO is {}", pipeline.slo_ms);
            findings.push(Finding::new(rules::LATENCY, place, evidence));
        }
    }
}

/// What each task charges: the slowest of its groups that count; 0 if none does, because nothing passes there.
fn charges(pipeline: &Pipeline, groups: &ResolvedGroups<'_>, counts: impl Fn(usize) -> bool) -> Vec<f64> {
    let mut charges = vec![0.0_f64; pipeline.tasks.len()];
    for (g, group) in groups.groups.iter().enumerate().filter(|&(g, _)| counts(g)) {
        let charge = &mut charges[group.task.get()];
        *charge = charge.max(pipeline.hop_charge_ms(groups.groups[g].latency_ms));
    }
    charges
}

/// The longest way from the root, and the task where it ends.
fn longest(pipeline: &Pipeline, charges: &[f64], follows: impl Fn(bool) -> bool) -> (f64, String) {
    let mut finish = vec![0.0_f64; pipeline.tasks.len()];
    let mut worst = (0.0, String::new());
    for &t in pipeline.order() {
        let before =
            pipeline.edges_into(t).filter(|e| follows(e.primary)).map(|e| finish[e.from.get()]).fold(0.0, f64::max);
        finish[t.get()] = before + charges[t.get()];
        if finish[t.get()] > worst.0 {
            worst = (finish[t.get()], pipeline.task(t).name.clone());
        }
    }
    worst
}

fn report(pipeline: &Pipeline, (total, task): (f64, String), findings: &mut Vec<Finding>) {
    if !at_most(total, pipeline.slo_ms) {
        let evidence = format!("a query may take {total:.6} ms up to {task:?}, the SLO is {}", pipeline.slo_ms);
        findings.push(Finding::new(rules::LATENCY, &pipeline.name, evidence));
    }
}
