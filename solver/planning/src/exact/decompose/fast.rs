//! How is a fleet planned within a second? By prices and plans that need no programme for any single pipeline.

use super::generate::{PhaseEnd, Pricing, find_fitting_columns, generate_columns};
use super::joint::{JointBounds, JointPlan, JointProblem, PriceBound, hard_columns};
use super::repair::choose_columns;
use super::shares;
use super::sub::{PricedColumn, Subproblem};
use rayon::prelude::*;

/// From this number of integers and points on, a plan and a bound without programmes come first.
const FAST_MIN: usize = 2_000;

/// How the fast search ended.
pub(super) enum FastEnd {
    Plan(JointPlan),
    Infeasible,
    /// Some pipeline needs the exact search, or no plan was found.
    Nothing,
}

impl JointProblem<'_> {
    /// The fast search of a large problem; nothing for small ones.
    pub(super) fn solve_if_large(&self, known: &mut JointBounds) -> FastEnd {
        let is_large = hard_columns(self.space) > FAST_MIN && shares::equal_devices(self).is_none();
        if is_large { self.solve_fast(known) } else { FastEnd::Nothing }
    }

    /// Prices, bound and plan of a fleet. The plan is as good as its bound says.
    pub(super) fn solve_fast(&self, known: &mut JointBounds) -> FastEnd {
        if !self.subs.iter().all(Subproblem::can_price_fast) {
            return FastEnd::Nothing;
        }
        let cost = &self.shared.cost;
        let price = |sub: &Subproblem| sub.price_fast(self.goal, self.goal, cost, self.limits);
        let answers: Vec<PricedColumn> = self.subs.par_iter().map(price).collect();
        let mut bound = 0.0;
        for (p, PricedColumn { column, bound: own }) in answers.into_iter().enumerate() {
            if own == f64::INFINITY {
                return FastEnd::Infeasible;
            }
            bound += own;
            known.cuts[p].push(PriceBound { prices: cost.clone(), cost_min: own });
            if let Some(column) = column {
                known.master.add(p, column);
            }
        }
        known.bound = known.bound.max(bound);
        for generate in [find_fitting_columns, generate_columns] {
            if generate(self, known, Pricing::Fast) == PhaseEnd::Infeasible {
                return FastEnd::Infeasible;
            }
        }
        let chosen = choose_columns(self, known).or_else(|| known.best_combination(self));
        chosen.map_or(FastEnd::Nothing, FastEnd::Plan)
    }
}
