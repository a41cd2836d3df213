//! Is the deployed plan as good as the new one? Then it stays: planning again from a plan changes nothing.

use super::choice::{GroupChoice, PlanIntegers};
use super::finish::{LastValues, finish};
use super::flows::{accuracy, flows};
use super::found::BestFound;
use super::worth::{cost, devices, devices_of_part, quota_excess, worth};
use crate::exact::model::groups::{FeasibleGroup, OperatingPoint, is_same_group, usable_groups};
use crate::exact::model::latency::finish_times;
use crate::exact::model::quotas::QuotaRow;
use crate::exact::model::space::{PipelineSpace, Space};
use crate::exact::model::tightening::Tightening;
use crate::exact::model::tolerances::ACCURACY_SLACK;
use apportion_domain::{LatencyRule, Mode, ObjectiveStep, Problem, SLACK, TaskIndex};
use apportion_mip::RunLimits;

/// Replaces the solution by the deployed plan, if that is as good.
pub(crate) fn prefer_deployed(problem: &Problem, found: BestFound, limits: &RunLimits) -> BestFound {
    let Some(choice) = deployed_choice(problem, &found.space) else { return found };
    if choice == found.choice || !fits(problem, &found.space, &choice) {
        return found;
    }
    let Ok(Some(flows)) = flows(problem, &found.space, &choice, limits) else { return found };
    let floors_met = found.space.parts.iter().zip(&flows).all(|(part, shares)| {
        let floor = problem.pipeline(part.index).min_accuracy.unwrap_or(0.0);
        accuracy(part, shares) >= floor - SLACK
    });
    let value = worth(problem, &found.space, &choice, &flows, found.step);
    let slack = ACCURACY_SLACK * found.value.abs();
    let tied = match (problem.objective.mode, found.step) {
        (Mode::HardwareThenAccuracy, Some(ObjectiveStep::Hardware)) => value <= found.value,
        (Mode::HardwareThenAccuracy, _) => value >= found.value - slack && choice.replicas() <= found.choice.replicas(),
        (Mode::MaxAccuracy, _) => {
            let deployed_cost = cost(problem, &found.space, &choice);
            let found_cost = cost(problem, &found.space, &found.choice);
            value >= found.value - slack && deployed_cost <= found_cost + slack
        }
        (Mode::MinCost, _) => value <= found.value + slack,
    };
    if floors_met && tied { BestFound { choice, flows, value, ..found } } else { found }
}

/// The same solution in a space of its own groups and of the deployed ones, so that [`prefer_deployed`] can compare both.
/// `None` if there is no such space.
///
/// A heuristic searches without a look at the deployed groups. So it finds the same plan again when that is deployed.
pub(crate) fn with_deployed_groups(
    problem: &Problem,
    tightening: &Tightening,
    found: &BestFound,
    limits: &RunLimits,
) -> Option<BestFound> {
    let of_part = |(part, own): (&PipelineSpace, &Vec<GroupChoice>)| -> (Vec<FeasibleGroup>, Vec<GroupChoice>) {
        let pipeline = problem.pipeline(part.index);
        let is_first_step = found.step == Some(ObjectiveStep::Hardware);
        let wanted = |t, v| !is_first_step || pipeline.most_accurate(t).any(|best| best == v);
        let kept = |group: FeasibleGroup| {
            let mut running = part.groups.iter().zip(own).filter(|(_, c)| c.replicas > 0);
            let chosen = running.find(|(other, _)| is_same_group(other, &group));
            let batch = chosen.map(|(other, c)| other.points[c.point].batch);
            let deployed = group.deployed_batch.filter(|_| group.deployed > 0);
            let is_kept = |p: &OperatingPoint| [batch, deployed].contains(&Some(p.batch));
            let points: Vec<OperatingPoint> = group.points.iter().copied().filter(is_kept).collect();
            let point = points.iter().position(|p| Some(p.batch) == batch).unwrap_or(0);
            let replicas = chosen.map_or(0, |(_, c)| c.replicas);
            (!points.is_empty()).then_some((FeasibleGroup { points, ..group }, GroupChoice { replicas, point }))
        };
        usable_groups(problem, part.index, tightening, wanted).into_iter().filter_map(kept).unzip()
    };
    let (groups, choice): (Vec<_>, Vec<_>) = found.space.parts.iter().zip(&found.choice.groups).map(of_part).unzip();
    let space = Space::of_groups(problem, tightening, groups, &limits.for_finishing()).ok()?;
    let choice = PlanIntegers { groups: choice };
    if choice.replicas() != found.choice.replicas() {
        return None;
    }
    let last = LastValues { step: found.step, bound: found.bound };
    let same = finish(problem, space, choice, last, limits)?;
    Some(BestFound { stopped: found.stopped, ..same })
}

/// The deployed groups as a choice; `None` if one of them is not in the space, or if nothing is deployed.
fn deployed_choice(problem: &Problem, space: &Space) -> Option<PlanIntegers> {
    let running: u64 = problem.deployed.iter().map(|d| u64::from(d.replicas)).sum();
    if running == 0 {
        return None;
    }
    let mut groups = Vec::new();
    for part in &space.parts {
        let mut of_part = Vec::new();
        for group in &part.groups {
            let point = match group.deployed_batch.filter(|_| group.deployed > 0) {
                Some(batch) => group.points.iter().position(|p| p.batch == batch)?,
                None => 0,
            };
            of_part.push(GroupChoice { replicas: group.deployed, point });
        }
        groups.push(of_part);
    }
    let choice = PlanIntegers { groups };
    (choice.replicas() == running).then_some(choice)
}

/// Whether a choice keeps to counts, budget, quotas, least replicas and the latency rule.
pub(crate) fn fits(problem: &Problem, space: &Space, choice: &PlanIntegers) -> bool {
    let devices = devices(problem, space, choice);
    let counts = problem.hardware.iter().zip(devices).all(|(h, n)| h.count.is_none_or(|count| n <= u64::from(count)));
    let budget = problem.objective.budget_per_hour.is_none_or(|b| cost(problem, space, choice) <= b + SLACK * b.max(1.0));
    let each = space.parts.iter().zip(&choice.groups).map(|(part, own)| devices_of_part(problem, &part.groups, own));
    let quotas = quota_excess(&QuotaRow::all(problem), &each.collect::<Vec<_>>()) <= 0.0;
    let parts = space.parts.iter().zip(&choice.groups).all(|(part, groups)| {
        let pipeline = problem.pipeline(part.index);
        let mut charges = vec![0.0_f64; pipeline.tasks.len()];
        let mut replicas = vec![0_u32; pipeline.tasks.len()];
        for (group, c) in part.groups.iter().zip(groups).filter(|(_, c)| c.replicas > 0) {
            let t = group.task.get();
            charges[t] = charges[t].max(group.points[c.point].charge_ms);
            replicas[t] += c.replicas;
        }
        let enough = (0..replicas.len()).all(|t| replicas[t] >= pipeline.task(TaskIndex(t)).min_replicas);
        let slo = pipeline.slo_ms + SLACK * pipeline.slo_ms.max(1.0);
        // under rule `path` the flows keep to the SLO
        let in_time = || finish_times(pipeline, part.rule, &charges).iter().all(|&f| f <= slo);
        enough && (part.rule == LatencyRule::Path || in_time())
    });
    counts && budget && quotas && parts
}
