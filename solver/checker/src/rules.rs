//! Rules about devices, groups, capacity and accuracy.

use crate::flows::{Flows, multiplier};
use crate::resolve::{Key, Part};
use crate::{Finding, TOLERANCE, above, differ};
use apportion_domain::{AccuracyModel, Plan, Problem, SLACK, TaskIndex};
use std::collections::BTreeMap;

/// Devices within the counts, their price within the budget and as claimed.
pub(crate) fn devices(problem: &Problem, plan: &Plan, findings: &mut Vec<Finding>) {
    let mut cost = 0.0;
    for hardware in &problem.hardware {
        let groups = plan.pipelines.iter().flat_map(|p| &p.assignments).filter(|a| a.group.hardware == hardware.name);
        let shares: f64 = groups.map(|a| f64::from(a.replicas) * a.group.share.value()).sum();
        let whole = (shares - SLACK).ceil().max(0.0);
        cost += whole * hardware.price_per_hour;
        if let Some(count) = hardware.count.filter(|&count| whole > f64::from(count)) {
            findings.push(Finding::new("count", &hardware.name, format!("{whole} devices needed, there are {count}")));
        }
    }
    if differ(cost, plan.cost_per_hour) {
        findings.push(Finding::new("cost", "plan", format!("the devices cost {cost} per hour, the plan says {}", plan.cost_per_hour)));
    }
    if let Some(budget) = problem.objective.budget_per_hour.filter(|&b| above(cost, b)) {
        findings.push(Finding::new("budget", "plan", format!("the devices cost {cost} per hour, the budget is {budget}")));
    }
}

/// Replicas and memory of each group, replicas of each task, and the claims made for groups.
pub(crate) fn groups(problem: &Problem, part: &Part<'_>, findings: &mut Vec<Finding>) {
    for group in &part.groups {
        let place = part.place(&group.assignment.group);
        let (task, variant, hardware, share) = group.key;
        if group.assignment.replicas == 0 {
            findings.push(Finding::new("replicas", &place, "a group without replicas"));
        }
        let memory = part.pipeline.variant(task, variant).memory_mib;
        if !problem.fits_memory(memory, hardware, share) {
            let evidence = format!("{} MiB do not fit {share} of {}", memory.unwrap_or(0.0), problem.hardware_at(hardware).name);
            findings.push(Finding::new("memory", &place, evidence));
        }
        let (claimed, charge) = (group.assignment.latency_budget_ms, part.pipeline.hop_charge_ms(group.row.latency_ms));
        if claimed != 0.0 && differ(claimed, charge) {
            findings.push(Finding::new("claim", &place, format!("latency_budget_ms {claimed}, by the profile {charge}")));
        }
    }
    for (t, task) in part.pipeline.tasks.iter().enumerate() {
        let here = part.groups.iter().filter(|g| g.key.0 == TaskIndex(t));
        let replicas: u64 = here.map(|g| u64::from(g.assignment.replicas)).sum();
        if replicas > 0 && replicas < u64::from(task.min_replicas) {
            let evidence = format!("{replicas} replicas, at least {} are asked for", task.min_replicas);
            findings.push(Finding::new("min_replicas", part.place(&task.name), evidence));
        }
    }
}

/// Load of every group within the capacity that is left when `survive` of its replicas are lost.
pub(crate) fn capacity(part: &Part<'_>, flows: &Flows, findings: &mut Vec<Finding>) {
    let demand = part.pipeline.demand_qps;
    let mut load: BTreeMap<Key, f64> = BTreeMap::new();
    for (prefix, share) in flows {
        *load.entry(prefix[prefix.len() - 1]).or_default() += demand * share * multiplier(part, prefix);
    }
    for group in &part.groups {
        let load = load.get(&group.key).copied().unwrap_or(0.0);
        let surviving = f64::from(group.assignment.replicas) - f64::from(part.pipeline.survive);
        let capacity = surviving.max(0.0) * group.row.throughput_qps();
        let place = part.place(&group.assignment.group);
        if load > capacity + TOLERANCE * capacity.max(1e-3) {
            findings.push(Finding::new("capacity", &place, format!("{load} queries/s, capacity {capacity}")));
        }
        let whole = f64::from(group.assignment.replicas) * group.row.throughput_qps();
        let (claimed, used) = (group.assignment.utilisation, load / whole);
        if claimed != 0.0 && (claimed - used).abs() > 1e-3 {
            findings.push(Finding::new("claim", &place, format!("utilisation {claimed}, by the flows {used}")));
        }
    }
}

/// Accuracy by the flows: as claimed, and not below the floor.
pub(crate) fn accuracy(part: &Part<'_>, flows: &Flows, findings: &mut Vec<Finding>) {
    let accuracy = of_flows(part, flows);
    let claimed = part.plan.accuracy;
    if claimed != 0.0 && differ(claimed, accuracy) {
        findings.push(Finding::new("accuracy", part.place("accuracy"), format!("{claimed} is claimed, the flows give {accuracy}")));
    }
    if let Some(floor) = part.pipeline.min_accuracy.filter(|&f| above(f, accuracy)) {
        findings.push(Finding::new("accuracy_floor", part.place("accuracy"), format!("{accuracy}, the floor is {floor}")));
    }
}

fn of_flows(part: &Part<'_>, flows: &Flows) -> f64 {
    let pipeline = part.pipeline;
    if pipeline.accuracy_model == AccuracyModel::TaskMean {
        let stage = |(prefix, share): (&Vec<Key>, &f64)| {
            let (task, variant, ..) = prefix[prefix.len() - 1];
            share * pipeline.variant(task, variant).accuracy
        };
        return flows.iter().map(stage).sum::<f64>() / pipeline.tasks.len() as f64;
    }
    let mut total = 0.0;
    for (prefix, share) in flows {
        let path: Vec<_> = prefix.iter().map(|k| (k.0, k.1)).collect();
        let last = prefix[prefix.len() - 1];
        let ended: f64 = pipeline
            .sinks()
            .filter(|&sink| sink == last.0 || is_cut_off(part, last, sink))
            .map(|sink| pipeline.leaf_weight(sink))
            .sum();
        if ended > 0.0 {
            total += share * ended * pipeline.path_accuracy(&path);
        }
    }
    total
}

/// Whether `sink` lies below a child at which queries of `last` make none.
fn is_cut_off(part: &Part<'_>, last: Key, sink: TaskIndex) -> bool {
    let mut below = sink;
    while let Some(edge) = part.pipeline.primary_parent(below) {
        if edge.from == last.0 {
            return part.pipeline.fanout(edge, last.1) <= 0.0;
        }
        below = edge.from;
    }
    false
}
