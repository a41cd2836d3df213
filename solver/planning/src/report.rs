//! From searches to the outcome and the report that callers see.

use crate::explain::{self, Basis};
use crate::limits::Limits;
use crate::milp::{self, Found, Search, extract};
use crate::replay::{self, NoReplay};
use crate::tightening::Tightening;
use crate::{PlanOptions, infeasible, routing};
use apportion_domain::{
    Estimate, Explanation, ObjectiveValue, Plan, PlanOutcome, PlanningReport, Problem, Round, StopReason,
};
use std::time::Duration;

/// A plan that the checker accepts, with what is proven about it.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub plan: Plan,
    pub objective: ObjectiveValue,
    /// Why the search ended before its proof.
    pub stopped: Option<StopReason>,
    /// How it was found; `None` if not by a search that can be repeated.
    pub basis: Option<Basis>,
}

/// One search, turned into a plan.
#[derive(Clone, Debug)]
pub(crate) enum Attempt {
    Plan(Box<Candidate>),
    Infeasible,
    Unknown(StopReason),
}

/// Searches once; its plan has routing tables and is confirmed by the checker.
pub(crate) fn attempt(problem: &Problem, tightening: &Tightening, gap: f64, limits: &Limits) -> Attempt {
    if let Some(reason) = limits.finishing().reason() {
        return Attempt::Unknown(reason);
    }
    let start = (limits.elapsed)();
    let search = milp::search(problem, tightening, gap, limits);
    let took = (limits.elapsed)().saturating_sub(start);
    match search {
        Search::Unknown(stopped) => Attempt::Unknown(stopped),
        Search::Infeasible => Attempt::Infeasible,
        Search::Found(found) => match candidate(problem, tightening, &found, took) {
            Ok(candidate) => Attempt::Plan(Box::new(candidate)),
            Err(stopped) => Attempt::Unknown(stopped),
        },
    }
}

fn candidate(problem: &Problem, tightening: &Tightening, found: &Found, took: Duration) -> Result<Candidate, StopReason> {
    let plan = extract::plan(problem, &found.space, &found.choice, &found.flows);
    let mut plan = plan.ok_or(StopReason::Unsupported)?;
    let headroom: Vec<f64> = tightening.parts.iter().map(|p| p.headroom.iter().copied().fold(1.0, f64::max)).collect();
    routing::add_tables(problem, &mut plan, &headroom);
    if !is_clean(problem, &plan) {
        return Err(StopReason::Numerics);
    }
    let objective = ObjectiveValue { step: found.step, value: Some(found.value), bound: Some(found.bound) };
    let basis = Basis { tightening: tightening.clone(), took, complete: found.stopped.is_none() };
    Ok(Candidate { plan, objective, stopped: found.stopped, basis: Some(basis) })
}

/// Whether the checker accepts a plan of ours; it always should.
pub(crate) fn is_clean(problem: &Problem, plan: &Plan) -> bool {
    let findings = apportion_checker::check(problem, plan);
    for finding in &findings {
        tracing::error!(%finding, "the checker rejects our plan");
    }
    debug_assert!(findings.is_empty(), "the checker rejects our plan: {findings:?}");
    findings.is_empty()
}

/// A report with nothing in it yet.
pub(crate) fn blank(options: &PlanOptions) -> PlanningReport {
    PlanningReport {
        planner: options.planner.name().into(),
        objective: ObjectiveValue { step: None, value: None, bound: None },
        seconds: 0.0,
        rounds: Vec::new(),
        explanation: Explanation::default(),
        estimate: None,
    }
}

/// The answer for a plan with its estimate, or with why there is none: then nothing is proven of how the plan fares.
pub(crate) fn with_plan(
    problem: &Problem,
    options: &PlanOptions,
    candidate: Candidate,
    replayed: Result<Estimate, NoReplay>,
    rounds: Vec<Round>,
) -> (PlanOutcome, PlanningReport) {
    let Candidate { plan, objective, stopped, basis } = candidate;
    // what explaining takes is not the planner's time
    let seconds = (options.elapsed)().as_secs_f64();
    let mut explanation = explain::explain(problem, &plan, objective, basis.as_ref(), options);
    let cut = replayed.as_ref().err().and_then(|no| no.stopped);
    explanation.left_out.extend(replayed.as_ref().err().map(NoReplay::sentence));
    let gap = objective.gap().unwrap_or(f64::INFINITY);
    let outcome = match stopped {
        Some(stopped @ (StopReason::TraceNotMet | StopReason::DemandNotMet | StopReason::Cancelled)) => {
            PlanOutcome::Feasible { plan, stopped }
        }
        _ if cut.is_some() => PlanOutcome::Feasible { plan, stopped: cut.unwrap_or_default() },
        _ if gap <= options.gap => PlanOutcome::Optimal(plan),
        Some(stopped) => PlanOutcome::Feasible { plan, stopped },
        None => PlanOutcome::Feasible { plan, stopped: StopReason::Finished },
    };
    (outcome, PlanningReport { objective, seconds, rounds, explanation, estimate: replayed.ok(), ..blank(options) })
}

/// The answer for a problem without a plan.
pub(crate) fn infeasible(problem: &Problem, options: &PlanOptions) -> (PlanOutcome, PlanningReport) {
    let shortfalls = infeasible::shortfalls(problem, &options.limits());
    let mut report = blank(options);
    report.explanation.shortfalls = shortfalls.clone();
    report.seconds = (options.elapsed)().as_secs_f64();
    (PlanOutcome::Infeasible { shortfalls }, report)
}

/// The answer when there is neither plan nor proof.
pub(crate) fn unknown(options: &PlanOptions, stopped: StopReason) -> (PlanOutcome, PlanningReport) {
    let mut report = blank(options);
    report.seconds = (options.elapsed)().as_secs_f64();
    // whatever else kept it from an answer, it was not to look for one any longer
    let stopped = if options.limits().is_cancelled() { StopReason::Cancelled } else { stopped };
    (PlanOutcome::Unknown { stopped }, report)
}

/// One search, its plan replayed on the default trace: reported, not enforced.
pub(crate) fn once(problem: &Problem, options: &PlanOptions) -> (PlanOutcome, PlanningReport) {
    let limits = options.limits();
    match attempt(problem, &Tightening::none(problem), options.gap, &limits.for_search()) {
        Attempt::Plan(candidate) => {
            let workload = replay::default_workload(problem);
            let replayed = replay::replay(problem, &candidate.plan, &workload, &limits.finishing());
            with_plan(problem, options, *candidate, replayed.map(|s| s.total), Vec::new())
        }
        Attempt::Infeasible => infeasible(problem, options),
        Attempt::Unknown(stopped) => unknown(options, stopped),
    }
}
