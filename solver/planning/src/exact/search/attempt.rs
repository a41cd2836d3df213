//! Does one search give a plan that the checker accepts?

use super::best::search_with_memory;
use super::heuristic::plan_by_heuristic;
use super::modes::SearchResult;
use crate::exact::model::tightening::Tightening;
use crate::exact::priced::PricedSearch;
use crate::exact::solution::found::BestFound;
use crate::exact::solution::plan::plan_of;
use crate::fleet_memory::FleetMemory;
use crate::options::{Planner, PlanningOptions};
use crate::routing;
use crate::stopwatch::RunPart;
use apportion_domain::{ObjectiveValue, Plan, Problem, StopReason};
use apportion_mip::RunLimits;
use std::time::Duration;

/// How a plan was found. It allows the same search on a changed problem.
#[derive(Clone, Debug)]
pub(crate) struct Provenance {
    pub tightening: Tightening,
    /// How long the search took.
    pub took: Duration,
    /// Whether the search ran to its end.
    pub complete: bool,
}

/// A plan that the checker accepts, with its proven bound.
#[derive(Clone, Debug)]
pub(crate) struct CheckedPlan {
    pub plan: Plan,
    pub objective: ObjectiveValue,
    /// Why the search ended before its proof.
    pub stopped: Option<StopReason>,
    /// How it was found; `None` if the search cannot be repeated.
    pub provenance: Option<Provenance>,
}

/// Result of one search, as a plan.
#[derive(Clone, Debug)]
pub(crate) enum SearchOutcome {
    Plan(Box<CheckedPlan>),
    Infeasible,
    Unknown(StopReason),
}

/// Searches once by the planner of the options: the heuristic, or else the exact one.
pub(crate) fn attempt_by(
    options: &PlanningOptions,
    problem: &Problem,
    tightening: &Tightening,
    limits: &RunLimits,
) -> SearchOutcome {
    options.measured(RunPart::Search, || match options.planner {
        // the heuristic knows no quotas
        Planner::PriceAndBranch if problem.quotas.is_empty() => attempt_by_prices(problem, tightening, limits),
        _ => attempt_with_memory(problem, tightening, options.gap, options.memory.as_ref(), limits),
    })
}

/// Searches once by the heuristic.
fn attempt_by_prices(problem: &Problem, tightening: &Tightening, limits: &RunLimits) -> SearchOutcome {
    let start = (limits.elapsed)();
    match plan_by_heuristic(problem, tightening, limits) {
        PricedSearch::Infeasible => SearchOutcome::Infeasible,
        PricedSearch::NotFound => SearchOutcome::Unknown(limits.stop_reason().unwrap_or(StopReason::Finished)),
        PricedSearch::Found(found) => {
            let took = (limits.elapsed)().saturating_sub(start);
            match check_solution(problem, tightening, &found, took) {
                Ok(candidate) => SearchOutcome::Plan(Box::new(candidate)),
                Err(stopped) => SearchOutcome::Unknown(stopped),
            }
        }
    }
}

/// Searches once. The plan has routing tables, and the checker accepts it.
pub(crate) fn attempt(problem: &Problem, tightening: &Tightening, gap: f64, limits: &RunLimits) -> SearchOutcome {
    attempt_with_memory(problem, tightening, gap, None, limits)
}

/// As [`attempt`], with what is remembered of a fleet.
fn attempt_with_memory(
    problem: &Problem,
    tightening: &Tightening,
    gap: f64,
    memory: Option<&FleetMemory>,
    limits: &RunLimits,
) -> SearchOutcome {
    if let Some(reason) = limits.for_finishing().stop_reason() {
        return SearchOutcome::Unknown(reason);
    }
    let start = (limits.elapsed)();
    let search = search_with_memory(problem, tightening, gap, memory, limits);
    let took = (limits.elapsed)().saturating_sub(start);
    match search {
        SearchResult::Unknown(stopped) => SearchOutcome::Unknown(stopped),
        SearchResult::Infeasible => SearchOutcome::Infeasible,
        SearchResult::Found(found) => match check_solution(problem, tightening, &found, took) {
            Ok(candidate) => SearchOutcome::Plan(Box::new(candidate)),
            Err(stopped) => SearchOutcome::Unknown(stopped),
        },
    }
}

/// The plan of a solution. The error is why it is not a candidate.
pub(crate) fn check_solution(
    problem: &Problem,
    tightening: &Tightening,
    found: &BestFound,
    took: Duration,
) -> Result<CheckedPlan, StopReason> {
    let plan = plan_of(problem, &found.space, &found.choice, &found.flows);
    let mut plan = plan.ok_or(StopReason::Unsupported)?;
    let headroom: Vec<f64> = tightening.parts.iter().map(|p| p.headroom.iter().copied().fold(1.0, f64::max)).collect();
    routing::add_tables(problem, &mut plan, &headroom);
    if !is_clean(problem, &plan) {
        return Err(StopReason::Numerics);
    }
    let objective = ObjectiveValue { step: found.step, value: Some(found.value), bound: Some(found.bound) };
    let provenance = Provenance { tightening: tightening.clone(), took, complete: found.stopped.is_none() };
    Ok(CheckedPlan { plan, objective, stopped: found.stopped, provenance: Some(provenance) })
}

/// Whether the checker accepts our plan. It always should.
pub(crate) fn is_clean(problem: &Problem, plan: &Plan) -> bool {
    let findings = apportion_checker::check(problem, plan);
    for finding in &findings {
        tracing::error!(%finding, "the checker rejects our plan");
    }
    debug_assert!(findings.is_empty(), "the checker rejects our plan: {findings:?}");
    findings.is_empty()
}
