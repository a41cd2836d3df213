//! From a search to the outcome and the report that callers see.

use crate::PlanOptions;
use crate::milp::extract;
use crate::milp::{Found, Search};
use apportion_domain::{
    Explanation, ObjectiveValue, Plan, PlanOutcome, PlanningReport, Problem, StopReason,
};

/// The plan of what a search found, its objective, and why it stopped early.
pub(crate) fn plan_of(problem: &Problem, found: &Found) -> Result<Plan, StopReason> {
    let plan = extract::plan(problem, &found.space, &found.choice, &found.flows);
    let findings = apportion_checker::check(problem, &plan);
    for finding in &findings {
        tracing::error!(%finding, "the checker rejects our plan");
    }
    debug_assert!(findings.is_empty(), "the checker rejects our plan: {findings:?}");
    if findings.is_empty() { Ok(plan) } else { Err(StopReason::Numerics) }
}

/// The answer to the caller.
pub(crate) fn answer(problem: &Problem, options: &PlanOptions, search: Search) -> (PlanOutcome, PlanningReport) {
    let mut report = PlanningReport {
        planner: options.planner.name().into(),
        objective: ObjectiveValue { step: None, value: None, bound: None },
        seconds: 0.0,
        rounds: Vec::new(),
        explanation: Explanation::default(),
        estimate: None,
    };
    let outcome = match search {
        Search::Unknown(stopped) => PlanOutcome::Unknown { stopped },
        Search::Infeasible => PlanOutcome::Infeasible { shortfalls: Vec::new() },
        Search::Found(found) => match plan_of(problem, &found) {
            Err(stopped) => PlanOutcome::Unknown { stopped },
            Ok(plan) => {
                report.objective = ObjectiveValue { step: found.step, value: Some(found.value), bound: Some(found.bound) };
                let gap = report.objective.gap().unwrap_or(f64::INFINITY);
                match found.stopped {
                    Some(stopped) if gap > options.gap => PlanOutcome::Feasible { plan, stopped },
                    _ => PlanOutcome::Optimal(plan),
                }
            }
        },
    };
    report.seconds = (options.elapsed)().as_secs_f64();
    (outcome, report)
}
