//! Is a plan found again when it is deployed? Planning again from one's own plan changes nothing.
//!
//! Example: loading replicas costs something. A search finds a plan, and the plan is deployed. Its replicas cost nothing to
//! load then, so the next search may find that a cheaper plan is near. That plan is better from the beginning too: the way
//! over the first plan loads no fewer replicas. So the search starts again from its own plan, until that stays.

use crate::exact::model::tightening::Tightening;
use crate::exact::model::tolerances::ACCURACY_SLACK;
use crate::exact::priced::PricedSearch;
use crate::exact::solution::deployed::{prefer_deployed, with_deployed_groups};
use crate::exact::solution::found::BestFound;
use apportion_domain::{Mode, Problem};
use apportion_mip::RunLimits;

/// Most searches from own plans.
const AGAIN_MAX: usize = 4;

/// A search of a problem.
pub(super) type SearchProblem<'a> = &'a dyn Fn(&Problem) -> PricedSearch;

/// The plan of a search, or the deployed plan if that is as good.
pub(super) fn search_or_stay(
    problem: &Problem,
    tightening: &Tightening,
    limits: &RunLimits,
    search: SearchProblem<'_>,
) -> PricedSearch {
    let of = AgainSearch { problem, tightening, limits, search };
    let counts_switching = problem.switching_weight > 0.0 && problem.objective.mode == Mode::MinCost;
    if counts_switching {
        return of.until_it_stays();
    }
    if problem.deployed.is_empty() {
        return search(problem);
    }
    // the deployed plan changes no value, so it does not lead the search
    match problem.changed(|d| d.deployed.clear()) {
        Ok(bare) => of.or_deployed(search(&bare)),
        Err(_) => of.or_deployed(search(problem)),
    }
}

struct AgainSearch<'a> {
    problem: &'a Problem,
    tightening: &'a Tightening,
    limits: &'a RunLimits,
    search: SearchProblem<'a>,
}

impl AgainSearch<'_> {
    /// The deployed plan, if it is as good as the found one.
    fn or_deployed(&self, found: PricedSearch) -> PricedSearch {
        let PricedSearch::Found(found) = found else { return found };
        let &Self { problem, tightening, limits, .. } = self;
        let found = with_deployed_groups(problem, tightening, &found, limits).unwrap_or(*found);
        PricedSearch::Found(Box::new(prefer_deployed(problem, found, limits)))
    }

    /// The search with the cost of switching, from its own plan until that stays.
    fn until_it_stays(&self) -> PricedSearch {
        let found = self.or_deployed((self.search)(self.problem));
        let PricedSearch::Found(mut best) = found else { return found };
        for _ in 0..AGAIN_MAX {
            match self.from(&best) {
                Some(better) if !self.limits.exceeded() => *best = better,
                _ => break,
            }
        }
        PricedSearch::Found(best)
    }

    /// A better plan by a search from a plan of its own; `None` if that stays.
    fn from(&self, best: &BestFound) -> Option<BestFound> {
        let &Self { problem, tightening, limits, search } = self;
        let deployed = best.choice.as_deployed(&best.space);
        if deployed == problem.deployed {
            return None;
        }
        let own = problem.changed(|d| d.deployed = deployed).ok()?;
        let from_own = AgainSearch { problem: &own, ..*self };
        let PricedSearch::Found(again) = from_own.or_deployed(search(&own)) else { return None };
        let again = with_deployed_groups(problem, tightening, &again, limits)?;
        let is_better = again.value < best.value - ACCURACY_SLACK * best.value.abs();
        is_better.then(|| BestFound { bound: best.bound.min(again.value), ..again })
    }
}
