//! Which value does a choice have by the problem's objective?

use super::choice::{GroupChoice, PlanIntegers};
use super::flows::accuracy;
use crate::exact::model::groups::FeasibleGroup;
use crate::exact::model::quotas::QuotaRow;
use crate::exact::model::space::Space;
use apportion_domain::{Mode, ObjectiveStep, PipelineIndex, Problem};

/// The objective's value of a choice: replicas, accuracy, or cost with switching.
pub(crate) fn worth(
    problem: &Problem,
    space: &Space,
    choice: &PlanIntegers,
    flows: &[Vec<f64>],
    step: Option<ObjectiveStep>,
) -> f64 {
    match (problem.objective.mode, step) {
        (Mode::HardwareThenAccuracy, Some(ObjectiveStep::Hardware)) => choice.replicas() as f64,
        (Mode::HardwareThenAccuracy | Mode::MaxAccuracy, _) => weighted_accuracy(space, flows),
        (Mode::MinCost, _) => cost(problem, space, choice) + switching(space, choice),
    }
}

fn weighted_accuracy(space: &Space, flows: &[Vec<f64>]) -> f64 {
    space.parts.iter().zip(flows).map(|(part, shares)| part.weight * accuracy(part, shares)).sum()
}

/// Devices of each hardware type that one pipeline has, in whole ones (multiples of 1/8).
pub(crate) fn devices_of_part(problem: &Problem, groups: &[FeasibleGroup], chosen: &[GroupChoice]) -> Vec<f64> {
    let mut devices = vec![0.0; problem.hardware.len()];
    for (group, choice) in groups.iter().zip(chosen) {
        devices[group.hardware.get()] += f64::from(choice.replicas) * group.share.value();
    }
    devices
}

/// By how much a choice exceeds the quotas with these rows, relative; 0 if it keeps to them. `devices` are those of each
/// pipeline.
pub(crate) fn quota_excess(rows: &[QuotaRow], devices: &[Vec<f64>]) -> f64 {
    let of = |p: PipelineIndex| devices[p.get()].as_slice();
    rows.iter().map(|row| row.excess(of)).sum()
}

/// Whole devices of each hardware type.
pub(crate) fn devices(problem: &Problem, space: &Space, choice: &PlanIntegers) -> Vec<u64> {
    let mut eighths = vec![0_u64; problem.hardware.len()];
    for (part, groups) in space.parts.iter().zip(&choice.groups) {
        for (group, choice) in part.groups.iter().zip(groups) {
            eighths[group.hardware.get()] += u64::from(choice.replicas) * u64::from(group.share.eighths());
        }
    }
    eighths.into_iter().map(|e| e.div_ceil(8)).collect()
}

/// Price of the devices of a choice.
pub(crate) fn cost(problem: &Problem, space: &Space, choice: &PlanIntegers) -> f64 {
    let of = devices(problem, space, choice);
    problem.hardware.iter().zip(of).map(|(h, devices)| h.price_per_hour * devices as f64).sum()
}

fn switching(space: &Space, choice: &PlanIntegers) -> f64 {
    let groups = space.parts.iter().zip(&choice.groups).flat_map(|(p, c)| p.groups.iter().zip(c));
    groups.map(|(g, c)| g.switch_cost * f64::from(c.replicas.saturating_sub(g.deployed))).sum()
}
