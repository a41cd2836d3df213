//! Which covers of the applications are best together?
//!
//! Let `L` be the bound of [`dual`](super::dual), and `z` the price of some plan. A better plan gives every application
//! a cover whose price at the dual's prices is less than `z - L` above its cheapest cover. Few covers are so cheap, and
//! each application lists them ([`Knapsack::list_covers`]). The rest is a small programme with one choice for each
//! application and the resource rows. Its relaxation is as tight as the dual. It goes to our branch and bound for small
//! programmes, and to HiGHS if that is not enough. If the lists are too long, the whole integer programme goes to
//! HiGHS.

use super::dual;
use super::dual::{Dual, Prices};
use super::ilp;
use super::ilp::IlpGoal;
use super::knapsack::{Knapsack, ListLimits, LoadCover, counts_of};
use super::program::{Program, ReplicaCounts};
use apportion_domain::StopReason;
use apportion_mip::RunLimits;
use apportion_mip::branch;
use apportion_mip::highs::{self, SolveSettings};
use apportion_mip::{ColumnId, Ending, Formulation};

/// Most covers that one application may list.
const COVERS_MAX: usize = 2_000;
/// Covers in the first, small programme, beside the cheapest ones.
const FIRST_COVERS: usize = 60;
/// Most covers of a small programme. With more, the whole problem goes to HiGHS.
const LISTED_MAX: usize = 20_000;
/// How far above the bound the first lists reach if no plan is known, in mean prices of one application.
const FIRST_REACH: f64 = 0.5;
/// Most rounds of lists. Each reaches as far as the best plan of the round before needs.
const ATTEMPTS: usize = 3;
/// Prices this near, relative, are equal.
const EQUAL: f64 = 1e-9;

/// How a search ended.
#[derive(Clone, Debug)]
pub(crate) enum MinimumResult {
    /// Counts that obey every constraint. No plan has a price below `bound`.
    Found {
        counts: ReplicaCounts,
        bound: f64,
        stopped: Option<StopReason>,
    },
    Infeasible,
    Unknown(StopReason),
}

/// A plan with its price.
#[derive(Clone, Debug)]
pub(crate) struct PricedCounts {
    pub price: f64,
    pub counts: ReplicaCounts,
}

impl PricedCounts {
    fn new(program: &Program, counts: ReplicaCounts) -> Self {
        Self { price: program.price(&counts), counts }
    }
}

/// Searches for the cheapest counts; `start` is a known plan.
pub(crate) fn minimise(program: &Program, start: Option<&ReplicaCounts>, limits: &RunLimits) -> MinimumResult {
    let mut best = start.map(|counts| PricedCounts::new(program, counts.clone()));
    match dual::find_prices(program, limits) {
        Dual::Infeasible if program.is_out_of_range() => MinimumResult::Unknown(StopReason::Numerics),
        Dual::Infeasible => MinimumResult::Infeasible,
        Dual::Unknown => minimise_with_highs(program, best, f64::NEG_INFINITY, limits),
        Dual::Priced(prices) if prices.optimal => proven(counts_of(prices.choices.iter()), prices.bound),
        Dual::Priced(prices) => {
            let near = Near { program, prices: &prices, limits };
            match near.improve(&mut best) {
                Ok(()) => best.map_or(MinimumResult::Unknown(StopReason::Numerics), |best| proven(best.counts, best.price)),
                Err(NotProven) => minimise_with_highs(program, best, prices.bound, limits),
            }
        }
    }
}

/// Counts without a better plan.
fn proven(counts: ReplicaCounts, bound: f64) -> MinimumResult {
    MinimumResult::Found { counts, bound, stopped: None }
}

/// Solves the whole integer programme with HiGHS, from the best known plan.
pub(crate) fn minimise_with_highs(
    program: &Program,
    best: Option<PricedCounts>,
    bound: f64,
    limits: &RunLimits,
) -> MinimumResult {
    let answer = ilp::solve(program, IlpGoal::Price, limits, best.as_ref().map(|b| &b.counts));
    let reason = limits.stop_reason_or_time_limit();
    let found = answer.counts.filter(|counts| program.admits(counts)).map(|counts| PricedCounts::new(program, counts));
    let cheaper = match (found, best) {
        (Some(a), Some(b)) => Some(if a.price <= b.price { a } else { b }),
        (a, b) => a.or(b),
    };
    match (answer.ending, cheaper) {
        (Ending::Infeasible, None) if program.is_out_of_range() => MinimumResult::Unknown(StopReason::Numerics),
        (Ending::Infeasible, None) => MinimumResult::Infeasible,
        (Ending::Optimal, Some(PricedCounts { counts, .. })) => proven(counts, answer.bound),
        (Ending::Stopped, Some(PricedCounts { counts, .. })) => {
            MinimumResult::Found { counts, bound: answer.bound.max(bound), stopped: Some(reason) }
        }
        (Ending::Stopped, None) => MinimumResult::Unknown(reason),
        (_, Some(PricedCounts { counts, .. })) => {
            MinimumResult::Found { counts, bound, stopped: Some(StopReason::Numerics) }
        }
        (_, None) => MinimumResult::Unknown(StopReason::Numerics),
    }
}

/// The lists were too long, the programme was too hard, or the time is up.
struct NotProven;

/// The listed covers of each application.
struct CoverLists {
    /// By application, the cheapest cover first.
    lists: Vec<Vec<LoadCover>>,
    /// How far the lists reach above the cheapest covers.
    reach: f64,
}

/// The search near the dual's prices.
struct Near<'a> {
    program: &'a Program,
    prices: &'a Prices,
    limits: &'a RunLimits,
}

impl Near<'_> {
    /// Replaces the known plan by the best one. `Ok` proves that it is the best.
    fn improve(&self, best: &mut Option<PricedCounts>) -> Result<(), NotProven> {
        for _ in 0..ATTEMPTS {
            let CoverLists { lists, reach } = self.list_covers(best)?;
            let first = narrowest(&lists, self.prices, FIRST_COVERS);
            if first < reach {
                self.combine(&lists, first, best)?;
                if self.gap(best) <= first {
                    return Ok(());
                }
            }
            self.combine(&lists, self.gap(best).min(reach), best)?;
            // every unlisted cover is dearer than the known plan, which this round may have found
            if self.gap(best) <= reach {
                return Ok(());
            }
            if best.is_none() {
                break;
            }
        }
        Err(NotProven)
    }

    /// Distance of the known plan from the bound, with a margin for equal prices.
    fn gap(&self, best: &Option<PricedCounts>) -> f64 {
        let over = |price: f64| (price - self.prices.bound).max(0.0) + EQUAL * price.abs().max(1.0);
        best.as_ref().map_or(f64::INFINITY, |best| over(best.price))
    }

    /// Covers of each application up to a reach above its cheapest: the gap of the known plan, or less if the lists get
    /// too long.
    fn list_covers(&self, best: &Option<PricedCounts>) -> Result<CoverLists, NotProven> {
        let cheapest: f64 = self.prices.choices.iter().map(|c| c.priced).sum();
        let own = FIRST_REACH * cheapest / self.prices.choices.len().max(1) as f64 + EQUAL;
        let gap = self.gap(best);
        for reach in [gap.min(8.0 * own), gap.min(own), gap.min(0.1 * own)] {
            let mut knapsack = Knapsack::default();
            let list = |(cover, cheapest): (_, &LoadCover)| {
                let list = ListLimits { price_below: cheapest.priced + reach, covers_max: COVERS_MAX };
                knapsack.list_covers(cover, &self.prices.of, list, self.limits)
            };
            let lists: Option<Vec<_>> = self.program.covers.iter().zip(&self.prices.choices).map(list).collect();
            if let Some(lists) = lists
                && lists.iter().map(Vec::len).sum::<usize>() <= LISTED_MAX
            {
                return Ok(CoverLists { lists, reach });
            }
        }
        Err(NotProven)
    }

    /// The best combination of the listed covers up to `reach`, if it is better than the known plan.
    fn combine(&self, lists: &[Vec<LoadCover>], reach: f64, best: &mut Option<PricedCounts>) -> Result<(), NotProven> {
        let near = |(list, cheapest): (&Vec<LoadCover>, &LoadCover)| -> Vec<LoadCover> {
            list.iter().filter(|c| c.priced < cheapest.priced + reach).cloned().collect()
        };
        let lists: Vec<Vec<LoadCover>> = lists.iter().zip(&self.prices.choices).map(near).collect();
        if lists.iter().any(Vec::is_empty) {
            return Ok(());
        }
        let programme = Programme::new(self.program, &lists);
        let base: f64 = lists.iter().map(|l| l[0].price).sum();
        let cutoff = best.as_ref().map_or(f64::INFINITY, |b| b.price - base);
        let small = branch::solve(&programme.formulation, 0.0, cutoff, self.limits);
        let solved =
            small.unwrap_or_else(|| highs::solve(&programme.formulation, SolveSettings::mip(0.0), self.limits, None));
        if let Some(values) = &solved.values {
            let counts = programme.counts(&lists, values);
            let price = self.program.price(&counts);
            if !self.program.admits(&counts) {
                // the plan is within the solver's tolerance of a resource, but not within ours
                return Err(NotProven);
            }
            if best.as_ref().is_none_or(|b| price < b.price) {
                *best = Some(PricedCounts { price, counts });
            }
        }
        match solved.ending {
            Ending::Optimal | Ending::Infeasible => Ok(()),
            Ending::Stopped | Ending::Failed => Err(NotProven),
        }
    }
}

/// How far above the cheapest covers the nearest `most` others reach.
fn narrowest(lists: &[Vec<LoadCover>], prices: &Prices, most: usize) -> f64 {
    let over = |(list, cheapest): (&Vec<LoadCover>, &LoadCover)| -> Vec<f64> {
        list.iter().skip(1).map(|c| c.priced - cheapest.priced).collect()
    };
    let mut all: Vec<f64> = lists.iter().zip(&prices.choices).flat_map(over).collect();
    all.sort_by(f64::total_cmp);
    all.get(most).copied().unwrap_or(f64::INFINITY)
}

/// A cover by its place in the lists.
#[derive(Clone, Copy)]
struct ListedCover {
    application: usize,
    /// Position in the list of the application.
    position: usize,
}

/// One binary for each cover beside an application's first; at most one of an application's; the resources that are left.
struct Programme {
    formulation: Formulation,
    /// By column.
    covers: Vec<ListedCover>,
}

impl Programme {
    fn new(program: &Program, lists: &[Vec<LoadCover>]) -> Self {
        let mut programme = Self { formulation: Formulation::default(), covers: Vec::new() };
        let f = &mut programme.formulation;
        for (i, list) in lists.iter().enumerate() {
            let mut own = Vec::with_capacity(list.len());
            for (c, cover) in list.iter().enumerate().skip(1) {
                let column = f.integer(0.0, 1.0);
                f.add_cost(column, cover.price - list[0].price);
                programme.covers.push(ListedCover { application: i, position: c });
                own.push((column, 1.0));
            }
            if own.len() > 1 {
                f.at_most(1.0, own);
            }
        }
        for (t, &total) in program.totals.iter().enumerate().filter(|(_, total)| total.is_finite()) {
            let base: f64 = lists.iter().map(|l| l[0].uses[t]).sum();
            let scale = if total > 0.0 { total } else { 1.0 };
            let more = |(c, cover): (usize, &ListedCover)| {
                let list = &lists[cover.application];
                let more = (list[cover.position].uses[t] - list[0].uses[t]) / scale;
                (more != 0.0).then_some((ColumnId(c), more))
            };
            let terms: Vec<_> = programme.covers.iter().enumerate().filter_map(more).collect();
            let room = (total - base) / scale;
            if !terms.is_empty() || room < -EQUAL {
                f.at_most(room, terms);
            }
        }
        programme
    }

    fn counts(&self, lists: &[Vec<LoadCover>], values: &[f64]) -> ReplicaCounts {
        let mut chosen = vec![0; lists.len()];
        for (cover, value) in self.covers.iter().zip(values) {
            if *value > 0.5 {
                chosen[cover.application] = cover.position;
            }
        }
        counts_of(lists.iter().zip(chosen).map(|(list, c)| &list[c]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scaling::drawn::{Draw, program};
    use std::sync::Arc;
    use std::time::Duration;

    fn unlimited() -> RunLimits {
        RunLimits::new(Arc::new(|| Duration::ZERO))
    }

    /// The least price over all counts up to the need of one variant alone.
    fn brute_force(program: &Program) -> Option<f64> {
        fn below(program: &Program, counts: &mut ReplicaCounts, at: (usize, usize), best: &mut Option<f64>) {
            let (i, v) = at;
            let Some(cover) = program.covers.get(i) else {
                if program.admits(counts) {
                    let price = program.price(counts);
                    *best = Some(best.map_or(price, |b: f64| b.min(price)));
                }
                return;
            };
            let Some(kind) = cover.kinds.get(v) else {
                // an application that is short stays short
                if cover.admits(&counts[i]) {
                    below(program, counts, (i + 1, 0), best);
                }
                return;
            };
            for n in 0..=((cover.needed / kind.qps).ceil().max(0.0) as u32).min(kind.most) {
                counts[i][v] = n;
                below(program, counts, (i, v + 1), best);
            }
            counts[i][v] = 0;
        }
        let mut counts: ReplicaCounts = program.covers.iter().map(|c| vec![0; c.kinds.len()]).collect();
        let mut best = None;
        below(program, &mut counts, (0, 0), &mut best);
        best
    }

    #[test]
    fn both_searches_agree_with_brute_force() {
        let (mut feasible, mut infeasible) = (0, 0);
        for seed in 0..400 {
            let program = program(&mut Draw::new(seed));
            let expected = brute_force(&program);
            for search in [
                minimise(&program, None, &unlimited()),
                minimise_with_highs(&program, None, f64::NEG_INFINITY, &unlimited()),
            ] {
                match (expected, search) {
                    (Some(expected), MinimumResult::Found { counts, bound, stopped: None }) => {
                        let price = program.price(&counts);
                        assert!(program.admits(&counts), "seed {seed}");
                        assert!((price - expected).abs() < 1e-7, "seed {seed}: {price} for {expected}");
                        assert!(bound <= price + 1e-7 && bound > price - 1e-6, "seed {seed}: {bound} for {price}");
                        feasible += 1;
                    }
                    (None, MinimumResult::Infeasible) => infeasible += 1,
                    (expected, found) => panic!("seed {seed}: {found:?} for {expected:?}"),
                }
            }
        }
        assert!(feasible > 200 && infeasible > 100, "{feasible} feasible, {infeasible} infeasible");
    }

    #[test]
    fn the_bound_of_the_dual_is_below_the_optimum() {
        for seed in 0..400 {
            let program = program(&mut Draw::new(seed));
            match (brute_force(&program), dual::find_prices(&program, &unlimited())) {
                (Some(best), Dual::Priced(prices)) => {
                    assert!(prices.bound <= best + 1e-7, "seed {seed}: {} above {best}", prices.bound);
                    assert!(!prices.optimal || prices.bound > best - 1e-7, "seed {seed}");
                }
                (None, _) => {}
                (Some(best), dual) => panic!("seed {seed}: {dual:?} for {best}"),
            }
        }
    }

    #[test]
    fn without_time_the_known_plan_is_returned_with_a_bound() {
        for seed in 0..200 {
            let program = program(&mut Draw::new(seed));
            let Ok(start) = crate::scaling::greedy::counts(&program, &unlimited()) else { continue };
            let limits = RunLimits { deadline: Some(Duration::ZERO), ..unlimited() };
            let MinimumResult::Found { counts, bound, stopped } = minimise(&program, Some(&start), &limits) else {
                panic!("seed {seed}: a plan was in hand")
            };
            let best = brute_force(&program).expect("the heuristic found a plan");
            assert!(bound <= best + 1e-7 && program.price(&counts) >= best - 1e-7, "seed {seed}");
            assert!(stopped.is_none_or(|s| s == StopReason::TimeLimit), "seed {seed}: {stopped:?}");
        }
    }
}
