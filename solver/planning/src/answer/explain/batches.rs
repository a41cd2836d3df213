//! What would a neighbouring batch size of a group cost, if everything else stayed? By arithmetic alone.

use super::binding::in_time;
use super::latency::{ChangedCharge, longest_ms, task_and_variant};
use crate::exact::search::attempt::Provenance;
use crate::exact::solution::trim::replicas_for;
use apportion_domain::{
    Alternative, AlternativeKind, Assignment, Change, Consequence, Decision, HardwareIndex, Pipeline, PipelinePlan, Plan,
    Problem, ProfileRow, SLACK, TaskIndex,
};
use apportion_mip::RunLimits;

/// Adds the next smaller and the next larger batch size to the decision on each group with traffic.
pub(super) fn add_neighbours(
    problem: &Problem,
    plan: &Plan,
    provenance: Option<&Provenance>,
    decisions: &mut [Decision],
    limits: &RunLimits,
) {
    let mut decisions = decisions.iter_mut();
    for (p, (pipeline, part)) in problem.pipelines.iter().zip(&plan.pipelines).enumerate() {
        for (a, decision) in part.assignments.iter().zip(&mut decisions) {
            if limits.exceeded() {
                return;
            }
            let place = task_and_variant(pipeline, &a.group).filter(|_| a.traffic_share > 0.0);
            let Some((task, variant)) = place else { continue };
            let Some(hardware) = problem.hardware_named(&a.group.hardware) else { continue };
            let rows = pipeline.variant(task, variant).profile.on(hardware, a.group.share);
            let Some(at) = rows.iter().position(|r| r.batch == a.batch) else { continue };
            let headroom = provenance.map_or(1.0, |found| found.tightening.parts[p].headroom[task.get()]);
            let what_if = WhatIf { problem, plan, pipeline, part, a, task, hardware, now: &rows[at], headroom };
            let neighbours = [at.checked_sub(1), Some(at + 1)].into_iter().flatten().filter_map(|i| rows.get(i));
            decision.alternatives.extend(neighbours.map(|row| Alternative {
                kind: AlternativeKind::Batch,
                to: row.batch.to_string(),
                consequence: what_if.consequence_of(row),
            }));
        }
    }
}

/// One group of a plan that could run another batch size.
struct WhatIf<'a> {
    problem: &'a Problem,
    plan: &'a Plan,
    pipeline: &'a Pipeline,
    part: &'a PipelinePlan,
    a: &'a Assignment,
    task: TaskIndex,
    hardware: HardwareIndex,
    now: &'a ProfileRow,
    /// Factor on the load that the check loop asks for.
    headroom: f64,
}

impl WhatIf<'_> {
    /// The consequence of running the batch size of `row` instead.
    fn consequence_of(&self, row: &ProfileRow) -> Consequence {
        let charge_ms = self.pipeline.hop_charge_ms(self.task, row.latency_ms);
        let rule = self.problem.objective.latency_rule;
        let changed = ChangedCharge { group: &self.a.group, charge_ms };
        let longest = longest_ms(rule, self.pipeline, self.part, Some(changed));
        if !in_time(longest, self.pipeline.slo_ms) {
            return Consequence::MissesSlo { by_ms: longest - self.pipeline.slo_ms };
        }
        let replicas = self.replicas_for(row);
        let added = i64::from(replicas) - i64::from(self.a.replicas);
        let eighths: u64 = self.eighths_in_plan().saturating_add_signed(added * i64::from(self.a.group.share.eighths()));
        let devices = eighths.div_ceil(8);
        let hardware = self.problem.hardware_at(self.hardware);
        if let Some(count) = hardware.count.map(u64::from).filter(|&count| devices > count) {
            return Consequence::TooFewDevices { hardware: hardware.name.clone(), missing: devices - count };
        }
        let more = devices as f64 - self.eighths_in_plan().div_ceil(8) as f64;
        let cost_per_hour = hardware.price_per_hour * more;
        let budget = self.problem.objective.budget_per_hour.unwrap_or(f64::INFINITY);
        if self.plan.cost_per_hour + cost_per_hour > budget + SLACK * budget.clamp(1.0, 1e9) {
            return Consequence::NoPlan;
        }
        Consequence::Plan(Change { replicas: added, cost_per_hour, accuracy: 0.0 })
    }

    /// Replicas for the group's load, the survivable losses, and the task's minimum.
    fn replicas_for(&self, row: &ProfileRow) -> u32 {
        let load = self.a.utilisation * f64::from(self.a.replicas) * self.now.throughput_qps() * self.headroom;
        let carrying = replicas_for(load, row.throughput_qps()) + self.pipeline.survive;
        let of_task = self.part.assignments.iter().filter(|other| other.group.task == self.a.group.task);
        let others = of_task.map(|other| other.replicas).sum::<u32>() - self.a.replicas;
        carrying.max(self.pipeline.task(self.task).min_replicas.saturating_sub(others))
    }

    /// Devices of this hardware type in the plan, in eighths.
    fn eighths_in_plan(&self) -> u64 {
        let all = self.plan.pipelines.iter().flat_map(|p| &p.assignments);
        let here = all.filter(|other| other.group.hardware == self.a.group.hardware);
        here.map(|other| u64::from(other.replicas) * u64::from(other.group.share.eighths())).sum()
    }
}
