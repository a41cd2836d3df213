//! Why there is no plan, and the smallest single change of the problem that would make one.
//!
//! First what no number of replicas can fix: memory, and the fastest way against the SLO. Then one value at a time is let go
//! ([`knobs`]) and [`relax`] finds how far it has to give. An SLO that has to give although more devices would do as well is
//! a matter of capacity; of latency it is only where no number of devices helps.

mod knobs;
mod relax;

use crate::exact::model::groups::fastest;
use apportion_domain::{Constraint, Pipeline, PipelineIndex, Problem, Relaxation, SLACK, Share, Shortfall, TaskIndex};
use apportion_mip::Limits;
use knobs::ProblemValue;
use relax::RelaxationSearch;
use std::time::Duration;

/// Longest search for shortfalls: they are advice, and each answer is worth having alone.
const TIME_MAX: Duration = Duration::from_secs(10);
/// Time that it gets even where solving has used up the limit of the run: an answer without a reason helps nobody.
const TIME_MIN: Duration = Duration::from_millis(300);
/// Largest part of the time left that one value may take.
const PART: f64 = 0.25;

/// The shortfalls of an infeasible problem; never empty.
pub(crate) fn shortfalls(problem: &Problem, limits: &Limits) -> Vec<Shortfall> {
    let left = limits.time_left().map_or(TIME_MAX, |left| left.clamp(TIME_MIN, TIME_MAX));
    let limits = limits.without_listener().ending_at((limits.elapsed)() + left);
    let relax = RelaxationSearch::new(problem, &limits);
    let mut found: Vec<Shortfall> =
        (0..problem.pipelines.len()).filter_map(|p| hopeless(problem, PipelineIndex(p))).collect();
    if !found.is_empty() {
        fix(problem, &relax, &mut found);
        return found;
    }
    let by_devices = relax.is_feasible(&unlimited(problem), &limits.with_share_of_time(PART)) == Some(true);
    for knob in knobs::all(problem) {
        if limits.exceeded() {
            tracing::info!("out of time for further shortfalls");
            break;
        }
        let to = relax.least(knob, &limits.with_share_of_time(PART));
        found.extend(to.map(|to| shortfall(problem, knob, to, by_devices)));
    }
    if found.is_empty() {
        found.push(unexplained(problem, by_devices));
    }
    found
}

/// Whether some pipeline can meet its SLO with no number of replicas, or fits into no memory.
pub(crate) fn is_hopeless(problem: &Problem) -> bool {
    (0..problem.pipelines.len()).any(|p| hopeless(problem, PipelineIndex(p)).is_some())
}

/// By how much the fastest way of a pipeline misses its SLO, in milliseconds; `None` if it does not.
pub(crate) fn misses_by(problem: &Problem, p: PipelineIndex) -> Option<f64> {
    let slo = problem.pipeline(p).slo_ms;
    fastest(problem, p).ok().filter(|&best| best > slo + SLACK * slo.max(1.0)).map(|best| best - slo)
}

/// The problem with as many devices as money can buy, and any amount of money.
fn unlimited(problem: &Problem) -> Problem {
    let change = |d: &mut apportion_domain::ProblemDraft| {
        d.hardware.iter_mut().for_each(|h| h.count = None);
        d.objective.budget_per_hour = None;
    };
    problem.changed(change).expect("limits may be left out")
}

/// What no number of replicas can fix; without a relaxation yet.
fn hopeless(problem: &Problem, p: PipelineIndex) -> Option<Shortfall> {
    let pipeline = problem.pipeline(p);
    match fastest(problem, p) {
        Err(task) => Some(memory(problem, pipeline, task)),
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

/// The device memory that would do for a task that fits nowhere: the least increase over its measured places.
fn memory(problem: &Problem, pipeline: &Pipeline, task: TaskIndex) -> Shortfall {
    let mut best: Option<(f64, f64)> = None;
    for variant in &pipeline.task(task).variants {
        let needed = variant.memory_mib.unwrap_or(0.0);
        for (hardware, share) in variant.profile.places() {
            let there = problem.hardware_at(hardware).memory_mib.unwrap_or(f64::INFINITY);
            let whole = needed / Share::value(share);
            if best.is_none_or(|(asked, had)| whole - there < asked - had) {
                best = Some((whole, there));
            }
        }
    }
    let (asked, there) = best.unwrap_or((0.0, 0.0));
    let place = format!("{}/{}", pipeline.name, pipeline.task(task).name);
    Shortfall { constraint: Constraint::Memory, place, asked, best: there, relax: None }
}

/// Gives what no replicas can fix the change that does, where a single one does: an SLO that is as long as the pipeline needs
/// at its demand, a memory that is large enough. Further ways are added.
fn fix(problem: &Problem, relax: &RelaxationSearch<'_>, found: &mut Vec<Shortfall>) {
    let change = |knob: ProblemValue, to: f64| Relaxation { pointer: knob.pointer(), from: knob.now(problem), to };
    let mut others = Vec::new();
    for knob in knobs::all(problem).into_iter().filter(|k| matches!(k, ProblemValue::Slo(_) | ProblemValue::Memory(_))) {
        if relax.limits.exceeded() {
            break;
        }
        let Some(to) = relax.least(knob, &relax.limits.with_share_of_time(PART)) else { continue };
        let open = |s: &&mut Shortfall| s.relax.is_none();
        let own = found.iter_mut().filter(open).find(|s| match knob {
            ProblemValue::Slo(p) => s.constraint == Constraint::Latency && s.place == problem.pipeline(p).name,
            _ => s.constraint == Constraint::Memory,
        });
        match own {
            Some(own) => own.relax = Some(change(knob, to)),
            None => others.push(shortfall(problem, knob, to, false)),
        }
    }
    found.extend(others);
}

/// The words for a value that has to give.
fn shortfall(problem: &Problem, knob: ProblemValue, to: f64, by_devices: bool) -> Shortfall {
    let constraint = match knob {
        ProblemValue::Count(_) | ProblemValue::Demand(_) | ProblemValue::MinReplicas(..) | ProblemValue::Survive(_) => {
            Constraint::Capacity
        }
        ProblemValue::Slo(_) if by_devices => Constraint::Capacity,
        ProblemValue::Slo(_) => Constraint::Latency,
        ProblemValue::Floor(_) => Constraint::Accuracy,
        ProblemValue::Budget => Constraint::Budget,
        ProblemValue::Memory(_) => Constraint::Memory,
    };
    let now = knob.now(problem);
    // of devices, money and memory the plan asks and the problem has; of everything else it is the other way round
    let (asked, best) = match knob {
        ProblemValue::Count(_) | ProblemValue::Budget | ProblemValue::Memory(_) => (to, now),
        _ => (now, to),
    };
    let relax = Some(Relaxation { pointer: knob.pointer(), from: now, to });
    Shortfall { constraint, place: knob.place(problem), asked, best, relax }
}

/// What is left to say where no single change helps, or time was too short to find one.
fn unexplained(problem: &Problem, by_devices: bool) -> Shortfall {
    let place = problem.pipelines.iter().map(|p| p.name.as_str()).collect::<Vec<_>>().join(", ");
    let floored = problem.pipelines.iter().filter_map(|p| p.min_accuracy).fold(0.0, f64::max);
    if !by_devices && floored > 0.0 {
        return Shortfall { constraint: Constraint::Accuracy, place, asked: floored, best: 0.0, relax: None };
    }
    let demand: f64 = problem.pipelines.iter().map(|p| p.demand_qps).sum();
    Shortfall { constraint: Constraint::Capacity, place, asked: demand, best: 0.0, relax: None }
}
