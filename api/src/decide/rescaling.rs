//! Are scaling actions carried out, and what are they in words?
//!
//! Example: two replicas of `find-l` run on a `t4`, and the load doubles. INFaaS's model-horizontal action replicates
//! `find-l`; the model-vertical action loads `find-s`, which serves more, or the same variant on other hardware (section
//! 4.2).
//!
//! Actions for more load come at once, where the plan in force does not hold any more. Actions that only save come late:
//! the demand is that of a stabilisation window ([`super::replan`]), and the plan in force is not young. They must save
//! more than their loads cost by the programme's own objective, and the new plan must hold on fresh samples.

use super::replacement::{JudgedSides, ReplacementDecision, choose_where_it_fails};
use super::replan::{ChoiceByMisses, ReplanInput};
use apportion_domain::{Assignment, GroupName, PipelinePlan, Problem, SLACK, TaskIndex, Variant};
use apportion_planning::scaling::rescale::price_per_hour;
use apportion_wire::ScalingReplanSpec;
use apportion_wire::spec::DeployedSpec;
use std::collections::BTreeSet;
use std::fmt;

/// What is done with the replicas of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScalingMove {
    /// A variant that runs gets more replicas.
    Replicate,
    /// A variant is loaded that costs more per replica than those that run, or serves more at the same cost.
    Upgrade,
    /// A variant is loaded that costs less per replica than those that run, or serves less at the same cost.
    Downgrade,
    /// A variant is loaded where none runs.
    Load,
    /// A variant keeps fewer replicas.
    Remove,
    /// A variant keeps none.
    Unload,
}

impl ScalingMove {
    /// Its name in reasons.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Replicate => "replicate",
            Self::Upgrade => "upgrade",
            Self::Downgrade => "downgrade",
            Self::Load => "load",
            Self::Remove => "remove",
            Self::Unload => "unload",
        }
    }
}

/// A change of the replicas of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupScaling {
    /// The group.
    pub group: GroupName,
    /// Its replicas under the plan in force.
    pub before: u32,
    /// Its replicas under the new plan.
    pub after: u32,
    /// What is done.
    pub step: ScalingMove,
}

impl fmt::Display for GroupScaling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} from {} to {}", self.step.name(), self.group, self.before, self.after)
    }
}

/// The groups of a plan in force that the problem still has, to be scaled from.
#[must_use]
pub fn deployed_groups(problem: &Problem, current: &PipelinePlan) -> Vec<DeployedSpec> {
    let pipeline = &problem.pipelines[0];
    let is_known = |a: &&Assignment| {
        let task = pipeline.task_named(&a.group.task);
        let has_variant = task.is_some_and(|t| variant_of(problem, t, &a.group.variant).is_some());
        has_variant && problem.hardware_named(&a.group.hardware).is_some()
    };
    let deployed = |a: &Assignment| DeployedSpec {
        pipeline: current.name.clone(),
        task: a.group.task.clone(),
        variant: a.group.variant.clone(),
        hardware: a.group.hardware.clone(),
        share: Some(a.group.share.value()),
        batch: a.batch,
        replicas: a.replicas,
    };
    current.assignments.iter().filter(is_known).map(deployed).collect()
}

/// The changes of replicas from the plan in force to a new one.
#[must_use]
pub fn scaling_steps(problem: &Problem, current: &PipelinePlan, new: &PipelinePlan) -> Vec<GroupScaling> {
    let groups: BTreeSet<&GroupName> = current.assignments.iter().chain(&new.assignments).map(|a| &a.group).collect();
    let changed = groups.into_iter().filter_map(|group| {
        let (before, after) = (replicas_of(current, group), replicas_of(new, group));
        let step = match (before, after) {
            _ if before == after => return None,
            (0, _) => vertical_move(problem, current, new, group),
            (_, 0) => ScalingMove::Unload,
            _ if after > before => ScalingMove::Replicate,
            _ => ScalingMove::Remove,
        };
        Some(GroupScaling { group: group.clone(), before, after, step })
    });
    changed.collect()
}

/// The sides of a decision about scaling actions.
#[derive(Clone, Copy, Debug)]
pub struct ScalingSides<'a> {
    /// The plan in force.
    pub current: &'a PipelinePlan,
    /// The plan after the actions.
    pub new: &'a PipelinePlan,
    /// Both, judged on fresh samples of the demand at which the plan in force must hold to stay.
    pub judged: &'a JudgedSides,
}

/// Decides whether the actions are carried out.
#[must_use]
pub fn choose_scaling(
    wish: &ReplanInput,
    problem: &Problem,
    sides: ScalingSides<'_>,
    settings: &ScalingReplanSpec,
) -> ReplacementDecision {
    let ScalingSides { current, new, judged } = sides;
    if let Some(choice) = choose_where_it_fails(problem, judged) {
        return choice;
    }
    let steps = scaling_steps(problem, current, new);
    let prices = ActionPrices::of(problem, &steps, settings.lambda);
    if let Some(missed) = wish.missed {
        let serves_more = capacity_of(problem, new) > capacity_of(problem, current) * (1.0 + SLACK);
        return match wish.choose_by_misses(missed, serves_more.then_some(""), "no action serves more") {
            ChoiceByMisses::Replace(why) => ReplacementDecision::replace(why),
            ChoiceByMisses::Keep(why) => ReplacementDecision::keep(why),
        };
    }
    if steps.is_empty() {
        return ReplacementDecision::keep("the plan in force still holds, and no action costs less");
    }
    if prices.saved <= 0.0 {
        return ReplacementDecision::keep("the plan in force still holds, and more replicas are not needed yet");
    }
    if prices.saved <= prices.loading + SLACK {
        return ReplacementDecision::keep(format!("the plan in force still holds, and the actions cost more: {prices}"));
    }
    let asked = problem.pipelines[0].percentile / 100.0;
    match (judged.new >= asked, wish.may_improve) {
        (false, _) => {
            let new = judged.new;
            ReplacementDecision::keep(format!("the plan in force still holds and after the actions it attains {new:.4}"))
        }
        (true, false) => ReplacementDecision::keep("the plan in force still holds and is too young to be scaled down"),
        (true, true) => ReplacementDecision::replace(format!("the load needs less: {prices}")),
    }
}

/// What actions save and cost, by the objective of INFaaS section 4.2.1 with prices per hour.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ActionPrices {
    /// The price of the replicas that run now, less that of the replicas afterwards.
    saved: f64,
    /// `lambda T_load` times the price of each replica that is loaded.
    loading: f64,
}

impl ActionPrices {
    fn of(problem: &Problem, steps: &[GroupScaling], lambda: f64) -> Self {
        let mut prices = Self { saved: 0.0, loading: 0.0 };
        for step in steps {
            let price = price_of(problem, &step.group);
            let load_s = variant_of_group(problem, &step.group).map_or(0.0, |v| v.load_ms / 1_000.0);
            prices.saved += price * (f64::from(step.before) - f64::from(step.after));
            prices.loading += lambda * load_s * price * f64::from(step.after.saturating_sub(step.before));
        }
        prices
    }
}

impl fmt::Display for ActionPrices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "they save {:.4} per hour, and their loads count {:.4}", self.saved, self.loading)
    }
}

/// How a variant is loaded that does not run. The paper goes by the cost of its hardware.
fn vertical_move(problem: &Problem, current: &PipelinePlan, new: &PipelinePlan, group: &GroupName) -> ScalingMove {
    let rank = |part: &PipelinePlan, group: &GroupName| (price_of(problem, group), throughput_of(problem, part, group));
    let own = current.assignments.iter().filter(|a| a.group.task == group.task);
    let ranks = own.map(|a| rank(current, &a.group));
    let compare = |a: &(f64, f64), b: &(f64, f64)| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1));
    match ranks.max_by(compare) {
        None => ScalingMove::Load,
        Some(highest) if compare(&rank(new, group), &highest).is_gt() => ScalingMove::Upgrade,
        Some(_) => ScalingMove::Downgrade,
    }
}

fn replicas_of(part: &PipelinePlan, group: &GroupName) -> u32 {
    part.assignments.iter().filter(|a| a.group == *group).map(|a| a.replicas).sum()
}

/// Price of one replica per hour, as the actions were chosen by; 0 on an unknown hardware type.
fn price_of(problem: &Problem, group: &GroupName) -> f64 {
    let hardware = problem.hardware_named(&group.hardware);
    hardware.map_or(0.0, |h| price_per_hour(problem, h) * group.share.value())
}

fn variant_of<'a>(problem: &'a Problem, task: TaskIndex, name: &str) -> Option<&'a Variant> {
    problem.pipelines[0].task(task).variants.iter().find(|v| v.name == name)
}

fn variant_of_group<'a>(problem: &'a Problem, group: &GroupName) -> Option<&'a Variant> {
    variant_of(problem, problem.pipelines[0].task_named(&group.task)?, &group.variant)
}

/// Queries per second of one replica of a group of a plan; 0 if it was not measured.
fn throughput_of(problem: &Problem, part: &PipelinePlan, group: &GroupName) -> f64 {
    let batch = part.assignments.iter().find(|a| a.group == *group).map(|a| a.batch);
    let row = batch.and_then(|batch| {
        let hardware = problem.hardware_named(&group.hardware)?;
        variant_of_group(problem, group)?.profile.row(hardware, group.share, batch)
    });
    row.map_or(0.0, apportion_domain::ProfileRow::throughput_qps)
}

/// Queries per second of the root that the replicas of a plan serve: those of its scarcest task, at the utilisation that
/// the plan states.
fn capacity_of(problem: &Problem, part: &PipelinePlan) -> f64 {
    let tasks = problem.pipelines[0].tasks.iter().map(|task| {
        let own = part.assignments.iter().filter(|a| a.group.task == task.name);
        let served = own.clone().map(|a| throughput_of(problem, part, &a.group) * f64::from(a.replicas));
        let loads = own.map(|a| a.utilisation * throughput_of(problem, part, &a.group) * f64::from(a.replicas));
        let (served, load) = (served.sum::<f64>(), loads.sum::<f64>());
        if load > 0.0 { part.demand_qps * served / load } else { f64::INFINITY }
    });
    tasks.fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests;
