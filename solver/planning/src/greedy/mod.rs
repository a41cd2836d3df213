//! Which plan does InferLine's greedy planner find on the estimator (section 4.3, Algorithms 1 and 2)?
//!
//! Algorithm 1 ([`mod@initialise`]): every task runs its most accurate variant with its smallest batch and one replica, on
//! the fastest hardware. Replicas are added at the throughput bottleneck until the estimator meets the percentile on the
//! load.
//!
//! Algorithm 2 ([`mod@minimise`]): the actions are *double the batch*, *remove a replica* and *change the hardware*. The
//! feasible action that saves most is taken, until none is left. The paper orders hardware by speed and price alike.
//! Here every other hardware type is tried.
//!
//! Feasible means that the checker accepts the plan and the estimator meets every percentile. The search proves nothing, so
//! its plans are feasible without a bound. The module [`judge`] gives verdicts with little simulation. The tests compare
//! both algorithms with a plain version, which judges every action by a whole run.

mod assemble;
mod initialise;
mod judge;
mod minimise;
mod settings;
#[cfg(test)]
mod tests;
mod verdicts;

use crate::answer::report;
use crate::exact::model::groups::least_latency_ms;
use crate::exact::search::attempt::CheckedPlan;
use crate::options::PlanningOptions;
use crate::replay;
use apportion_domain::{
    Constraint, Mode, ObjectiveStep, ObjectiveValue, PipelineIndex, Plan, PlanOutcome, PlanningReport, Problem, Relaxation,
    Shortfall, StopReason,
};
use assemble::assemble;
use initialise::{NoStart, initialise};
use judge::SettingJudge;
use minimise::{MinimiseResult, minimise};

/// Plans with the greedy search.
pub(crate) fn plan(problem: &Problem, options: &PlanningOptions) -> (PlanOutcome, PlanningReport) {
    let default = replay::default_workload(problem);
    let limits = options.limits();
    let workload = options.trace.as_ref().unwrap_or(&default);
    let search = limits.for_search();
    let judge = match SettingJudge::new(problem, workload, &search) {
        Ok(judge) => judge,
        Err(stopped) => return report::report_unknown(options, stopped),
    };
    let MinimiseResult { settings, stopped } = match initialise(&judge).map(|start| minimise(&judge, start)) {
        Ok(done) => done,
        Err(NoStart::Latency { pipeline, service_ms }) => return too_slow(problem, options, pipeline, service_ms),
        Err(NoStart::Capacity) => return report::report_unknown(options, StopReason::TraceNotMet),
        Err(NoStart::Stopped(stopped)) => return report::report_unknown(options, stopped),
    };
    let Some(plan) = assemble(&judge.arithmetic, &settings) else {
        return report::report_unknown(options, StopReason::Numerics);
    };
    let estimate = replay::replay_alone(problem, &plan, workload, &limits.for_finishing()).map(|s| s.total);
    let candidate = CheckedPlan { objective: objective(problem, &plan), plan, stopped: Some(stopped), provenance: None };
    report::report_plan(problem, options, candidate, estimate, Vec::new())
}

/// Outcome and report if the most accurate variants of a pipeline need `best` milliseconds, more than its SLO.
fn too_slow(problem: &Problem, options: &PlanningOptions, p: PipelineIndex, best: f64) -> (PlanOutcome, PlanningReport) {
    let pipeline = problem.pipeline(p);
    let shortfall = Shortfall {
        constraint: Constraint::Latency,
        place: pipeline.name.clone(),
        asked: pipeline.slo_ms,
        best,
        relax: Some(Relaxation { pointer: format!("/pipelines/{}/slo_ms", p.get()), from: pipeline.slo_ms, to: best }),
    };
    // faster variants may meet the SLO, so only the exact planner can prove that no plan does
    let (_, mut report) = report::report_unknown(options, StopReason::Finished);
    report.explanation.shortfalls = vec![shortfall.clone()];
    match least_latency_ms(problem, p) {
        Ok(fastest) if fastest <= pipeline.slo_ms => (PlanOutcome::Unknown { stopped: StopReason::Finished }, report),
        _ => (PlanOutcome::Infeasible { shortfalls: vec![shortfall] }, report),
    }
}

/// Objective of a plan in the problem's mode. The search gives no bound.
fn objective(problem: &Problem, plan: &Plan) -> ObjectiveValue {
    let weights: f64 = problem.pipelines.iter().map(|p| p.weight).sum();
    let accuracy = problem.pipelines.iter().zip(&plan.pipelines).map(|(p, part)| p.weight * part.accuracy).sum::<f64>();
    let (step, value) = match problem.objective.mode {
        Mode::HardwareThenAccuracy => (Some(ObjectiveStep::Hardware), plan.replicas() as f64),
        Mode::MinCost => (None, plan.cost_per_hour),
        Mode::MaxAccuracy => (None, accuracy / weights.max(f64::MIN_POSITIVE)),
    };
    ObjectiveValue { step, value: Some(value), bound: None }
}
