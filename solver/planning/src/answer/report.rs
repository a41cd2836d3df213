//! Which outcome and which report do callers get?

use super::{explain, infeasible};
use crate::exact::search::attempt::CheckedPlan;
use crate::options::PlanningOptions;
use crate::replay::ReplayFailure;
use crate::stopwatch::RunPart;
use apportion_domain::{
    CheckRound, Estimate, Explanation, ObjectiveValue, PlanOutcome, PlanningReport, Problem, SecondsOf, StopReason,
};

/// A report without a plan and an explanation.
pub(crate) fn empty_report(options: &PlanningOptions) -> PlanningReport {
    PlanningReport {
        planner: options.planner.name().into(),
        objective: ObjectiveValue { step: None, value: None, bound: None },
        seconds: 0.0,
        seconds_of: SecondsOf::default(),
        rounds: Vec::new(),
        explanation: Explanation::default(),
        estimate: None,
        warnings: Vec::new(),
    }
}

/// Outcome and report for a plan, with its estimate or with the reason why the estimate is missing.
pub(crate) fn report_plan(
    problem: &Problem,
    options: &PlanningOptions,
    candidate: CheckedPlan,
    replayed: Result<Estimate, ReplayFailure>,
    rounds: Vec<CheckRound>,
) -> (PlanOutcome, PlanningReport) {
    let CheckedPlan { plan, objective, stopped, provenance } = candidate;
    let explain = || explain::explain(problem, &plan, objective, provenance.as_ref(), options);
    let mut explanation = options.measured(RunPart::Explanation, explain);
    let cut = replayed.as_ref().err().and_then(|no| no.stopped);
    explanation.left_out.extend(replayed.as_ref().err().map(ReplayFailure::sentence));
    let gap = objective.gap().unwrap_or(f64::INFINITY);
    let outcome = match stopped {
        Some(
            stopped @ (StopReason::TraceNotMet
            | StopReason::TraceUndecided
            | StopReason::DemandNotMet
            | StopReason::Cancelled
            | StopReason::Stopped),
        ) => PlanOutcome::Feasible { plan, stopped },
        _ if cut.is_some() => PlanOutcome::Feasible { plan, stopped: cut.unwrap_or_default() },
        _ if gap <= options.gap => PlanOutcome::Optimal(plan),
        Some(stopped) => PlanOutcome::Feasible { plan, stopped },
        None => PlanOutcome::Feasible { plan, stopped: StopReason::Finished },
    };
    (outcome, PlanningReport { objective, rounds, explanation, estimate: replayed.ok(), ..empty_report(options) })
}

/// Outcome and report for an infeasible problem.
pub(crate) fn report_infeasible(problem: &Problem, options: &PlanningOptions) -> (PlanOutcome, PlanningReport) {
    let shortfalls = options.measured(RunPart::Shortfalls, || infeasible::shortfalls(problem, &options.limits()));
    let mut report = empty_report(options);
    report.explanation.shortfalls = shortfalls.clone();
    (PlanOutcome::Infeasible { shortfalls }, report)
}

/// Outcome and report without a plan and without a proof.
pub(crate) fn report_unknown(options: &PlanningOptions, stopped: StopReason) -> (PlanOutcome, PlanningReport) {
    // a run that its caller has ended reports that before any other reason
    let stopped = options.limits().ended_by_caller().unwrap_or(stopped);
    (PlanOutcome::Unknown { stopped }, empty_report(options))
}
