//! How is a pipeline planned as one black box? CG-Mean and CG-Peak (InferLine, section 6).
//!
//! The black box runs the most accurate variant of each task. All tasks have one batch size: the largest whose latency
//! meets the SLO. A unit is one replica of each task. It serves as many queries of the root as its slowest task. Units
//! are added until they serve the rate: the mean of the trace, or its peak over a sliding window as long as the SLO.
//!
//! The paper leaves three things open. Latency is charged by the problem's own rule, with queue factor and network. A task
//! without a measurement at the unit's batch size runs its largest measured size below. With several kinds of hardware, a
//! unit uses one kind, or the fastest kind for each task: the unit that serves the rate at the least cost.

use super::assemble;
use super::assemble::BaselineGroup;
use super::common::{BaselinePlan, LargestPart, PART_PRECISION, answer, largest_part, no_plan, unserved_load};
use crate::answer::report;
use crate::exact::model::latency::finish_times;
use crate::options::PlanningOptions;
use crate::replay;
use apportion_domain::{
    ArrivalTrace, Constraint, HardwareIndex, LatencyRule, Moment, Pipeline, PlanOutcome, PlanningReport, Problem,
    ProfileRow, Relaxation, SLACK, Share, Shortfall, StopReason, TaskIndex, VariantIndex,
};
use apportion_estimator::{Arrivals, Workload, expected_requests};
use apportion_mip::RunLimits;
use std::collections::VecDeque;

/// Most units of one pipeline.
const UNITS_MAX: f64 = 1e6;

/// The rate of the trace that the plan serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlannedRate {
    /// Queries over the length of the trace.
    Mean,
    /// The most in any window of one SLO, over its length.
    Peak,
}

/// Plans each pipeline as a unit, replicated for a rate of the trace. Without a trace it uses the default trace.
pub(crate) fn plan(problem: &Problem, options: &PlanningOptions, rate: PlannedRate) -> (PlanOutcome, PlanningReport) {
    let default = replay::default_workload(problem);
    let workload = options.trace.as_ref().unwrap_or(&default);
    let limits = options.limits().for_search();
    let mut choices = Vec::new();
    for (p, pipeline) in problem.pipelines.iter().enumerate() {
        let units = units(problem, pipeline);
        if units.is_empty() {
            return no_plan(problem, options, too_slow(problem, p, pipeline));
        }
        if rate == PlannedRate::Peak && expected_requests(&workload.traces[p]) > replay::REPLAY_VISITS_MAX as f64 {
            return report::report_unknown(options, StopReason::ReplayTooLarge);
        }
        choices.push(UnitChoice { units, rate_qps: rate_of(workload, p, pipeline, rate, &limits) });
        if let Some(stopped) = limits.stop_reason() {
            return report::report_unknown(options, stopped);
        }
    }
    let rates: Vec<f64> = choices.iter().map(|c| c.rate_qps).collect();
    // replicating units never fails, so the error does not occur
    let largest = largest_part(PART_PRECISION, |part| Ok(replicate_units(problem, &choices, part)));
    let Ok(Some(LargestPart { part, plan: groups })) = largest else {
        return no_plan(problem, options, unserved_load(problem, &rates, 0.0));
    };
    // a plan for a peak also serves the demand; a plan for less states its demand
    let served = rates.iter().zip(&problem.pipelines).map(|(rate, p)| (rate * part).min(p.demand_qps));
    let demands: Vec<f64> = served.collect();
    match assemble::plan(problem, &groups, &demands) {
        Some(plan) => answer(problem, options, BaselinePlan { plan, part, rates }),
        None => report::report_unknown(options, StopReason::Unsupported),
    }
}

/// A pipeline as a unit: one group of one replica for each task, in order.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PipelineUnit {
    pub groups: Vec<BaselineGroup>,
    /// Queries of the root per second.
    pub qps: f64,
}

/// The units that meet the SLO, each with the largest batch size that does.
pub(super) fn units(problem: &Problem, pipeline: &Pipeline) -> Vec<PipelineUnit> {
    let mut places: Vec<Option<HardwareIndex>> = (0..problem.hardware.len()).map(|h| Some(HardwareIndex(h))).collect();
    places.push(None);
    let mut units: Vec<PipelineUnit> = Vec::new();
    for unit in places.into_iter().filter_map(|on| unit(problem, pipeline, on)) {
        if !units.contains(&unit) {
            units.push(unit);
        }
    }
    units
}

/// The unit on one kind of hardware, or with each task where its smallest batch is fastest.
fn unit(problem: &Problem, pipeline: &Pipeline, on: Option<HardwareIndex>) -> Option<PipelineUnit> {
    let tasks = (0..pipeline.tasks.len()).map(TaskIndex);
    let places: Vec<Place> = tasks.map(|t| fastest_place(problem, pipeline, t, on)).collect::<Option<_>>()?;
    let rows = |p: &Place| pipeline.variant(p.task, p.variant).profile.on(p.hardware, p.share);
    let mut batches: Vec<u32> = places.iter().flat_map(|p| rows(p).iter().map(|r| r.batch)).collect();
    batches.sort_unstable();
    batches.dedup();
    let slo = pipeline.slo_ms + SLACK * pipeline.slo_ms.max(1.0);
    let at = |batch: u32| -> Option<Vec<&ProfileRow>> {
        places.iter().map(|p| rows(p).iter().rfind(|r| r.batch <= batch)).collect()
    };
    let fits = |chosen: &Vec<&ProfileRow>| {
        let charge = |(place, row): (&Place, &&ProfileRow)| pipeline.hop_charge_ms(place.task, row.latency_ms);
        let charges: Vec<f64> = places.iter().zip(chosen).map(charge).collect();
        finish_times(pipeline, LatencyRule::TaskBudget, &charges).into_iter().fold(0.0, f64::max) <= slo
    };
    let chosen = batches.iter().rev().find_map(|&batch| at(batch).filter(|rows| fits(rows)))?;
    let group = |(p, row): (&Place, &&ProfileRow)| BaselineGroup {
        task: p.task,
        variant: p.variant,
        hardware: p.hardware,
        share: p.share,
        batch: row.batch,
        replicas: 1,
        traffic: 1.0,
    };
    let groups: Vec<BaselineGroup> = places.iter().zip(&chosen).map(group).collect();
    let visits = assemble::visits(pipeline, &groups);
    let per_task = chosen.iter().zip(&visits).filter(|(_, v)| **v > 0.0).map(|(row, v)| row.throughput_qps() / v);
    Some(PipelineUnit { qps: per_task.fold(f64::INFINITY, f64::min), groups })
}

/// Where a task runs a variant.
#[derive(Clone, Copy)]
struct Place {
    task: TaskIndex,
    variant: VariantIndex,
    hardware: HardwareIndex,
    share: Share,
}

/// The place where a task's most accurate variant runs its smallest batch fastest; among equals the smallest share.
fn fastest_place(problem: &Problem, pipeline: &Pipeline, task: TaskIndex, on: Option<HardwareIndex>) -> Option<Place> {
    let mut best: Option<(f64, Place)> = None;
    for variant in pipeline.most_accurate(task) {
        let of = pipeline.variant(task, variant);
        for (hardware, share) in of.profile.places().filter(|&(h, _)| on.is_none_or(|on| on == h)) {
            let exists = problem.hardware_at(hardware).count != Some(0);
            if !exists || !problem.fits_memory(of.memory_mib, hardware, share) {
                continue;
            }
            let latency = of.profile.on(hardware, share)[0].latency_ms;
            let better = best.is_none_or(|(least, at)| latency < least || (latency == least && share < at.share));
            if better {
                best = Some((latency, Place { task, variant, hardware, share }));
            }
        }
    }
    best.map(|(_, place)| place)
}

/// The rate of a pipeline's trace, in queries of the root per second. The count ends when a limit is reached.
pub(super) fn rate_of(workload: &Workload, p: usize, pipeline: &Pipeline, rate: PlannedRate, limits: &RunLimits) -> f64 {
    /// Arrivals between two checks of the limits.
    const ARRIVALS_PER_CHECK: u64 = 1 << 16;
    let trace = &workload.traces[p];
    match rate {
        PlannedRate::Mean => mean_rate(trace),
        PlannedRate::Peak => {
            let arrivals = Arrivals::new(trace, workload.arrivals, workload.seed, &pipeline.name);
            let counted = (1_u64..).zip(arrivals).take_while(|(n, _)| n % ARRIVALS_PER_CHECK != 0 || !limits.exceeded());
            // A window longer than the trace sees less than the mean.
            peak_rate(counted.map(|(_, moment)| moment), pipeline.slo_ms).max(mean_rate(trace))
        }
    }
}

/// Queries over the length of a trace, which ends with its last second or arrival; at least one second long.
pub(super) fn mean_rate(trace: &ArrivalTrace) -> f64 {
    match trace {
        ArrivalTrace::Rates(rows) => {
            let seconds = rows.last().map_or(1, |&(last, _)| last + 1);
            rows.iter().map(|&(_, qps)| qps).sum::<f64>() / seconds as f64
        }
        ArrivalTrace::Arrivals(moments) => {
            let seconds = moments.last().map_or(1.0, |m| m.as_millis() / 1000.0).max(1.0);
            moments.len() as f64 / seconds
        }
    }
}

/// The most arrivals in any window `[t, t + window)`, per second.
pub(super) fn peak_rate(arrivals: impl Iterator<Item = Moment>, window_ms: f64) -> f64 {
    let window = (window_ms * 1e6).round().max(1.0) as u64;
    let mut inside: VecDeque<Moment> = VecDeque::new();
    let mut most = 0;
    for moment in arrivals {
        while inside.front().is_some_and(|first| moment.since(*first).as_nanos() >= window) {
            inside.pop_front();
        }
        inside.push_back(moment);
        most = most.max(inside.len());
    }
    most as f64 / (window as f64 / 1e9)
}

/// The units of one pipeline, and the rate that they must serve.
struct UnitChoice {
    units: Vec<PipelineUnit>,
    /// Queries of the root per second.
    rate_qps: f64,
}

/// A unit, replicated for a rate.
struct ReplicatedUnit {
    groups: Vec<BaselineGroup>,
    /// Devices of each hardware type, in eighths, with the pipelines before this one.
    used_eighths: Vec<u64>,
    /// Price per hour of these devices.
    price: f64,
}

/// The groups of all pipelines for a part of their rates: each takes, in order, the unit that is cheapest and still fits.
fn replicate_units(problem: &Problem, choices: &[UnitChoice], part: f64) -> Option<Vec<Vec<BaselineGroup>>> {
    let mut eighths = vec![0_u64; problem.hardware.len()];
    let mut all = Vec::with_capacity(choices.len());
    let mut cost = 0.0;
    for (pipeline, choice) in problem.pipelines.iter().zip(choices) {
        let mut best: Option<ReplicatedUnit> = None;
        for unit in &choice.units {
            let Some(groups) = replicate_unit(pipeline, unit, choice.rate_qps * part) else { continue };
            let mut used = eighths.clone();
            for g in &groups {
                used[g.hardware.get()] += u64::from(g.replicas) * u64::from(g.share.eighths());
            }
            let fits =
                problem.hardware.iter().zip(&used).all(|(h, e)| h.count.is_none_or(|c| e.div_ceil(8) <= u64::from(c)));
            let price =
                problem.hardware.iter().zip(&used).map(|(h, e)| h.price_per_hour * e.div_ceil(8) as f64).sum::<f64>();
            if fits && best.as_ref().is_none_or(|b| price < b.price) {
                best = Some(ReplicatedUnit { groups, used_eighths: used, price });
            }
        }
        let best = best?;
        cost = best.price;
        eighths = best.used_eighths;
        all.push(best.groups);
    }
    let affordable = problem.objective.budget_per_hour.is_none_or(|budget| cost <= budget + SLACK * budget.max(1.0));
    affordable.then_some(all)
}

/// A unit as often as a rate needs, and at least as often as minimum replicas and survivable losses need.
fn replicate_unit(pipeline: &Pipeline, unit: &PipelineUnit, rate: f64) -> Option<Vec<BaselineGroup>> {
    let units = (rate / unit.qps * (1.0 - SLACK)).ceil();
    if units > UNITS_MAX {
        return None;
    }
    let least = pipeline.tasks.iter().map(|t| t.min_replicas).max().unwrap_or(1).max(1);
    let replicas = (units as u32).max(1).saturating_add(pipeline.survive).max(least);
    Some(unit.groups.iter().map(|g| BaselineGroup { replicas, ..g.clone() }).collect())
}

/// The shortfall if there is no unit: the most accurate variants are too slow with their smallest batch, or run nowhere.
fn too_slow(problem: &Problem, p: usize, pipeline: &Pipeline) -> Vec<Shortfall> {
    let mut best = f64::INFINITY;
    let places = (0..problem.hardware.len()).map(|h| Some(HardwareIndex(h))).chain([None]);
    for on in places {
        let tasks = (0..pipeline.tasks.len()).map(TaskIndex);
        let charge = |place: Place| {
            let rows = pipeline.variant(place.task, place.variant).profile.on(place.hardware, place.share);
            pipeline.hop_charge_ms(place.task, rows.iter().map(|r| r.latency_ms).fold(f64::INFINITY, f64::min))
        };
        let charges: Option<Vec<f64>> = tasks.map(|t| fastest_place(problem, pipeline, t, on).map(charge)).collect();
        if let Some(charges) = charges {
            best = best.min(finish_times(pipeline, LatencyRule::TaskBudget, &charges).into_iter().fold(0.0, f64::max));
        }
    }
    let relax =
        best.is_finite().then(|| Relaxation { pointer: format!("/pipelines/{p}/slo_ms"), from: pipeline.slo_ms, to: best });
    let (asked, best) = (pipeline.slo_ms, if best.is_finite() { best } else { 0.0 });
    vec![Shortfall { constraint: Constraint::Latency, place: pipeline.name.clone(), asked, best, relax }]
}
