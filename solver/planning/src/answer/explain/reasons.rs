//! Why does each group run as it does? The plan and the profiles say it.

use super::binding::{BINDING, in_time};
use super::latency::{ChangedCharge, longest_ms, task_and_variant};
use apportion_domain::{
    Assignment, Binding, Constraint, Decision, HardwareIndex, Pipeline, PipelinePlan, Plan, Problem, TaskIndex,
    VariantIndex,
};
use apportion_mip::RunLimits;

/// One decision for each group, as far as time allows, without alternatives. `of_plan` are the binding limits of the plan.
pub(super) fn decisions(problem: &Problem, plan: &Plan, of_plan: &[Binding], limits: &RunLimits) -> Vec<Decision> {
    let mut all = Vec::new();
    for (pipeline, part) in problem.pipelines.iter().zip(&plan.pipelines) {
        for a in &part.assignments {
            if limits.exceeded() {
                return all;
            }
            let what = format!("{}/{}", part.name, a.group);
            let binding = binding_limits(problem, pipeline, part, a, of_plan);
            all.push(Decision { what, why: reason(pipeline, a), binding, alternatives: Vec::new() });
        }
    }
    all
}

/// The reason for a group's variant, batch size and replicas, as a sentence.
fn reason(pipeline: &Pipeline, a: &Assignment) -> String {
    if a.traffic_share <= 0.0 {
        let noun = if a.replicas == 1 { "replica" } else { "replicas" };
        return format!("{} {noun} without traffic, because the task asks for a minimum", a.replicas);
    }
    let best = task_and_variant(pipeline, &a.group).is_some_and(|(t, v)| pipeline.most_accurate(t).any(|other| other == v));
    let quality = if best { "the most accurate variant" } else { "less accurate, but faster" };
    let (noun, verb) = if a.replicas == 1 { ("replica", "serves") } else { ("replicas", "serve") };
    format!(
        "{quality}; batch {} takes {:.1} ms of the SLO of {} ms; {} {noun} {verb} {:.1} % of the task's queries at {:.0} % \
         of their capacity",
        a.batch,
        a.latency_budget_ms,
        pipeline.slo_ms,
        a.replicas,
        100.0 * a.traffic_share,
        100.0 * a.utilisation
    )
}

/// The limits that bind a group.
fn binding_limits(
    problem: &Problem,
    pipeline: &Pipeline,
    part: &PipelinePlan,
    a: &Assignment,
    of_plan: &[Binding],
) -> Vec<Binding> {
    let concerns = |b: &&Binding| match b.constraint {
        Constraint::Budget => true,
        Constraint::Accuracy => b.place == pipeline.name,
        Constraint::Capacity => b.place == a.group.hardware,
        Constraint::Latency | Constraint::Memory | Constraint::Load => false,
    };
    let mut all: Vec<Binding> = of_plan.iter().filter(concerns).cloned().collect();
    if a.utilisation >= BINDING {
        let place = format!("{}/{}", part.name, a.group);
        all.push(Binding { constraint: Constraint::Capacity, place, used: a.utilisation, limit: 1.0 });
    }
    let Some((task, variant)) = task_and_variant(pipeline, &a.group) else { return all };
    let Some(hardware) = problem.hardware_named(&a.group.hardware) else { return all };
    let place = GroupPlace { task, variant, hardware };
    all.extend(slo_against_larger_batch(problem, pipeline, part, a, place));
    all.extend(memory_against_better_variant(problem, pipeline, a, place));
    all
}

/// The task, the variant and the hardware of a group.
#[derive(Clone, Copy)]
struct GroupPlace {
    task: TaskIndex,
    variant: VariantIndex,
    hardware: HardwareIndex,
}

/// The SLO, if the next batch size of higher throughput does not fit into it.
fn slo_against_larger_batch(
    problem: &Problem,
    pipeline: &Pipeline,
    part: &PipelinePlan,
    a: &Assignment,
    place: GroupPlace,
) -> Option<Binding> {
    let GroupPlace { task, variant, hardware } = place;
    let profile = &pipeline.variant(task, variant).profile;
    let now = profile.row(hardware, a.group.share, a.batch)?.throughput_qps();
    let next = profile.on(hardware, a.group.share).iter().find(|r| r.batch > a.batch && r.throughput_qps() > now)?;
    let changed = ChangedCharge { group: &a.group, charge_ms: pipeline.hop_charge_ms(task, next.latency_ms) };
    let longest = longest_ms(problem.objective.latency_rule, pipeline, part, Some(changed));
    let name = format!("{}/{} at batch {}", part.name, a.group, next.batch);
    let binding = Binding { constraint: Constraint::Latency, place: name, used: longest, limit: pipeline.slo_ms };
    (!in_time(longest, pipeline.slo_ms)).then_some(binding)
}

/// The memory of the device, if a more accurate variant of the task does not fit into it.
fn memory_against_better_variant(
    problem: &Problem,
    pipeline: &Pipeline,
    a: &Assignment,
    place: GroupPlace,
) -> Option<Binding> {
    let GroupPlace { task, variant, hardware } = place;
    let own = pipeline.variant(task, variant).accuracy;
    let better = pipeline.task(task).variants.iter().filter(|v| v.accuracy > own);
    let there = problem.hardware_at(hardware).memory_mib? * a.group.share.value();
    let shut_out = |v: &&apportion_domain::Variant| {
        !v.profile.on(hardware, a.group.share).is_empty() && !problem.fits_memory(v.memory_mib, hardware, a.group.share)
    };
    let variant =
        better.filter(shut_out).min_by(|x, y| x.memory_mib.unwrap_or(0.0).total_cmp(&y.memory_mib.unwrap_or(0.0)))?;
    Some(Binding {
        constraint: Constraint::Memory,
        place: format!("{}/{}/{} on {}", pipeline.name, a.group.task, variant.name, a.group.hardware),
        used: variant.memory_mib.unwrap_or(0.0),
        limit: there,
    })
}
