//! Why there is no plan, and the smallest single change of the problem that would make one.
//!
//! First what no number of replicas can fix: memory, and the fastest way against the SLO. Then one limit at a time is let
//! go and the formulation says how far it has to give: demand, devices, SLO, accuracy floor, budget.

use crate::limits::Limits;
use crate::milp::constraints::{Goal, Stage};
use crate::milp::space::{Space, fastest};
use crate::milp::{StageAnswer, solve_stage};
use crate::tightening::Tightening;
use apportion_domain::{
    Constraint, HardwareIndex, Pipeline, PipelineIndex, Problem, Relaxation, SLACK, Share, Shortfall, TaskIndex,
};

/// Relative gap of these answers: they are advice, and must come soon.
const GAP: f64 = 1e-4;
/// Answers are rounded to the safe side by this much, relative, so that the change really suffices.
const SAFE: f64 = 1e-7;
/// An SLO that every plan meets.
const SLO_FREE_MS: f64 = 1e12;

/// The shortfalls of an infeasible problem; never empty.
pub(crate) fn shortfalls(problem: &Problem, limits: &Limits) -> Vec<Shortfall> {
    let indices = || (0..problem.pipelines.len()).map(PipelineIndex);
    let mut found: Vec<Shortfall> = indices().filter_map(|p| hopeless(problem, p)).collect();
    if !found.is_empty() {
        return found;
    }
    let relax = Relax { problem, limits };
    found.extend(indices().filter_map(|p| relax.demand(p)));
    found.extend((0..problem.hardware.len()).filter_map(|h| relax.devices(HardwareIndex(h))));
    found.extend(indices().filter_map(|p| relax.slo(p)));
    found.extend(indices().filter_map(|p| relax.floor(p)));
    found.extend(relax.budget());
    if found.is_empty() {
        let demand: f64 = problem.pipelines.iter().map(|p| p.demand_qps).sum();
        let place = problem.pipelines.iter().map(|p| p.name.as_str()).collect::<Vec<_>>().join(", ");
        found.push(Shortfall { constraint: Constraint::Capacity, place, asked: demand, best: 0.0, relax: None });
    }
    found
}

/// What no number of replicas can fix.
fn hopeless(problem: &Problem, p: PipelineIndex) -> Option<Shortfall> {
    let pipeline = problem.pipeline(p);
    match fastest(problem, p) {
        Err(task) => Some(memory(problem, pipeline, task)),
        Ok(best) if best > pipeline.slo_ms + SLACK * pipeline.slo_ms.max(1.0) => Some(Shortfall {
            constraint: Constraint::Latency,
            place: pipeline.name.clone(),
            asked: pipeline.slo_ms,
            best,
            relax: Some(Relaxation { pointer: format!("/pipelines/{}/slo_ms", p.0), from: pipeline.slo_ms, to: best }),
        }),
        Ok(_) => None,
    }
}

/// The device memory that would do for a task that fits nowhere: the least increase over its measured places.
fn memory(problem: &Problem, pipeline: &Pipeline, task: TaskIndex) -> Shortfall {
    let mut best: Option<(f64, f64, usize)> = None;
    for variant in &pipeline.task(task).variants {
        let needed = variant.memory_mib.unwrap_or(0.0);
        for (hardware, share) in variant.profile.places() {
            let there = problem.hardware_at(hardware).memory_mib.unwrap_or(f64::INFINITY);
            let whole = needed / Share::value(share);
            if best.is_none_or(|(asked, had, _)| whole - there < asked - had) {
                best = Some((whole, there, hardware.get()));
            }
        }
    }
    let (asked, there, h) = best.unwrap_or((0.0, 0.0, 0));
    Shortfall {
        constraint: Constraint::Memory,
        place: format!("{}/{}", pipeline.name, pipeline.task(task).name),
        asked,
        best: there,
        relax: Some(Relaxation { pointer: format!("/hardware/{h}/memory_mib"), from: there, to: asked }),
    }
}

struct Relax<'a> {
    problem: &'a Problem,
    limits: &'a Limits,
}

impl Relax<'_> {
    /// The value of a goal on a changed problem.
    fn value(&self, changed: &Problem, goal: Goal) -> Option<f64> {
        let space = Space::new(changed, &Tightening::none(changed)).ok()?;
        let limits = self.limits.part(0.2);
        match solve_stage(changed, &space, Stage::new(goal), GAP, &limits, None) {
            StageAnswer::Found { value, .. } => Some(value),
            StageAnswer::Infeasible | StageAnswer::Unknown(_) => None,
        }
    }

    fn pipeline(&self, p: PipelineIndex, change: impl FnOnce(&mut apportion_domain::PipelineDraft)) -> Option<Problem> {
        let changed = self.problem.pipeline(p).changed(&self.problem.hardware, change).ok()?;
        self.problem.changed(|d| d.pipelines[p.0] = changed).ok()
    }

    fn demand(&self, p: PipelineIndex) -> Option<Shortfall> {
        let pipeline = self.problem.pipeline(p);
        let part = -self.value(self.problem, Goal::Demand(p))?;
        let best = pipeline.demand_qps * part * (1.0 - SAFE);
        (part > 0.0).then(|| Shortfall {
            constraint: Constraint::Capacity,
            place: pipeline.name.clone(),
            asked: pipeline.demand_qps,
            best,
            relax: Some(Relaxation {
                pointer: format!("/pipelines/{}/demand_qps", p.0),
                from: pipeline.demand_qps,
                to: best,
            }),
        })
    }

    fn devices(&self, h: HardwareIndex) -> Option<Shortfall> {
        let hardware = self.problem.hardware_at(h);
        let count = f64::from(hardware.count?);
        let changed = self.problem.changed(|d| d.hardware[h.0].count = None).ok()?;
        let needed = (self.value(&changed, Goal::Devices(h))? - 1e-6).ceil();
        Some(Shortfall {
            constraint: Constraint::Capacity,
            place: hardware.name.clone(),
            asked: needed,
            best: count,
            relax: Some(Relaxation { pointer: format!("/hardware/{}/count", h.0), from: count, to: needed }),
        })
    }

    fn slo(&self, p: PipelineIndex) -> Option<Shortfall> {
        let pipeline = self.problem.pipeline(p);
        let points = pipeline.tasks.iter().flat_map(|t| &t.variants).flat_map(|v| v.profile.rows());
        let slowest = points.map(|r| pipeline.hop_charge_ms(r.latency_ms)).fold(0.0, f64::max);
        let free = (slowest * pipeline.tasks.len() as f64).clamp(pipeline.slo_ms, SLO_FREE_MS);
        let best = free * self.value(&self.pipeline(p, |d| d.slo_ms = free)?, Goal::Slo(p))? * (1.0 + SAFE);
        (best > pipeline.slo_ms).then(|| Shortfall {
            constraint: Constraint::Latency,
            place: pipeline.name.clone(),
            asked: pipeline.slo_ms,
            best,
            relax: Some(Relaxation { pointer: format!("/pipelines/{}/slo_ms", p.0), from: pipeline.slo_ms, to: best }),
        })
    }

    fn floor(&self, p: PipelineIndex) -> Option<Shortfall> {
        let pipeline = self.problem.pipeline(p);
        let floor = pipeline.min_accuracy?;
        let best = -self.value(&self.pipeline(p, |d| d.min_accuracy = None)?, Goal::AccuracyOf(p))? - SAFE;
        Some(Shortfall {
            constraint: Constraint::Accuracy,
            place: pipeline.name.clone(),
            asked: floor,
            best,
            relax: Some(Relaxation { pointer: format!("/pipelines/{}/min_accuracy", p.0), from: floor, to: best.max(0.0) }),
        })
    }

    fn budget(&self) -> Option<Shortfall> {
        let budget = self.problem.objective.budget_per_hour?;
        let changed = self.problem.changed(|d| d.objective.budget_per_hour = None).ok()?;
        let needed = self.value(&changed, Goal::Cost)? * (1.0 + SAFE);
        Some(Shortfall {
            constraint: Constraint::Budget,
            place: "plan".into(),
            asked: needed,
            best: budget,
            relax: Some(Relaxation { pointer: "/objective/budget_per_hour".into(), from: budget, to: needed }),
        })
    }
}
