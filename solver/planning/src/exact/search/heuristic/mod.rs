//! Which plan does the heuristic planner find? The best one of several searches, each for a fixed amount of counted work.
//!
//! Example: a pipeline under rule `path` is searched by its ways first. If that search proves no plan within its work,
//! prices and branches follow ([`priced`](crate::exact::priced)), and the better plan is returned.
//!
//! The first search that proves its plan ends them all:
//!
//! 1. One pipeline under rule `path`: by its ways ([`paths`](crate::exact::stage::paths)), with our own branch and bound.
//! 2. Several pipelines: each alone on all devices. Plans that fit together are the best ones ([`division`]).
//! 3. Three pipelines or more under rule `task_budget`: the exact search takes them apart
//!    ([`decompose`](crate::exact::decompose)).
//! 4. Prices and branches.
//! 5. Without a plan: the local search, which needs no formulation.
//! 6. Several pipelines: devices move between them ([`division`]).
//! 7. One pipeline under rule `path`: by its ways again, with HiGHS.
//!
//! Work is counted in entries of tableaus and in iterations, so no clock decides the result ([`WorkBudget`]).
//!
//! [`WorkBudget`]: apportion_mip::WorkBudget

mod again;
mod division;
#[cfg(test)]
mod tests;

use super::fallback::plan_by_local_search;
use super::modes::{ModeSearch, SearchResult};
use crate::exact::model::bounds;
use crate::exact::model::goal::SearchEffort;
use crate::exact::model::tightening::Tightening;
use crate::exact::priced::{GAP, PricedSearch, plan_by_prices};
use crate::exact::solution::finish::{LastValues, finish};
use crate::exact::solution::found::{BestFound, better_plan};
use crate::exact::stage::paths;
use apportion_domain::{LatencyRule, ObjectiveStep, Problem, StopReason};
use apportion_mip::RunLimits;
use division::DivisionSearch;

/// Work of all searches together, one to two seconds.
const WORK_MAX: u64 = 2_000_000_000;
/// Most nodes of each programme of the first search over ways.
const WAYS_NODES_MAX: u32 = 3_000;

/// Work of one pipeline that is searched alone, if it shares devices with others, and if it shares none.
const ALONE_WORK_MAX: u64 = 150_000_000;
const SEPARATE_WORK_MAX: u64 = 600_000_000;

/// Least pipelines of a problem that the decomposition gets.
const TAKEN_APART_MIN: usize = 3;

/// One search: it may do so much work, and knows the best plan so far.
struct SearchPart {
    work_max: u64,
    search: fn(&Heuristic<'_>, &RunLimits, &PricedSearch) -> PricedSearch,
}

/// All searches, in their order.
const PARTS: [SearchPart; 7] = [
    SearchPart { work_max: 400_000_000, search: |of, limits, _| of.by_ways(Some(WAYS_NODES_MAX), limits) },
    SearchPart { work_max: 1_500_000_000, search: |of, limits, _| of.each_alone(limits) },
    SearchPart { work_max: 900_000_000, search: |of, limits, _| of.taken_apart(limits) },
    SearchPart { work_max: 800_000_000, search: |of, limits, _| plan_by_prices(of.problem, of.tightening, limits) },
    SearchPart { work_max: 100_000_000, search: |of, limits, best| of.locally(limits, best) },
    SearchPart { work_max: 1_000_000_000, search: |of, limits, best| of.divided(limits, best) },
    SearchPart { work_max: 600_000_000, search: |of, limits, _| of.by_ways(None, limits) },
];

/// Searches for a plan of a problem in its mode, under its latency rule. No clock decides the result. A deployed plan that
/// is as good stays.
pub(crate) fn plan_by_heuristic(problem: &Problem, tightening: &Tightening, limits: &RunLimits) -> PricedSearch {
    again::search_or_stay(problem, tightening, limits, &|problem: &Problem| search_in_parts(problem, tightening, limits))
}

/// All searches, until one proves its plan.
fn search_in_parts(problem: &Problem, tightening: &Tightening, limits: &RunLimits) -> PricedSearch {
    let of = Heuristic { problem, tightening };
    let all = limits.with_work(WORK_MAX);
    let mut best = PricedSearch::NotFound;
    for part in &PARTS {
        let found = (part.search)(&of, &all.with_work(part.work_max), &best);
        best = of.in_first_step(better_of(problem, best, found), &all);
        if is_proven(&best) || limits.exceeded() {
            break;
        }
    }
    best
}

/// Whether no search can find anything better.
fn is_proven(found: &PricedSearch) -> bool {
    match found {
        PricedSearch::Found(found) => {
            found.stopped.is_none() || (found.value - found.bound).abs() <= GAP * found.value.abs().max(1e-9)
        }
        PricedSearch::Infeasible => true,
        PricedSearch::NotFound => false,
    }
}

/// The better one of two results.
fn better_of(problem: &Problem, a: PricedSearch, b: PricedSearch) -> PricedSearch {
    match (a, b) {
        (PricedSearch::Found(a), PricedSearch::Found(b)) => PricedSearch::Found(better_plan(problem, a, b)),
        (PricedSearch::Found(found), _) | (_, PricedSearch::Found(found)) => PricedSearch::Found(found),
        (PricedSearch::Infeasible, _) | (_, PricedSearch::Infeasible) => PricedSearch::Infeasible,
        _ => PricedSearch::NotFound,
    }
}

/// The result of a search that may not apply.
fn priced(result: Option<SearchResult>) -> PricedSearch {
    match result {
        Some(SearchResult::Found(found)) => PricedSearch::Found(found),
        Some(SearchResult::Infeasible) => PricedSearch::Infeasible,
        Some(SearchResult::Unknown(_)) | None => PricedSearch::NotFound,
    }
}

/// The searches of one problem.
struct Heuristic<'a> {
    problem: &'a Problem,
    tightening: &'a Tightening,
}

impl Heuristic<'_> {
    /// One pipeline under rule `path`: by its ways, with so many nodes of our own branch and bound, or else with HiGHS.
    fn by_ways(&self, nodes_max: Option<u32>, limits: &RunLimits) -> PricedSearch {
        let &Self { problem, tightening } = self;
        if !paths::applies(problem) {
            return PricedSearch::NotFound;
        }
        let effort = SearchEffort { gap: GAP, nodes_max };
        let search = ModeSearch { problem, tightening, effort, memory: None, limits };
        priced(search.search_by_ways())
    }

    /// Whether devices are divided among pipelines.
    fn is_divided(&self) -> bool {
        self.problem.pipelines.len() > 1
    }

    fn division<'b>(&'b self, limits: &'b RunLimits) -> DivisionSearch<'b> {
        let by_ways = |problem: &Problem, tightening: &Tightening, limits: &RunLimits| match problem.objective.latency_rule
        {
            LatencyRule::Path => Heuristic { problem, tightening }.by_ways(Some(WAYS_NODES_MAX), limits),
            LatencyRule::TaskBudget => plan_by_prices(problem, tightening, limits),
        };
        DivisionSearch::new(self.problem, self.tightening, limits, by_ways)
    }

    /// Several pipelines: each alone on all devices.
    fn each_alone(&self, limits: &RunLimits) -> PricedSearch {
        if !self.is_divided() {
            return PricedSearch::NotFound;
        }
        if division::is_separable(self.problem) {
            // nothing is divided, so each pipeline gets all searches
            let all = DivisionSearch::new(self.problem, self.tightening, limits, search_in_parts);
            return all.each_alone(SEPARATE_WORK_MAX);
        }
        self.division(limits).each_alone(ALONE_WORK_MAX)
    }

    /// The plan of the local search, if there is no other one.
    fn locally(&self, limits: &RunLimits, best: &PricedSearch) -> PricedSearch {
        match best {
            PricedSearch::NotFound => {
                let found = plan_by_local_search(self.problem, self.tightening, limits, StopReason::Finished);
                PricedSearch::found_or_not(found)
            }
            _ => PricedSearch::NotFound,
        }
    }

    /// Several pipelines: the best plan, with devices moved between them.
    fn divided(&self, limits: &RunLimits, best: &PricedSearch) -> PricedSearch {
        match best {
            PricedSearch::Found(known) if self.is_divided() => {
                PricedSearch::Found(Box::new(self.division(limits).improve(known.as_ref().clone())))
            }
            _ => PricedSearch::NotFound,
        }
    }

    /// Three pipelines or more under rule `task_budget`: the exact search, which takes them apart.
    fn taken_apart(&self, limits: &RunLimits) -> PricedSearch {
        let &Self { problem, tightening } = self;
        if problem.pipelines.len() < TAKEN_APART_MIN || problem.objective.latency_rule == LatencyRule::Path {
            return PricedSearch::NotFound;
        }
        let quiet = limits.without_listener();
        let search =
            ModeSearch { problem, tightening, effort: SearchEffort::until_proven(GAP), memory: None, limits: &quiet };
        // on one thread the parts spend their common work in the same order each time
        match rayon::ThreadPoolBuilder::new().num_threads(1).build() {
            Ok(one_thread) => priced(Some(one_thread.install(|| search.search_exactly()))),
            Err(_) => PricedSearch::NotFound,
        }
    }

    /// A plan of Loki's second step with the most accurate variants alone is one of the first step.
    fn in_first_step(&self, found: PricedSearch, limits: &RunLimits) -> PricedSearch {
        let &Self { problem, tightening } = self;
        let PricedSearch::Found(plan) = &found else { return found };
        if plan.step != Some(ObjectiveStep::Accuracy) || !is_most_accurate(problem, plan) {
            return found;
        }
        let step = Some(ObjectiveStep::Hardware);
        let last = LastValues { step, bound: bounds::bound(problem, tightening, step) };
        match finish(problem, plan.space.clone(), plan.choice.clone(), last, limits) {
            Some(first) => PricedSearch::Found(Box::new(first)),
            None => found,
        }
    }
}

/// Whether only the most accurate variants have replicas.
fn is_most_accurate(problem: &Problem, plan: &BestFound) -> bool {
    plan.space.parts.iter().zip(&plan.choice.groups).all(|(part, groups)| {
        let pipeline = problem.pipeline(part.index);
        let mut running = part.groups.iter().zip(groups).filter(|(_, c)| c.replicas > 0);
        running.all(|(g, _)| pipeline.most_accurate(g.task).any(|best| best == g.variant))
    })
}
