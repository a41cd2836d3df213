//! Why is there no plan, and which smallest single change of the problem gives one?
//!
//! First, two causes that no number of replicas can fix: too little memory, and a fastest path that misses the SLO.
//! Then one value at a time is relaxed ([`values`]), and [`relax`] finds how far. If an SLO must be relaxed although
//! more devices would also help, the shortfall is one of capacity. It is one of latency only if no number of devices
//! helps.

mod relax;
mod values;

use crate::exact::model::groups::least_latency_ms;
use apportion_domain::{Constraint, Pipeline, PipelineIndex, Problem, Relaxation, SLACK, Share, Shortfall, TaskIndex};
use apportion_mip::RunLimits;
use relax::RelaxationSearch;
use std::time::Duration;
use values::ProblemValue;

/// Longest search for shortfalls. They are advice, and each of them is useful alone.
const TIME_MAX: Duration = Duration::from_secs(10);
/// Least time for the search, even if solving has used up the limit of the run: an outcome without a reason is useless.
const TIME_MIN: Duration = Duration::from_millis(300);
/// Largest share of the remaining time for one value.
const VALUE_SHARE: f64 = 0.25;

/// Result of a search with any number of devices and any budget.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MoreDevices {
    /// There is a plan.
    GivePlan,
    /// No plan was found.
    GiveNoPlan,
}

/// The shortfalls of an infeasible problem; never empty.
pub(crate) fn shortfalls(problem: &Problem, limits: &RunLimits) -> Vec<Shortfall> {
    let left = limits.time_left().map_or(TIME_MAX, |left| left.clamp(TIME_MIN, TIME_MAX));
    // after a stop too, the search gets some time
    let limits = limits.without_listener().for_finishing().ending_at((limits.elapsed)() + left);
    let relax = RelaxationSearch::new(problem, &limits);
    let mut found: Vec<Shortfall> =
        (0..problem.pipelines.len()).filter_map(|p| unfixable_by_replicas(problem, PipelineIndex(p))).collect();
    if !found.is_empty() {
        add_relaxations(problem, &relax, &mut found);
        return found;
    }
    let without_limits = relax.is_feasible(&unlimited(problem), &limits.with_share_of_time(VALUE_SHARE));
    let more_devices = if without_limits == Some(true) { MoreDevices::GivePlan } else { MoreDevices::GiveNoPlan };
    for limit in values::limiting_values(problem) {
        if limits.exceeded() {
            tracing::info!("out of time for further shortfalls");
            break;
        }
        let to = relax.nearest_feasible(limit, &limits.with_share_of_time(VALUE_SHARE));
        found.extend(to.map(|to| shortfall(problem, limit, to, more_devices)));
    }
    if found.is_empty() {
        found.push(unexplained_shortfall(problem, more_devices));
    }
    found
}

/// Whether some pipeline misses its SLO with any number of replicas, or fits into no memory.
pub(crate) fn is_hopeless(problem: &Problem) -> bool {
    (0..problem.pipelines.len()).any(|p| unfixable_by_replicas(problem, PipelineIndex(p)).is_some())
}

/// By how much the fastest path of a pipeline misses its SLO, in milliseconds; `None` if it meets the SLO.
pub(crate) fn misses_by(problem: &Problem, p: PipelineIndex) -> Option<f64> {
    let slo = problem.pipeline(p).slo_ms;
    least_latency_ms(problem, p).ok().filter(|&best| best > slo + SLACK * slo.max(1.0)).map(|best| best - slo)
}

/// The problem without device counts, without a budget and without quotas.
fn unlimited(problem: &Problem) -> Problem {
    let change = |d: &mut apportion_domain::ProblemDraft| {
        d.hardware.iter_mut().for_each(|h| h.count = None);
        d.objective.budget_per_hour = None;
        d.quotas.clear();
    };
    problem.changed(change).expect("limits may be left out")
}

/// The shortfall of a pipeline that no number of replicas can fix, without a relaxation.
fn unfixable_by_replicas(problem: &Problem, p: PipelineIndex) -> Option<Shortfall> {
    let pipeline = problem.pipeline(p);
    match least_latency_ms(problem, p) {
        Err(task) => Some(memory_shortfall(problem, pipeline, task)),
        Ok(best) if best > pipeline.slo_ms + SLACK * pipeline.slo_ms.max(1.0) => Some(Shortfall {
            constraint: Constraint::Latency,
            place: pipeline.name.clone(),
            asked: pipeline.slo_ms,
            best,
            relax: None,
        }),
        Ok(_) => None,
    }
}

/// The memory of a device at one place of a variant.
#[derive(Clone, Copy, Default)]
struct MemoryNeed {
    /// Of a whole device, so that the variant fits into its share.
    needed_mib: f64,
    /// Of a whole device as it is.
    device_mib: f64,
}

/// The shortfall of a task that fits into no device: the least increase of memory over its measured places.
fn memory_shortfall(problem: &Problem, pipeline: &Pipeline, task: TaskIndex) -> Shortfall {
    let mut best: Option<MemoryNeed> = None;
    for variant in &pipeline.task(task).variants {
        let needed = variant.memory_mib.unwrap_or(0.0);
        for (hardware, share) in variant.profile.places() {
            let device_mib = problem.hardware_at(hardware).memory_mib.unwrap_or(f64::INFINITY);
            let needed_mib = needed / Share::value(share);
            if best.is_none_or(|b| needed_mib - device_mib < b.needed_mib - b.device_mib) {
                best = Some(MemoryNeed { needed_mib, device_mib });
            }
        }
    }
    let best = best.unwrap_or_default();
    let place = format!("{}/{}", pipeline.name, pipeline.task(task).name);
    Shortfall { constraint: Constraint::Memory, place, asked: best.needed_mib, best: best.device_mib, relax: None }
}

/// Adds relaxations to the shortfalls that no replicas can fix: an SLO that is long enough at the demand, or a memory
/// that is large enough. Further single changes that help are added as shortfalls.
fn add_relaxations(problem: &Problem, relax: &RelaxationSearch<'_>, found: &mut Vec<Shortfall>) {
    let change = |limit: ProblemValue, to: f64| Relaxation { pointer: limit.pointer(), from: limit.now(problem), to };
    let mut others = Vec::new();
    for limit in
        values::limiting_values(problem).into_iter().filter(|k| matches!(k, ProblemValue::Slo(_) | ProblemValue::Memory(_)))
    {
        if relax.limits.exceeded() {
            break;
        }
        let Some(to) = relax.nearest_feasible(limit, &relax.limits.with_share_of_time(VALUE_SHARE)) else { continue };
        let open = |s: &&mut Shortfall| s.relax.is_none();
        let own = found.iter_mut().filter(open).find(|s| match limit {
            ProblemValue::Slo(p) => s.constraint == Constraint::Latency && s.place == problem.pipeline(p).name,
            _ => s.constraint == Constraint::Memory,
        });
        match own {
            Some(own) => own.relax = Some(change(limit, to)),
            None => others.push(shortfall(problem, limit, to, MoreDevices::GiveNoPlan)),
        }
    }
    found.extend(others);
}

/// The shortfall of a value that must be relaxed.
fn shortfall(problem: &Problem, limit: ProblemValue, to: f64, more_devices: MoreDevices) -> Shortfall {
    let constraint = match limit {
        ProblemValue::Count(_) | ProblemValue::Demand(_) | ProblemValue::MinReplicas(..) | ProblemValue::Survive(_) => {
            Constraint::Capacity
        }
        ProblemValue::Slo(_) if more_devices == MoreDevices::GivePlan => Constraint::Capacity,
        ProblemValue::Slo(_) => Constraint::Latency,
        ProblemValue::Floor(_) => Constraint::Accuracy,
        ProblemValue::Budget => Constraint::Budget,
        ProblemValue::Memory(_) => Constraint::Memory,
    };
    let now = limit.now(problem);
    // for devices, money and memory the plan asks and the problem has; for all other values it is the reverse
    let (asked, best) = match limit {
        ProblemValue::Count(_) | ProblemValue::Budget | ProblemValue::Memory(_) => (to, now),
        _ => (now, to),
    };
    let relax = Some(Relaxation { pointer: limit.pointer(), from: now, to });
    Shortfall { constraint, place: limit.place(problem), asked, best, relax }
}

/// The shortfall if no single change helps, or if the time was too short to find one.
fn unexplained_shortfall(problem: &Problem, more_devices: MoreDevices) -> Shortfall {
    let place = problem.pipelines.iter().map(|p| p.name.as_str()).collect::<Vec<_>>().join(", ");
    let floored = problem.pipelines.iter().filter_map(|p| p.min_accuracy).fold(0.0, f64::max);
    if more_devices == MoreDevices::GiveNoPlan && floored > 0.0 {
        return Shortfall { constraint: Constraint::Accuracy, place, asked: floored, best: 0.0, relax: None };
    }
    let demand: f64 = problem.pipelines.iter().map(|p| p.demand_qps).sum();
    Shortfall { constraint: Constraint::Capacity, place, asked: demand, best: 0.0, relax: None }
}
