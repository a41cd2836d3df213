//! How many replicas of each variant of each application are loaded or unloaded? INFaaS's scaling problem (section 4.2.1).
//!
//! For variant *j* of application *i* with `N` replicas, saturation throughput `Q`, cost `C` per second, load latency
//! `T_load`, inference latency `T_inf` and use `R` of each resource, integers `delta`:
//!
//! ```text
//! minimise    sum C (delta + lambda T_load max(delta, 0))
//! subject to  sum_j Q (N + delta) >= L_i + slack_i          for each application   (1)
//!             T_inf <= S_i   where delta > 0                                      (2)
//!             sum_ij R (N + delta) <= R_total               for each resource      (3)
//!             N + delta >= 0                                                       (4)
//! ```
//!
//! A variant that is slower than its SLO may stay or be unloaded, but not grow. Only (3) joins the applications, and
//! the search uses that. `dual` prices the resources, `knapsack` lists the good covers of each application near those
//! prices, and `search` proves the best combination. `ilp` states the same programme for HiGHS: it is the fallback and
//! the oracle of the tests. `greedy` is the heuristic of section 4.2.2, whose value is reported beside the optimum.
//!
//! [`rescale`] states the problem of pipelines that run, and makes a plan of the answer.

pub mod bench;
#[cfg(test)]
pub(crate) mod drawn;
mod dual;
mod explain;
mod greedy;
mod ilp;
mod knapsack;
mod program;
pub mod rescale;
mod search;
mod shortfalls;
#[cfg(test)]
mod tests;

use crate::answer::report;
use crate::options::{Planner, PlanningOptions};
use apportion_domain::{ObjectiveValue, PlanningReport, ScalingOutcome, ScalingPlan, ScalingProblem, StopReason};
use apportion_mip::RunLimits;
use program::{Program, plan_of};
use search::MinimumResult;

pub use explain::GREEDY;

/// Plans a scaling problem. Returns the outcome and a report on the run.
///
/// The exact planner proves optima to the last bit of a float, for every gap. The gap only decides which plan counts as
/// optimal if the time limit ends the proof.
pub fn plan(problem: &ScalingProblem, options: &PlanningOptions) -> (ScalingOutcome, PlanningReport) {
    let program = Program::new(problem);
    let limits = options.limits();
    let (outcome, mut report) = match options.planner {
        Planner::Greedy => plan_by_heuristic(problem, &program, options, &limits),
        // baselines place pipelines, and a scaling problem has none: callers refuse them by name
        _ => plan_exactly(problem, &program, options, &limits),
    };
    report.seconds = (options.elapsed)().as_secs_f64();
    (outcome, report)
}

/// Plans with the exact search.
fn plan_exactly(
    problem: &ScalingProblem,
    program: &Program,
    options: &PlanningOptions,
    limits: &RunLimits,
) -> (ScalingOutcome, PlanningReport) {
    let mut report = report::empty_report(options);
    let greedy = greedy::counts(program, &limits.for_finishing()).ok();
    let (counts, bound, stopped) = match search::minimise(program, greedy.as_ref(), limits) {
        MinimumResult::Found { counts, bound, stopped } => (counts, bound, stopped),
        MinimumResult::Infeasible => return report_infeasible(problem, program, report, limits),
        MinimumResult::Unknown(stopped) => return (ScalingOutcome::Unknown { stopped }, report),
    };
    let counts = program.prefer_running(counts);
    let plan = plan_of(problem, &counts);
    if !is_clean(problem, &plan) {
        return (ScalingOutcome::Unknown { stopped: StopReason::Numerics }, report);
    }
    let constant = program.price(&counts) - plan.value;
    let bound = if stopped.is_none() { plan.value } else { (bound - constant).min(plan.value) };
    report.objective = ObjectiveValue { step: None, value: Some(plan.value), bound: Some(bound) };
    report.explanation = explain::explain(problem, &plan);
    report
        .explanation
        .decisions
        .insert(0, explain::compare_with_heuristic(greedy.map(|g| plan_of(problem, &g)).as_ref(), plan.value));
    let proven = report.objective.gap().is_some_and(|gap| gap <= options.gap);
    let outcome = match stopped {
        Some(stopped) if !proven => ScalingOutcome::Feasible { plan, stopped },
        _ => ScalingOutcome::Optimal(plan),
    };
    (outcome, report)
}

/// Plans with the heuristic of INFaaS section 4.2.2.
fn plan_by_heuristic(
    problem: &ScalingProblem,
    program: &Program,
    options: &PlanningOptions,
    limits: &RunLimits,
) -> (ScalingOutcome, PlanningReport) {
    let mut report = report::empty_report(options);
    let Ok(counts) = greedy::counts(program, &limits.for_finishing()) else {
        // without a plan the heuristic proves nothing, so the exact search decides whether there is a plan
        return match search::minimise(program, None, limits) {
            MinimumResult::Infeasible => report_infeasible(problem, program, report, limits),
            _ => (ScalingOutcome::Unknown { stopped: limits.stop_reason().unwrap_or(StopReason::Finished) }, report),
        };
    };
    let plan = plan_of(problem, &counts);
    if !is_clean(problem, &plan) {
        return (ScalingOutcome::Unknown { stopped: StopReason::Numerics }, report);
    }
    report.objective = ObjectiveValue { step: None, value: Some(plan.value), bound: None };
    report.explanation = explain::explain(problem, &plan);
    (ScalingOutcome::Feasible { plan, stopped: StopReason::Finished }, report)
}

/// Outcome and report of an infeasible problem.
fn report_infeasible(
    problem: &ScalingProblem,
    program: &Program,
    mut report: PlanningReport,
    limits: &RunLimits,
) -> (ScalingOutcome, PlanningReport) {
    let shortfalls = shortfalls::shortfalls(problem, program, limits);
    report.explanation.shortfalls.clone_from(&shortfalls);
    (ScalingOutcome::Infeasible { shortfalls }, report)
}

/// Whether the checker accepts our plan. It always should.
fn is_clean(problem: &ScalingProblem, plan: &ScalingPlan) -> bool {
    let findings = apportion_checker::check_scaling(problem, plan);
    for finding in &findings {
        tracing::error!(%finding, "the checker rejects our plan");
    }
    debug_assert!(findings.is_empty(), "the checker rejects our plan: {findings:?}");
    findings.is_empty()
}
