//! How does a fleet use the time that is left? Searches over whole replicas, above all of pipelines that gain by them.

use super::joint::{JointBounds, JointProblem, PriceBound};
use super::master::MasterGoal;
use super::pricing::PipelineSearch;
use rayon::prelude::*;

/// How long the pipelines are searched at some prices.
#[derive(Clone, Copy, Debug)]
pub(super) struct BoxEffort {
    /// Boxes of each pipeline, at most.
    pub boxes_max: usize,
    /// The same where costs are least under floors, with a time limit. It bounds them by itself.
    pub timed_boxes_max: usize,
    /// Part of the time that is left.
    pub time: f64,
}

/// The first searches find plans, and with them better prices. The second ones raise the bound there.
const STAGES: [BoxEffort; 2] = [
    BoxEffort { boxes_max: 100, timed_boxes_max: 100, time: 0.4 },
    BoxEffort { boxes_max: 1_000, timed_boxes_max: 3_000, time: 0.8 },
];
/// Boxes of a search between two choices of the pipelines that go on.
const BOXES_PER_ROUND: usize = 25;
/// Part of a pipeline's gap that counts as the gain of a round without any.
const GAIN_MIN: f64 = 0.02;
/// Share of the requested gap at which a pipeline is searched no further.
const CLOSED_GAP: f64 = 0.1;

/// Raises the bound and improves the plans at the prices of the known plans.
pub(super) fn close_gaps(joint: &JointProblem<'_>, known: &mut JointBounds) {
    let all: Vec<usize> = (0..joint.subs.len()).collect();
    for effort in STAGES {
        if joint.limits.exceeded() {
            return;
        }
        let Some(duals) = known.master.relax(MasterGoal::Cost, joint.limits) else { return };
        known.lambda.clone_from(&duals.lambda);
        let bound = joint.shared.lagrangian_min(&duals.lambda) + search_some(joint, known, &all, &duals.lambda, effort);
        tracing::debug!(value = duals.value, bound, ?effort, "searched whole replicas");
        if bound.is_finite() {
            known.raise(bound, &duals.lambda);
        }
    }
    if let Some(duals) = known.master.relax(MasterGoal::Cost, joint.limits) {
        known.lambda = duals.lambda;
    }
}

/// Searches these pipelines at given prices, and adds their plans. The sum of their bounds. Pipelines differ much in their
/// work, so each of them is a part by itself.
pub(super) fn search_some(
    joint: &JointProblem<'_>,
    known: &mut JointBounds,
    pipelines: &[usize],
    lambda: &[f64],
    effort: BoxEffort,
) -> f64 {
    let limits = joint.limits.with_share_of_time(effort.time);
    let columns = &known.master.columns;
    let start = |&p: &usize| {
        let prices = joint.shared.prices_for(p, lambda);
        let cost_max = columns[p].iter().map(|c| c.cost_at(&prices)).fold(f64::INFINITY, f64::min);
        let search = joint.subs[p].search_loads(joint.goal, &prices, cost_max, CLOSED_GAP * joint.gap);
        ChosenSearch { search, is_chosen: true, gap: f64::INFINITY, gain: 0.0 }
    };
    let mut searches: Vec<ChosenSearch<'_>> = pipelines.par_iter().with_max_len(1).map(start).collect();
    let is_timed = limits.deadline.is_some() && joint.costs_under_floors();
    let boxes_max = if is_timed { effort.timed_boxes_max } else { effort.boxes_max };
    for _ in 0..boxes_max.div_ceil(BOXES_PER_ROUND) {
        if limits.exceeded() || !searches.iter().any(|of| of.is_chosen) {
            break;
        }
        let chosen: Vec<&mut ChosenSearch<'_>> = searches.iter_mut().filter(|of| of.is_chosen).collect();
        chosen.into_par_iter().with_max_len(1).for_each(|of| {
            if let Some(search) = &mut of.search {
                search.run(BOXES_PER_ROUND, &limits);
            }
        });
        choose_largest_gains(&mut searches);
    }
    let found = || searches.iter().filter_map(|of| of.search.as_ref());
    let gap: f64 = found().map(PipelineSearch::gap).sum();
    let early_splits: usize = found().map(PipelineSearch::early_splits).sum();
    tracing::debug!(gap, early_splits, "searches at given prices");
    known.pricings += pipelines.len();
    let mut sum = 0.0;
    for (&p, of) in pipelines.iter().zip(searches) {
        // a pipeline without a search has no plan
        let Some(mut search) = of.search else { return f64::INFINITY };
        sum += search.bound();
        known.cuts[p].push(PriceBound { prices: joint.shared.prices_for(p, lambda), cost_min: search.bound() });
        if let Some(column) = search.take_column(joint.limits) {
            known.master.add(p, column);
        }
    }
    sum
}

/// The search of one pipeline.
struct ChosenSearch<'a> {
    /// `None` if the pipeline has no plan.
    search: Option<PipelineSearch<'a>>,
    /// Whether it goes on in the next round.
    is_chosen: bool,
    /// Its gap after the last round.
    gap: f64,
    /// By how much its last round has lowered the gap, or a small part of the gap.
    gain: f64,
}

impl ChosenSearch<'_> {
    /// Counts what a round has gained.
    fn count_gain(&mut self) {
        let gap = self.search.as_ref().map_or(0.0, PipelineSearch::gap);
        let gained = if self.gap.is_finite() { self.gap - gap } else { gap };
        self.gain = if gap > 0.0 { gained.max(GAIN_MIN * gap) } else { 0.0 };
        self.gap = gap;
    }
}

/// Chooses half of the searches that are not over: those that have gained most.
fn choose_largest_gains(searches: &mut [ChosenSearch<'_>]) {
    searches.iter_mut().filter(|of| of.is_chosen).for_each(ChosenSearch::count_gain);
    let mut gains: Vec<f64> = searches.iter().map(|of| of.gain).filter(|gain| *gain > 0.0).collect();
    gains.sort_by(f64::total_cmp);
    let least = gains.get(gains.len() / 2).copied().unwrap_or(f64::INFINITY);
    searches.iter_mut().for_each(|of| of.is_chosen = of.gain >= least);
}
