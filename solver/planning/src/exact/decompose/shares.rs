//! Which value does each number of equal devices have for each pipeline? Only the necessary values are computed.
//!
//! Let `v_g(n)` be the highest accuracy of pipeline g on n devices, weighted. Upper bounds are the envelope of the linear
//! relaxation (`stage::envelope`) and every line `lambda n - L_g(lambda)` that column generation proved. Lower bounds are
//! all known plans. A division of the devices by the upper bounds ([`Division`]) bounds every joint plan. If the bounds of
//! that division are exact, it is a best plan. So the points of the optimistic division are solved exactly. The bounds fall
//! there, and to the left of them, because `v_g` is monotone. The devices are divided again, until both bounds meet.

use super::joint::{JointBounds, JointPlan, JointProblem, PriceBound};
use super::knapsack::Division;
use super::sub::{Column, Subproblem};
use crate::exact::model::goal::Goal;
use crate::exact::model::tolerances::ACCURACY_SLACK;
use crate::exact::solution::choice::PlanIntegers;
use crate::exact::stage::enumerate::{self, CandidateBudgets};
use crate::exact::stage::solve::StageResult;
use apportion_domain::{PipelineIndex, Problem, SLACK};
use apportion_mip::RunLimits;
use rayon::prelude::*;

/// Most divisions. Then the best plan is returned with its bound.
const ROUNDS_MAX: usize = 200;
/// Share of the requested gap at which the value of a number of devices counts as exact.
const POINT_GAP: f64 = 0.25;

/// Most pairs of numbers of devices, over all pipelines, in one division.
const DIVIDED_MAX: f64 = 1e9;

/// Bounds of `v_g`.
struct ValueCurve {
    candidates: Vec<CandidateBudgets>,
    /// Upper bound of the value of n devices; minus infinity if there is no plan.
    above: Vec<f64>,
    /// The best known plan on at most n devices.
    below: Vec<Option<Column>>,
    /// Which numbers of devices have been solved.
    solved: Vec<bool>,
}

impl ValueCurve {
    /// The curve up to all devices; `None` if there is no envelope, or if the time is up.
    fn new(sub: &Subproblem, equal: EqualDevices, cuts: &[PriceBound], limits: &RunLimits) -> Option<Self> {
        let EqualDevices { hardware, count: devices } = equal;
        if sub.part().trie.merged {
            return None;
        }
        let candidates = enumerate::budget_candidates(&sub.problem, sub.part(), devices as f64, limits)?;
        let floor = sub.problem.pipeline(PipelineIndex(0)).min_accuracy.unwrap_or(0.0);
        let envelope = |n: usize| {
            let best = candidates.iter().filter_map(|c| c.envelope.accuracy_at(n as f64)).reduce(f64::max);
            best.filter(|a| *a >= floor - SLACK).map(|a| a * sub.weight)
        };
        let line = |n: usize| {
            let lines = cuts.iter().map(|cut| cut.prices[hardware] * n as f64 - cut.cost_min);
            lines.fold(f64::INFINITY, f64::min)
        };
        let mut above: Vec<f64> =
            (0..=devices).map(|n| envelope(n).map_or(f64::NEG_INFINITY, |v| v.min(line(n)))).collect();
        for n in (0..devices).rev() {
            above[n] = above[n].min(above[n + 1]);
        }
        Some(Self { candidates, above, below: vec![None; devices + 1], solved: vec![false; devices + 1] })
    }

    /// Records a plan on this many devices.
    fn record_plan(&mut self, column: &Column, devices: usize) {
        for at in &mut self.below[devices..] {
            if at.as_ref().is_some_and(|c| c.goal <= column.goal) {
                break;
            }
            *at = Some(column.clone());
        }
    }

    /// Records an upper bound for this many devices and fewer.
    fn record_bound(&mut self, devices: usize, worth: f64) {
        self.above[..=devices].iter_mut().for_each(|a| *a = a.min(worth));
        self.solved[devices] = true;
    }

    /// The value of the best known plan, by number of devices; minus infinity without a plan.
    fn worth(&self) -> Vec<f64> {
        self.below.iter().map(|c| c.as_ref().map_or(f64::NEG_INFINITY, |c| -c.goal)).collect()
    }
}

/// The only kind of device for which all pipelines compete.
#[derive(Clone, Copy)]
pub(super) struct EqualDevices {
    /// Position of the hardware type.
    hardware: usize,
    count: usize,
}

/// The devices, if all pipelines compete for the accuracy of one counted kind of whole devices.
pub(super) fn equal_devices(joint: &JointProblem<'_>) -> Option<EqualDevices> {
    if joint.goal != Goal::Accuracy {
        return None;
    }
    let hardware = joint.subs.first()?.part().groups.first()?.hardware;
    let alike = |sub: &Subproblem| {
        sub.part().groups[0].hardware == hardware && enumerate::devices_if_applicable(&sub.problem, &sub.space).is_some()
    };
    let most = joint.shared.most[hardware.get()];
    let pairs = most * most * joint.subs.len() as f64;
    if pairs.is_nan() || pairs > DIVIDED_MAX {
        return None;
    }
    joint.subs.iter().all(alike).then_some(EqualDevices { hardware: hardware.get(), count: most as usize })
}

/// Divides equal devices until the division is proven or the limits are exceeded. Raises the joint bound. `None` if devices
/// are not equal, or if no plan was found.
pub(super) fn refine(joint: &JointProblem<'_>, known: &mut JointBounds, best: Option<&JointPlan>) -> Option<JointPlan> {
    let equal = equal_devices(joint)?;
    let EqualDevices { hardware, count: devices } = equal;
    let mut curves = Vec::with_capacity(joint.subs.len());
    for (sub, cuts) in joint.subs.iter().zip(&known.cuts) {
        curves.push(ValueCurve::new(sub, equal, cuts, &joint.limits.for_finishing())?);
    }
    for (columns, curve) in known.master.columns.iter().zip(&mut curves) {
        columns.iter().for_each(|c| curve.record_plan(c, c.devices[hardware] as usize));
    }
    if let Some(best) = best {
        best.columns.iter().zip(&mut curves).for_each(|(c, curve)| curve.record_plan(c, c.devices[hardware] as usize));
    }
    for round in 0..ROUNDS_MAX {
        let above: Vec<Vec<f64>> = curves.iter().map(|c| c.above.clone()).collect();
        let optimistic = Division::new(&above, devices);
        let worth: Vec<Vec<f64>> = curves.iter().map(ValueCurve::worth).collect();
        let most = Division::new(&worth, devices).worth[devices];
        known.bound = known.bound.max(-optimistic.worth[devices]);
        tracing::debug!(round, most, bound = -known.bound, "division");
        let Some(shares) = optimistic.shares_of(devices) else { break };
        if -known.bound - most <= joint.gap * most.abs() || joint.limits.exceeded() {
            break;
        }
        let open: Vec<usize> = (0..shares.len()).filter(|&p| !curves[p].solved[shares[p]]).collect();
        if open.is_empty() {
            break;
        }
        let measured: Vec<Measured> = open
            .par_iter()
            .map(|&p| measure(&joint.subs[p], &curves[p], hardware, shares[p], joint.gap, joint.limits))
            .collect();
        for (p, point) in open.into_iter().zip(measured) {
            if let Some(worth) = point.most {
                curves[p].record_bound(shares[p], worth);
            }
            if let Some(column) = point.column {
                curves[p].record_plan(&column, shares[p]);
            }
        }
    }
    best_division(joint, &curves, equal)
}

/// Result for one number of devices.
struct Measured {
    column: Option<Column>,
    /// Upper bound of the value; `None` if none was proven.
    most: Option<f64>,
}

/// Searches the highest accuracy of one pipeline on this many devices.
fn measure(
    sub: &Subproblem,
    curve: &ValueCurve,
    hardware: usize,
    devices: usize,
    gap: f64,
    limits: &RunLimits,
) -> Measured {
    let SmallerProblem { problem, candidates } = with_devices(sub, curve, hardware, devices);
    match enumerate::search_highest_accuracy(&problem, &sub.space, &candidates, POINT_GAP * gap, limits) {
        StageResult::Found { choice, value, bound, stopped: _ } => {
            let column = sub.column(choice, Goal::Accuracy, Some(-value), limits);
            Measured { column, most: Some(-bound * sub.weight) }
        }
        StageResult::Infeasible => Measured { column: None, most: Some(f64::NEG_INFINITY) },
        StageResult::Unknown(_) => Measured { column: None, most: None },
    }
}

/// The problem of one pipeline on a number of devices.
struct SmallerProblem {
    problem: Problem,
    /// The budget vectors that carry its demand there.
    candidates: Vec<CandidateBudgets>,
}

/// The problem of one pipeline on this many devices.
fn with_devices(sub: &Subproblem, curve: &ValueCurve, hardware: usize, devices: usize) -> SmallerProblem {
    let counts = sub.problem.hardware.iter().enumerate();
    let counts: Vec<Option<u32>> =
        counts.map(|(h, d)| if h == hardware { Some(devices as u32) } else { d.count }).collect();
    let there = |c: &CandidateBudgets| {
        let accuracy_max = c.envelope.accuracy_at(devices as f64)?;
        Some(CandidateBudgets { accuracy_max, ..c.clone() })
    };
    let mut candidates: Vec<CandidateBudgets> = curve.candidates.iter().filter_map(there).collect();
    candidates.sort_by(|a, b| b.accuracy_max.total_cmp(&a.accuracy_max));
    SmallerProblem { problem: sub.with_room(&counts, None), candidates }
}

/// The best division of the known plans, on as few devices as possible.
fn best_division(joint: &JointProblem<'_>, curves: &[ValueCurve], equal: EqualDevices) -> Option<JointPlan> {
    let EqualDevices { hardware, count: devices } = equal;
    let worth: Vec<Vec<f64>> = curves.iter().map(ValueCurve::worth).collect();
    let division = Division::new(&worth, devices);
    let most = division.worth[devices];
    let total = division.fewest_devices(most - 0.5 * ACCURACY_SLACK * most.abs())?;
    let shares = division.shares_of(total)?;
    let fewest = |(p, &share): (usize, &usize)| {
        let column = curves[p].below[share].clone()?;
        Some(with_fewer_replicas(joint, p, &curves[p], column, hardware))
    };
    let columns: Option<Vec<Column>> = shares.par_iter().enumerate().map(fewest).collect();
    joint.join(columns?)
}

/// A plan of the same value with fewer replicas, if one exists.
fn with_fewer_replicas(joint: &JointProblem<'_>, p: usize, curve: &ValueCurve, column: Column, hardware: usize) -> Column {
    let sub = &joint.subs[p];
    if joint.second.is_none() || joint.limits.exceeded() || sub.weight <= 0.0 {
        return column;
    }
    let SmallerProblem { problem, candidates } = with_devices(sub, curve, hardware, column.devices[hardware] as usize);
    let accuracy = -column.goal / sub.weight;
    let choice = PlanIntegers { groups: vec![column.groups.clone()] };
    let choice = enumerate::reduce_replicas(&problem, &sub.space, &candidates, accuracy, choice, joint.limits);
    if choice.groups[0] == column.groups {
        return column;
    }
    let fewer = sub.column(choice, Goal::Accuracy, None, joint.limits);
    fewer.filter(|c| c.goal <= column.goal + 2.0 * ACCURACY_SLACK * column.goal.abs()).unwrap_or(column)
}
