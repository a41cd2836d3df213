//! Do the sums of a plan agree with its claims, its devices and its budget? A claim of 0 counts as not made.

use crate::compare::{agrees, at_most};
use crate::finding::Finding;
use crate::groups::ResolvedGroups;
use crate::rules;
use crate::traffic::Traffic;
use apportion_domain::{Pipeline, PipelinePlan, Plan, Problem, SLACK};

/// Checks whole devices against counts, and their price against the budget and the claimed cost.
pub(crate) fn check_devices(problem: &Problem, plan: &Plan, findings: &mut Vec<Finding>) {
    let mut cost = 0.0;
    for (name, devices) in plan.devices() {
        let Some(hardware) = problem.hardware_named(name).map(|h| problem.hardware_at(h)) else { continue };
        cost += hardware.price_per_hour * devices as f64;
        if let Some(count) = hardware.count.filter(|&count| devices > u64::from(count)) {
            findings.push(Finding::new(rules::DEVICES, name, format!("{devices} devices, there are {count}")));
        }
    }
    if let Some(budget) = problem.objective.budget_per_hour.filter(|&budget| !at_most(cost, budget)) {
        let evidence = format!("the devices cost {cost:.6} an hour, the budget is {budget}");
        findings.push(Finding::new(rules::BUDGET, "plan", evidence));
    }
    if plan.cost_per_hour != 0.0 && !agrees(plan.cost_per_hour, cost) {
        let evidence = format!("claims {} an hour, the devices cost {cost}", plan.cost_per_hour);
        findings.push(Finding::new(rules::CLAIMED_COST, "plan", evidence));
    }
}

/// Checks the devices of each quota's pipelines. A pipeline counts the whole devices that it has by itself.
pub(crate) fn check_quotas(problem: &Problem, plan: &Plan, findings: &mut Vec<Finding>) {
    for quota in &problem.quotas {
        let mut devices = vec![0_u64; problem.hardware.len()];
        for part in quota.pipelines.iter().filter_map(|&p| plan.pipeline(&problem.pipeline(p).name)) {
            let alone = Plan { pipelines: vec![part.clone()], cost_per_hour: 0.0 };
            for (name, count) in alone.devices() {
                if let Some(h) = problem.hardware_named(name) {
                    devices[h.get()] += count;
                }
            }
        }
        let mut refuse = |evidence: String| findings.push(Finding::new(rules::QUOTA, &quota.name, evidence));
        for ((hardware, &has), count) in problem.hardware.iter().zip(&devices).zip(&quota.counts) {
            if let Some(count) = count.filter(|&count| has > u64::from(count)) {
                refuse(format!("{has} {}, the quota is {count}", hardware.name));
            }
        }
        let all: u64 = devices.iter().sum();
        if let Some(most) = quota.devices.filter(|&most| all > u64::from(most)) {
            refuse(format!("{all} devices, the quota is {most}"));
        }
        let cost: f64 = problem.hardware.iter().zip(&devices).map(|(h, &n)| h.price_per_hour * n as f64).sum();
        if let Some(most) = quota.cost_per_hour.filter(|&most| !at_most(cost, most)) {
            refuse(format!("the devices cost {cost:.6} an hour, the quota is {most}"));
        }
    }
}

/// Checks the accuracy floor, and the claims of one pipeline's part.
pub(crate) fn check_pipeline(
    pipeline: &Pipeline,
    part: &PipelinePlan,
    groups: &ResolvedGroups<'_>,
    traffic: &Traffic,
    findings: &mut Vec<Finding>,
) {
    let accuracy = traffic.accuracy;
    if let Some(floor) = pipeline.min_accuracy.filter(|floor| accuracy < floor - SLACK) {
        let evidence = format!("the flows give {accuracy:.9}, the floor is {floor}");
        findings.push(Finding::new(rules::ACCURACY, &pipeline.name, evidence));
    }
    if part.accuracy != 0.0 && !agrees(part.accuracy, accuracy) {
        let evidence = format!("claims {}, the flows give {accuracy}", part.accuracy);
        findings.push(Finding::new(rules::CLAIMED_ACCURACY, &pipeline.name, evidence));
    }
    let mut totals = vec![0.0; pipeline.tasks.len()];
    for (g, group) in groups.groups.iter().enumerate() {
        totals[group.task.get()] += traffic.load_qps[g];
    }
    for (g, (group, assignment)) in groups.groups.iter().zip(&part.assignments).enumerate() {
        let mut claim = |rule, claimed: f64, computed: f64| {
            if claimed != 0.0 && !agrees(claimed, computed) {
                let evidence = format!("claims {claimed}, computed is {computed}");
                findings.push(Finding::new(rule, groups.place(group.name), evidence));
            }
        };
        let charge_ms = pipeline.hop_charge_ms(group.task, group.latency_ms);
        claim(rules::CLAIMED_LATENCY, assignment.latency_budget_ms, charge_ms);
        let load = traffic.load_qps[g];
        let total = totals[group.task.get()];
        if total > 0.0 {
            claim(rules::CLAIMED_TRAFFIC, assignment.traffic_share, load / total);
        }
        claim(rules::CLAIMED_UTILISATION, assignment.utilisation, load / (f64::from(group.replicas) * group.replica_qps));
    }
}
