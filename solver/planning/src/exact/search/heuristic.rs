//! Which plan does the heuristic planner find? That of the prices, or a better one of the ways of a pipeline.
//!
//! One pipeline under rule `path` is searched by its ways first ([`paths`](crate::exact::stage::paths)), for a fixed number
//! of nodes. If that search proves no plan, prices and branches follow ([`priced`](crate::exact::priced)), and the better
//! plan is returned.

use super::modes::{ModeSearch, SearchResult};
use crate::exact::model::bounds::is_maximised;
use crate::exact::model::goal::SearchEffort;
use crate::exact::model::tightening::Tightening;
use crate::exact::priced::{GAP, PricedSearch, plan_by_prices};
use crate::exact::solution::found::BestFound;
use apportion_domain::{ObjectiveStep, Problem};
use apportion_mip::RunLimits;

/// Most nodes of each programme of a search over ways.
const WAYS_NODES_MAX: u32 = 3_000;

/// Searches for a plan of a problem in its mode, under its latency rule. No clock decides the result.
pub(crate) fn plan_by_heuristic(problem: &Problem, tightening: &Tightening, limits: &RunLimits) -> PricedSearch {
    match plan_by_ways(problem, tightening, limits) {
        Some(PricedSearch::Found(found)) if found.stopped.is_none() => PricedSearch::Found(found),
        Some(PricedSearch::Infeasible) => PricedSearch::Infeasible,
        Some(by_ways) => better_of(problem, by_ways, plan_by_prices(problem, tightening, limits)),
        None => plan_by_prices(problem, tightening, limits),
    }
}

/// The plan of a search over the ways of one pipeline, for a fixed number of nodes. `None` if that search does not apply.
fn plan_by_ways(problem: &Problem, tightening: &Tightening, limits: &RunLimits) -> Option<PricedSearch> {
    let effort = SearchEffort { gap: GAP, nodes_max: Some(WAYS_NODES_MAX) };
    match (ModeSearch { problem, tightening, effort, memory: None, limits }).search_by_ways()? {
        SearchResult::Found(found) => Some(PricedSearch::Found(found)),
        SearchResult::Infeasible => Some(PricedSearch::Infeasible),
        SearchResult::Unknown(_) => None,
    }
}

/// The better one of two plans, with the better bound.
fn better_of(problem: &Problem, a: PricedSearch, b: PricedSearch) -> PricedSearch {
    match (a, b) {
        (PricedSearch::Found(a), PricedSearch::Found(b)) if a.step == b.step => {
            let is_maximised = is_maximised(problem, a.step);
            let bound = if is_maximised { a.bound.min(b.bound) } else { a.bound.max(b.bound) };
            let better = if (a.value > b.value) == is_maximised { a } else { b };
            PricedSearch::Found(Box::new(BestFound { bound, ..*better }))
        }
        // the plan of Loki's first step
        (PricedSearch::Found(a), PricedSearch::Found(b)) => {
            PricedSearch::Found(if a.step == Some(ObjectiveStep::Hardware) { a } else { b })
        }
        (PricedSearch::Found(found), _) | (_, PricedSearch::Found(found)) => PricedSearch::Found(found),
        (PricedSearch::Infeasible, _) | (_, PricedSearch::Infeasible) => PricedSearch::Infeasible,
        _ => PricedSearch::NotFound,
    }
}
