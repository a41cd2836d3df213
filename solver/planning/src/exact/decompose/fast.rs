//! How is a fleet planned within a second? By prices and plans that need no programme for any single pipeline.

use super::close::{BoxEffort, close_gaps, search_some};
use super::generate::{PhaseEnd, Pricing, find_fitting_columns, generate_columns, generate_priced_columns, is_fitting};
use super::joint::{JointBounds, JointPlan, JointProblem, PIPELINES_MIN, PriceBound, hard_columns};
use super::master::MasterGoal;
use super::memory::{RememberedPipeline, RememberedRound};
use super::repair::choose_columns;
use super::shares;
use super::sub::{Column, PricedColumn, Subproblem};
use rayon::prelude::*;

/// From this number of integers and points on, a plan and a bound without programmes come first.
const FAST_MIN: usize = 2_000;

/// Most rounds in which only the changed pipelines are priced again.
const FURTHER_ROUNDS: usize = 2;

/// How long the changed pipelines are searched.
const CHANGED_EFFORT: BoxEffort = BoxEffort { boxes_max: 200, timed_boxes_max: 200, time: 0.5 };

/// From where a fast search began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlanOrigin {
    /// From the start.
    Start,
    /// From a remembered round.
    LastRound,
}

/// A plan of the fast search.
pub(super) struct FastPlan {
    pub whole: JointPlan,
    pub origin: PlanOrigin,
}

/// How the fast search ended.
pub(super) enum FastEnd {
    Plan(FastPlan),
    Infeasible,
    /// Some pipeline needs the exact search, or no plan was found.
    Nothing,
}

impl JointProblem<'_> {
    /// The fast search of a large problem; nothing for small ones.
    pub(super) fn solve_if_large(&self, known: &mut JointBounds) -> FastEnd {
        let is_large = hard_columns(self.space) > FAST_MIN && shares::equal_devices(self).is_none();
        // so few pipelines are taken apart only if they are large
        let is_large = is_large || self.subs.len() < PIPELINES_MIN;
        if is_large { self.solve_fast(known) } else { FastEnd::Nothing }
    }

    /// Prices, bound and plan of a fleet. The plan is as good as its bound says.
    pub(super) fn solve_fast(&self, known: &mut JointBounds) -> FastEnd {
        if !self.subs.iter().all(Subproblem::can_price_fast) {
            return FastEnd::Nothing;
        }
        let last = RememberedRound::last(self);
        if let Some(last) = &last
            && let Some(whole) = self.go_on_from(last, known)
        {
            RememberedRound::remember(self, known, &whole, Some(last));
            return FastEnd::Plan(FastPlan { whole, origin: PlanOrigin::LastRound });
        }
        match self.solve_from_start(known) {
            FastEnd::Plan(fast) => {
                RememberedRound::remember(self, known, &fast.whole, None);
                FastEnd::Plan(fast)
            }
            other => other,
        }
    }

    /// Asks the pipelines that have changed since the last round, and puts the answers together. `None` if the plan is not
    /// close enough to its bound.
    fn go_on_from(&self, last: &RememberedRound, known: &mut JointBounds) -> Option<JointPlan> {
        let same: Vec<Option<&RememberedPipeline>> = (0..self.subs.len()).map(|p| last.answer(self, p)).collect();
        let changed: Vec<usize> = (0..self.subs.len()).filter(|&p| same[p].is_none()).collect();
        let mut bound = self.shared.lagrangian_min(&last.lambda);
        for (p, same) in same.iter().enumerate() {
            let Some(same) = same else { continue };
            bound += same.cost_min;
            let prices = self.shared.prices_for(p, &last.lambda);
            known.cuts[p].push(PriceBound { prices, cost_min: same.cost_min });
            for column in &same.columns {
                known.master.add(p, column.clone());
            }
        }
        bound += self.search_changed(known, &changed, &last.lambda);
        if !bound.is_finite() {
            return None;
        }
        known.raise(bound, &last.lambda);
        known.lambda.clone_from(&last.lambda);
        for round in 0..=FURTHER_ROUNDS {
            let all = [choose_columns(self, known), self.keep_unchanged(&same, known)];
            let whole = all.into_iter().flatten().min_by(|a, b| a.value.total_cmp(&b.value));
            if let Some(whole) = whole.filter(|whole| last.is_close_enough(self, known, whole)) {
                return Some(whole);
            }
            if round == FURTHER_ROUNDS || changed.is_empty() || self.limits.exceeded() {
                break;
            }
            let lambda = known.master.relax(MasterGoal::Cost, self.limits)?.lambda;
            self.search_changed(known, &changed, &lambda);
            known.lambda = lambda;
        }
        None
    }

    /// Prices these pipelines and searches their whole replicas. The sum of their bounds.
    fn search_changed(&self, known: &mut JointBounds, pipelines: &[usize], lambda: &[f64]) -> f64 {
        let priced = self.price_some(known, pipelines, lambda);
        if priced.is_finite() { priced.max(search_some(self, known, pipelines, lambda, CHANGED_EFFORT)) } else { priced }
    }

    /// The last plan, with the cheapest parts for the pipelines that have changed. `None` if they do not fit.
    fn keep_unchanged(&self, same: &[Option<&RememberedPipeline>], known: &JointBounds) -> Option<JointPlan> {
        let priced = |c: &Column| c.cost_at(&known.lambda);
        let part = |(p, same): (usize, &Option<&RememberedPipeline>)| match same {
            Some(same) => Some(same.chosen.clone()),
            None => known.master.columns[p].iter().min_by(|a, b| priced(a).total_cmp(&priced(b))).cloned(),
        };
        self.join(same.iter().enumerate().map(part).collect::<Option<_>>()?)
    }

    /// Prices these pipelines, and adds their plans. The sum of their bounds.
    fn price_some(&self, known: &mut JointBounds, pipelines: &[usize], lambda: &[f64]) -> f64 {
        known.pricings += pipelines.len();
        let price = |&p: &usize| {
            let prices = self.shared.prices_for(p, lambda);
            self.subs[p].price_fast(self.goal, self.goal, &prices, self.limits)
        };
        let answers: Vec<PricedColumn> = pipelines.par_iter().with_max_len(1).map(price).collect();
        let mut sum = 0.0;
        for (&p, PricedColumn { column, bound }) in pipelines.iter().zip(answers) {
            sum += bound;
            let prices = self.shared.prices_for(p, lambda);
            known.cuts[p].push(PriceBound { prices, cost_min: bound });
            if let Some(column) = column {
                known.master.add(p, column);
            }
        }
        sum
    }

    /// As [`Self::solve_fast`], without a round to go on from.
    fn solve_from_start(&self, known: &mut JointBounds) -> FastEnd {
        let all: Vec<usize> = (0..self.subs.len()).collect();
        let lambda = self.shared.own_prices();
        let bound = self.price_some(known, &all, &lambda);
        if bound == f64::INFINITY {
            return FastEnd::Infeasible;
        }
        known.raise(bound, &lambda);
        let is_priced = self.costs_under_floors();
        if is_priced && generate_priced_columns(self, known, Pricing::Fast) == PhaseEnd::Infeasible {
            return FastEnd::Infeasible;
        }
        if !is_priced || !is_fitting(self, known) {
            for generate in [find_fitting_columns, generate_columns] {
                if generate(self, known, Pricing::Fast) == PhaseEnd::Infeasible {
                    return FastEnd::Infeasible;
                }
            }
        }
        close_gaps(self, known);
        let chosen = choose_columns(self, known).or_else(|| known.best_combination(self));
        chosen.map_or(FastEnd::Nothing, |whole| FastEnd::Plan(FastPlan { whole, origin: PlanOrigin::Start }))
    }
}
