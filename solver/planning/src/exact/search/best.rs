//! Which plan is there at the end of an exact search, with or without its proof?
//!
//! Example: of some graphs under rule `path`, the exact search has no plan after 5 s. The heuristic has one in a few
//! milliseconds. So a search without a plan is interrupted after some counted work. The heuristic's plan is its incumbent
//! from then on.

use super::fallback;
use super::heuristic::plan_by_heuristic;
use super::modes::{ModeSearch, SearchResult};
use crate::exact::model::goal::{Goal, SearchEffort};
use crate::exact::model::tightening::Tightening;
use crate::exact::priced::PricedSearch;
use crate::exact::solution::found::{BestFound, better_plan};
use crate::fleet_memory::FleetMemory;
use apportion_domain::{Problem, StopReason};
use apportion_mip::{RunLimits, WorkBudget};

/// Counted work of an exact search before the heuristic finds a plan for it, about 0.4 s.
const WORK_WITHOUT_PLAN_MAX: u64 = 400_000_000;
/// Most pipelines of a problem that the heuristic gets. With more of them, the decomposition has a plan at once.
const PIPELINES_MAX: usize = 4;

/// Searches for the best plan of a problem in its mode, under its latency rule.
///
/// If the search has no plan for long, if the time is up, or if the formulation would be too large, heuristics find some
/// plan. That holds too where one step of the search has taken longer than the time for finishing. Only a cancelled run
/// gets none.
pub(crate) fn search(problem: &Problem, tightening: &Tightening, gap: f64, limits: &RunLimits) -> SearchResult {
    search_with_memory(problem, tightening, gap, None, limits)
}

/// As [`search`]. A fleet that was planned before is planned from what is remembered of it.
pub(crate) fn search_with_memory(
    problem: &Problem,
    tightening: &Tightening,
    gap: f64,
    memory: Option<&FleetMemory>,
    limits: &RunLimits,
) -> SearchResult {
    let of = BestSearch { problem, tightening, gap, memory, limits };
    // the heuristic knows no quotas
    let has_reserve = problem.pipelines.len() <= PIPELINES_MAX && problem.quotas.is_empty();
    match if has_reserve { of.search_with_reserve() } else { of.search_exactly(limits) } {
        SearchResult::Unknown(reason) if reason != StopReason::Cancelled => {
            match fallback::plan_by_local_search(problem, tightening, &limits.for_rescue(), reason) {
                Some(found) => SearchResult::Found(Box::new(found)),
                // with more time it would find one
                None => SearchResult::Unknown(limits.stop_reason().unwrap_or(reason)),
            }
        }
        other => other,
    }
}

/// An exact search with its reserve.
struct BestSearch<'a> {
    problem: &'a Problem,
    tightening: &'a Tightening,
    gap: f64,
    memory: Option<&'a FleetMemory>,
    limits: &'a RunLimits,
}

impl BestSearch<'_> {
    fn search_exactly(&self, limits: &RunLimits) -> SearchResult {
        let &Self { problem, tightening, gap, memory, .. } = self;
        ModeSearch { problem, tightening, effort: SearchEffort::until_proven(gap), memory, limits }.search_exactly()
    }

    /// The exact search. If it has no plan after its work, the heuristic finds one first.
    fn search_with_reserve(&self) -> SearchResult {
        let without_plan = self.limits.with_work_until_found(WORK_WITHOUT_PLAN_MAX);
        let found = self.search_exactly(&without_plan);
        let is_interrupted = without_plan.work.as_deref().is_some_and(WorkBudget::is_spent);
        if !is_interrupted || matches!(found, SearchResult::Infeasible) || self.limits.exceeded() {
            return found;
        }
        match plan_by_heuristic(self.problem, self.tightening, &self.limits.without_listener()) {
            PricedSearch::Infeasible => SearchResult::Infeasible,
            PricedSearch::NotFound => self.search_exactly(self.limits),
            PricedSearch::Found(reserve) => self.improve(reserve),
        }
    }

    /// The better one of the reserve and the plan of the exact search.
    fn improve(&self, reserve: Box<BestFound>) -> SearchResult {
        self.report_progress(&reserve);
        if (reserve.value - reserve.bound).abs() <= self.gap * reserve.value.abs() {
            return SearchResult::Found(Box::new(BestFound { stopped: None, ..*reserve }));
        }
        match self.search_exactly(self.limits) {
            SearchResult::Found(exact) => {
                let stopped = exact.stopped;
                let better = better_plan(self.problem, exact, reserve);
                SearchResult::Found(Box::new(BestFound { stopped, ..*better }))
            }
            SearchResult::Unknown(reason) => SearchResult::Found(Box::new(BestFound { stopped: Some(reason), ..*reserve })),
            // the checker decides whether the reserve is a plan
            SearchResult::Infeasible => SearchResult::Found(reserve),
        }
    }

    /// Reports the reserve to the listener.
    fn report_progress(&self, reserve: &BestFound) {
        if let Some(goal) = Goal::of_step(self.problem.objective.mode, reserve.step).reported() {
            self.limits.report_progress(goal.name, reserve.value, reserve.bound);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::heuristics::{case, problem};
    use crate::exact::solution::plan::plan_of;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    fn unlimited() -> RunLimits {
        RunLimits::new(Arc::new(Duration::default))
    }

    fn of<'a>(problem: &'a Problem, tightening: &'a Tightening, limits: &'a RunLimits) -> BestSearch<'a> {
        BestSearch { problem, tightening, gap: 1e-4, memory: None, limits }
    }

    #[test]
    fn the_heuristics_plan_is_there_where_the_exact_search_has_none() {
        let problem = problem(&case(50_028));
        let none = Tightening::none(&problem);
        let limits = unlimited();
        let PricedSearch::Found(reserve) = plan_by_heuristic(&problem, &none, &limits) else { panic!("no plan") };
        // the exact search is stopped, and finds nothing
        let stopped = RunLimits { finish_time_after_stop: Duration::ZERO, ..unlimited() };
        stopped.stop.ask();
        let SearchResult::Found(found) = of(&problem, &none, &stopped).improve(reserve.clone()) else { panic!("no plan") };
        assert_eq!((found.value, found.bound), (reserve.value, reserve.bound));
        assert_eq!(found.stopped.is_some(), (reserve.value - reserve.bound).abs() > 1e-4 * reserve.value.abs());
        let plan = plan_of(&problem, &found.space, &found.choice, &found.flows).expect("few paths");
        assert_eq!(apportion_checker::check(&problem, &plan), []);
    }

    #[test]
    fn a_step_that_takes_past_every_deadline_costs_no_plan() {
        for seed in [50_001, 50_028] {
            let problem = problem(&case(seed));
            let none = Tightening::none(&problem);
            for looks in [0, 1, 3, 10, 30, 100, 300] {
                // the clock stands still until it was looked at so often, and then an hour has passed
                let looked = AtomicU32::new(0);
                let clock = move || match looked.fetch_add(1, Ordering::Relaxed) < looks {
                    true => Duration::ZERO,
                    false => Duration::from_secs(3_600),
                };
                let limits = RunLimits::new(Arc::new(clock)).ending_at(Duration::from_secs(1));
                let found = match search(&problem, &none, 1e-4, &limits) {
                    SearchResult::Found(found) => found,
                    other => panic!("{seed}: no plan after {looks} looks: {other:?}"),
                };
                let plan = plan_of(&problem, &found.space, &found.choice, &found.flows).expect("few paths");
                assert_eq!(apportion_checker::check(&problem, &plan), [], "{seed}: {looks} looks");
            }
        }
    }

    #[test]
    fn a_reserve_is_replaced_by_a_better_plan_only() {
        let problem = problem(&case(50_028));
        let none = Tightening::none(&problem);
        let limits = unlimited();
        let SearchResult::Found(exact) = of(&problem, &none, &limits).search_exactly(&limits) else { panic!("no plan") };
        for difference in [-0.1, 0.1] {
            // a value that no plan has shows which of both plans is returned
            let reserve = BestFound { value: exact.value + difference, bound: 2.0, ..exact.as_ref().clone() };
            let reports = Arc::new(AtomicU32::new(0));
            let counted = reports.clone();
            let listener = move |_| {
                counted.fetch_add(1, Ordering::Relaxed);
            };
            let limits = RunLimits { listener: Some(Arc::new(listener)), ..unlimited() };
            let SearchResult::Found(found) = of(&problem, &none, &limits).improve(Box::new(reserve)) else {
                panic!("no plan")
            };
            assert_eq!(found.value, exact.value.max(exact.value + difference));
            assert!(reports.load(Ordering::Relaxed) > 0, "the reserve was not reported");
        }
    }
}
