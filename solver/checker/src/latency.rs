//! Rules `task_budget` and `path`.

use crate::flows::Flows;
use crate::resolve::{Key, Part};
use crate::{Finding, TOLERANCE};
use apportion_domain::{LatencyRule, SLACK, TaskIndex};

pub(crate) fn check(rule: LatencyRule, part: &Part<'_>, flows: &Flows, findings: &mut Vec<Finding>) {
    match rule {
        LatencyRule::TaskBudget => task_budget(part, findings),
        LatencyRule::Path => paths(part, flows, findings),
    }
}

fn too_long(part: &Part<'_>, ms: f64) -> bool {
    ms > part.pipeline.slo_ms * (1.0 + SLACK) + SLACK
}

/// The largest charge of the groups in use at each task, summed over the longest task path (all edges).
fn task_budget(part: &Part<'_>, findings: &mut Vec<Finding>) {
    let pipeline = part.pipeline;
    let charge = |t: TaskIndex| {
        let rows = part.groups.iter().filter(|g| g.key.0 == t && g.assignment.replicas > 0).map(|g| g.row.latency_ms);
        rows.map(|ms| pipeline.hop_charge_ms(ms)).fold(0.0, f64::max)
    };
    let mut ends = vec![0.0_f64; pipeline.tasks.len()];
    for &t in pipeline.order() {
        let before = pipeline.edges_into(t).map(|e| ends[e.from.get()]).fold(0.0, f64::max);
        ends[t.get()] = before + charge(t);
    }
    let (last, longest) = ends.iter().enumerate().fold((0, 0.0), |best, (t, &ms)| if ms > best.1 { (t, ms) } else { best });
    if too_long(part, longest) {
        let place = part.place(&pipeline.tasks[last].name);
        findings.push(Finding::new("latency", place, format!("budgets of {longest} ms on the way to it, SLO {}", pipeline.slo_ms)));
    }
}

/// Every prefix with traffic; over the edges that only delay, the slowest group in use at the other parent counts.
fn paths(part: &Part<'_>, flows: &Flows, findings: &mut Vec<Finding>) {
    let charge = |k: &Key| part.group(*k).map_or(0.0, |g| part.pipeline.hop_charge_ms(g.row.latency_ms));
    for (prefix, _) in flows.iter().filter(|(_, share)| **share > TOLERANCE) {
        let ms: f64 = prefix.iter().map(charge).sum();
        if too_long(part, ms) {
            let names: Vec<_> = prefix.iter().filter_map(|k| part.group(*k)).map(|g| g.assignment.group.to_string()).collect();
            findings.push(Finding::new("latency", part.place(names.join(" > ")), format!("{ms} ms, SLO {}", part.pipeline.slo_ms)));
            return;
        }
    }
    if !part.pipeline.is_tree() {
        task_budget(part, findings);
    }
}
