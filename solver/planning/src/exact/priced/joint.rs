//! Which combination of candidates gives the best plan? They are tried in the order of their bounds at the prices.
//!
//! Example: of 800 budget vectors the first 30 are tried with little work each. Of these, 25 are finished: they have no
//! better plan. The next round gives the other 5 more work, and looks at more vectors. Easy problems end in the first
//! round.

use super::context::{ENTRIES_MAX, StageEnd, StagePlan, StageSearch};
use super::points::GroupPoints;
use super::prices::{PricedBound, PricedRelaxation, RankedCandidate};
use super::programme::{ActivePlan, ProgrammeResult};
use std::collections::{BTreeSet, BinaryHeap};

/// How far one round goes.
struct SearchRound {
    /// Most programmes once a plan is known.
    tries_max: usize,
    /// The same before.
    first_tries_max: usize,
    /// Entries of all tableaus that one programme may copy.
    entries_max: usize,
}

/// The rounds, of growing work.
const ROUNDS: [SearchRound; 3] = [
    SearchRound { tries_max: 30, first_tries_max: 200, entries_max: ENTRIES_MAX },
    SearchRound { tries_max: 300, first_tries_max: 600, entries_max: 4 * ENTRIES_MAX },
    SearchRound { tries_max: 2_000, first_tries_max: 2_000, entries_max: 20 * ENTRIES_MAX },
];

/// One candidate for each pipeline, with the bound of their plans.
#[derive(Clone, Debug, PartialEq)]
struct Combination {
    bound: f64,
    /// Positions in the ranked lists.
    ranks: Vec<usize>,
}

impl Eq for Combination {}

impl Ord for Combination {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        // the heap gives the largest first
        other.bound.total_cmp(&self.bound).then_with(|| other.ranks.cmp(&self.ranks))
    }
}

impl PartialOrd for Combination {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// All combinations by their bounds. The list grows as far as it is read.
struct CombinationOrder<'a> {
    ranked: &'a [Vec<RankedCandidate>],
    /// The worth of the rows that the pipelines share.
    worth: f64,
    listed: Vec<Combination>,
    open: BinaryHeap<Combination>,
    seen: BTreeSet<Vec<usize>>,
}

impl<'a> CombinationOrder<'a> {
    fn new(ranked: &'a [Vec<RankedCandidate>], worth: f64) -> Self {
        let mut order = Self { ranked, worth, listed: Vec::new(), open: BinaryHeap::new(), seen: BTreeSet::new() };
        order.add(vec![0; ranked.len()]);
        order
    }

    /// Adds a combination, if there is one at these ranks and it is new.
    fn add(&mut self, ranks: Vec<usize>) {
        let costs = ranks.iter().zip(self.ranked).map(|(&r, list)| list.get(r).map(|c| c.cost));
        let Some(cost) = costs.sum::<Option<f64>>() else { return };
        if self.seen.insert(ranks.clone()) {
            self.open.push(Combination { bound: cost - self.worth, ranks });
        }
    }

    /// The combination at this place of the order; `None` beyond the last one.
    fn get(&mut self, at: usize) -> Option<&Combination> {
        while self.listed.len() <= at {
            let next = self.open.pop()?;
            for p in 0..next.ranks.len() {
                let mut ranks = next.ranks.clone();
                ranks[p] += 1;
                self.add(ranks);
            }
            self.listed.push(next);
        }
        self.listed.get(at)
    }
}

/// The search over all combinations.
struct JointSearch<'a> {
    search: &'a StageSearch<'a>,
    order: CombinationOrder<'a>,
    /// By place in the order: the bound of a combination that needs no further search.
    finished: Vec<Option<f64>>,
    best: Option<StagePlan>,
}

impl JointSearch<'_> {
    /// One round. Whether every combination that may be better is finished.
    fn run(&mut self, round: &SearchRound) -> bool {
        let (mut tries, mut is_finished) = (0, true);
        for at in 0.. {
            let Some(Combination { bound, ranks }) = self.order.get(at).cloned() else { break };
            if bound >= self.search.worth_searching_below(self.best.as_ref()) {
                break;
            }
            if self.finished.get(at).is_some_and(Option::is_some) {
                continue;
            }
            let enough = if self.best.is_some() { round.tries_max } else { round.first_tries_max };
            if tries >= enough || self.search.limits.exceeded() {
                return false;
            }
            tries += 1;
            let found = self.solve(&ranks, round.entries_max);
            self.finished.resize(self.finished.len().max(at + 1), None);
            self.finished[at] = found.is_finished.then_some(found.bound.max(bound));
            is_finished &= found.is_finished;
        }
        is_finished
    }

    /// One programme over all pipelines. A better plan becomes the best one.
    fn solve(&mut self, ranks: &[usize], entries_max: usize) -> ProgrammeResult {
        let chosen = ranks.iter().zip(self.order.ranked).zip(self.search.parts);
        let points: Vec<&GroupPoints> = chosen.map(|((&r, list), part)| &part.candidates[list[r].candidate]).collect();
        let cutoff = self.best.as_ref().map_or(f64::INFINITY, |best| best.cost);
        let mut found = self.search.solve_at(&points, cutoff, entries_max);
        if let Some(ActivePlan { groups, cost, accuracy }) = found.plan.take() {
            self.best = Some(StagePlan { groups, cost, accuracy, points: points.into_iter().cloned().collect() });
        }
        found
    }

    /// No plan at any of the combinations costs less; infinite if they have none.
    fn bound(&mut self) -> f64 {
        let mut least = f64::INFINITY;
        for at in 0.. {
            let Some(Combination { bound, .. }) = self.order.get(at) else { break };
            let of_search = self.finished.get(at).copied().flatten();
            least = least.min(of_search.unwrap_or(*bound));
            // all others have larger bounds
            if at >= self.finished.len() {
                break;
            }
        }
        least
    }
}

impl StageSearch<'_> {
    /// Tries combinations of candidates in the order of their bounds, and budgets near the best ones.
    pub fn solve_jointly(
        &self,
        relaxation: &PricedRelaxation<'_>,
        priced: &PricedBound,
        known: Option<StagePlan>,
    ) -> StageEnd {
        let order = CombinationOrder::new(&priced.ranked, relaxation.worth_of_rows(&priced.prices));
        let mut joint = JointSearch { search: self, order, finished: Vec::new(), best: known };
        let is_complete = self.parts.iter().all(|p| p.is_complete);
        // ties are broken with little work
        let rounds = if self.stage.accuracy_min.is_some() { 1 } else { ROUNDS.len() };
        for round in &ROUNDS[..rounds] {
            let is_finished = joint.run(round);
            if is_finished && is_complete {
                break;
            }
            if let Some(best) = &mut joint.best {
                self.improve_budgets(best, relaxation, priced);
            }
            if is_finished || self.limits.exceeded() {
                break;
            }
        }
        let proven = joint.bound();
        let bound = if is_complete { proven.max(priced.bound) } else { priced.bound };
        match joint.best {
            Some(plan) => StageEnd::Found { bound: bound.min(plan.cost), plan },
            None if is_complete && proven == f64::INFINITY => StageEnd::Infeasible,
            None => StageEnd::NotFound,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn combinations_come_in_the_order_of_their_bounds() {
        let list = |costs: &[f64]| -> Vec<RankedCandidate> {
            costs.iter().enumerate().map(|(candidate, &cost)| RankedCandidate { cost, candidate }).collect()
        };
        let ranked = [list(&[1.0, 2.5, 9.0]), list(&[0.0, 3.0]), list(&[4.0, 4.0, 4.5])];
        let mut slow: Vec<f64> = Vec::new();
        for a in &ranked[0] {
            for b in &ranked[1] {
                slow.extend(ranked[2].iter().map(|c| a.cost + b.cost + c.cost - 2.0));
            }
        }
        slow.sort_by(f64::total_cmp);
        let mut order = CombinationOrder::new(&ranked, 2.0);
        let bounds: Vec<f64> = (0..).map_while(|at| order.get(at).map(|c| c.bound)).collect();
        assert_eq!(bounds.len(), 18);
        assert!(bounds.iter().zip(&slow).all(|(a, b)| (a - b).abs() < 1e-12), "{bounds:?} {slow:?}");
        assert_eq!(CombinationOrder::new(&[list(&[1.0]), Vec::new()], 0.0).get(0), None);
    }
}
