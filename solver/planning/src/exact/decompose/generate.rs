//! At which prices of devices do the pipelines' own plans fit together? Column generation solves the Lagrangian dual.
//!
//! At prices lambda, `L(lambda) = sum over g of min (v_g(x) + lambda a_g(x)) + min over d of (cost - lambda) d` bounds
//! every joint plan from below (Lagrangian relaxation of the rows of devices and quotas; Geoffrion 1974). The plans of the
//! pipelines are new columns of the master programme, and its duals are the next prices. If prices swing, they are drawn
//! towards the best prices so far (Wentges 1997).

use super::joint::{JointBounds, JointProblem, PriceBound};
use super::master::MasterGoal;
use super::sub::{PricedColumn, PricedQuestion, Subproblem};
use crate::exact::model::goal::Goal;
use rayon::prelude::*;

/// Most rounds of one phase.
const ROUNDS_MAX: usize = 80;
/// Weight of the best prices so far in the next prices.
const PULL: f64 = 0.4;
/// Least violation of the device rows, relative, that proves a joint problem infeasible.
const SHORTAGE_MIN: f64 = 1e-5;
/// Largest violation, relative, of columns that fit together.
const FITTING_MAX: f64 = 1e-9;
/// Share of the requested gap at which the bound is good enough.
const BOUND_GAP: f64 = 0.1;

/// Most rounds of fast pricing.
const FAST_ROUNDS_MAX: usize = 12;
/// Least gain of a round of fast pricing, relative: value and bound together.
const FAST_GAIN: f64 = 3e-3;
/// The same for columns that pay for a shortage. The searches over whole replicas gain more in the same time.
const PRICED_GAIN: f64 = 1e-2;

/// How a phase ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PhaseEnd {
    /// The relaxation is solved, or nearly.
    Solved,
    /// It is proven that no plans of the pipelines fit together.
    Infeasible,
    /// The limits or the count of rounds ended it.
    Stopped,
}

/// Result of one round of prices.
struct RoundResult {
    /// A bound on every joint plan.
    bound: f64,
    /// New columns.
    new: usize,
}

/// Prices with their bound.
struct BoundAtPrices {
    bound: f64,
    /// Price of a device of each hardware type, then of a unit of each row of a quota.
    lambda: Vec<f64>,
}

/// How closely is each pipeline solved at given prices?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pricing {
    /// By programmes, to the gap asked for.
    Exact,
    /// Without programmes of whole pipelines ([`super::pricer`]): the bound lets parts of replicas be bought.
    Fast,
}

/// Adds columns until some of them fit together, at any cost.
pub(super) fn find_fitting_columns(joint: &JointProblem<'_>, known: &mut JointBounds, pricing: Pricing) -> PhaseEnd {
    run_phase(joint, known, MasterGoal::Shortage, pricing)
}

/// Raises the bound and adds columns until the relaxation is solved.
pub(super) fn generate_columns(joint: &JointProblem<'_>, known: &mut JointBounds, pricing: Pricing) -> PhaseEnd {
    run_phase(joint, known, MasterGoal::Cost, pricing)
}

/// The same where devices have costs: columns that do not fit together pay for the violation. So the first prices are near
/// the last ones, and the columns of all rounds are useful.
pub(super) fn generate_priced_columns(joint: &JointProblem<'_>, known: &mut JointBounds, pricing: Pricing) -> PhaseEnd {
    run_phase(joint, known, MasterGoal::CostOrShortage, pricing)
}

/// Whether some known columns fit together, whole or in parts.
pub(super) fn is_fitting(joint: &JointProblem<'_>, known: &JointBounds) -> bool {
    known.master.relax(MasterGoal::Shortage, joint.limits).is_some_and(|duals| duals.value <= FITTING_MAX)
}

/// Prices the pipelines until the phase ends.
fn run_phase(joint: &JointProblem<'_>, known: &mut JointBounds, goal: MasterGoal, pricing: Pricing) -> PhaseEnd {
    let is_shortage = goal == MasterGoal::Shortage;
    // the round of the highest bound
    let mut center: Option<BoundAtPrices> = None;
    let mut pull = 0.0;
    let (mut last_value, mut last_bound) = (f64::INFINITY, f64::NEG_INFINITY);
    for round in 0..ROUNDS_MAX {
        let Some(duals) = known.master.relax(goal, joint.limits) else { return PhaseEnd::Stopped };
        let best = center.as_ref().map_or(f64::NEG_INFINITY, |c| c.bound);
        let best = if is_shortage { best } else { best.max(known.bound) };
        tracing::debug!(round, ?goal, value = duals.value, bound = best, lambda = ?duals.lambda, "columns");
        if is_shortage && duals.value <= FITTING_MAX {
            return PhaseEnd::Solved;
        }
        if !is_shortage && duals.value - best <= (BOUND_GAP * joint.gap * duals.value.abs()).max(1e-9) {
            return PhaseEnd::Solved;
        }
        if pricing != Pricing::Exact && !is_shortage {
            let gain = (last_value - duals.value) + (best - last_bound);
            let enough = if goal == MasterGoal::CostOrShortage { PRICED_GAIN } else { FAST_GAIN };
            if round >= FAST_ROUNDS_MAX || (round > 1 && gain <= enough * duals.value.abs()) {
                return PhaseEnd::Stopped;
            }
            (last_value, last_bound) = (duals.value, best);
        }
        known.lambda.clone_from(&duals.lambda);
        let lambda = match &center {
            Some(center) => duals.lambda.iter().zip(&center.lambda).map(|(l, c)| pull * c + (1.0 - pull) * l).collect(),
            None => duals.lambda,
        };
        let Some(found) = price_pipelines(joint, known, &lambda, goal, pricing) else { return PhaseEnd::Infeasible };
        if is_shortage && found.bound > SHORTAGE_MIN {
            return PhaseEnd::Infeasible;
        }
        if !is_shortage {
            known.raise(found.bound, &lambda);
        }
        if center.as_ref().is_none_or(|c| found.bound > c.bound) {
            center = Some(BoundAtPrices { bound: found.bound, lambda });
        }
        if joint.limits.exceeded() {
            return PhaseEnd::Stopped;
        }
        match (found.new, pull > 0.0) {
            (0, true) => pull = 0.0,
            (0, false) => return if is_shortage { PhaseEnd::Stopped } else { PhaseEnd::Solved },
            _ => pull = PULL,
        }
    }
    PhaseEnd::Stopped
}

/// Solves every pipeline at these prices; `None` if one of them has no plan at all.
fn price_pipelines(
    joint: &JointProblem<'_>,
    known: &mut JointBounds,
    lambda: &[f64],
    master_goal: MasterGoal,
    pricing: Pricing,
) -> Option<RoundResult> {
    let is_shortage = master_goal == MasterGoal::Shortage;
    let goal = if is_shortage { Goal::Nothing } else { joint.goal };
    let question = PricedQuestion {
        goal,
        worth: joint.goal,
        prices: lambda,
        accuracy_min: None,
        room: None,
        free: None,
        gap: joint.gap,
    };
    let prices: Vec<Vec<f64>> = (0..joint.subs.len()).map(|p| joint.shared.prices_for(p, lambda)).collect();
    let answer = |(sub, prices): (&Subproblem, &Vec<f64>)| match pricing {
        Pricing::Exact => sub.solve(PricedQuestion { prices, ..question }, joint.limits),
        Pricing::Fast => sub.price_fast(goal, joint.goal, prices, joint.limits),
    };
    let answers: Vec<PricedColumn> = joint.subs.par_iter().with_max_len(1).zip(&prices).map(answer).collect();
    known.pricings += joint.subs.len();
    let mut shared = joint.shared.clone();
    if is_shortage {
        shared.cost.iter_mut().for_each(|c| *c = 0.0);
    }
    let mut bound = shared.lagrangian_min(lambda);
    let mut new = 0;
    for (p, (answer, prices)) in answers.into_iter().zip(prices).enumerate() {
        if answer.bound == f64::INFINITY {
            return None;
        }
        bound += answer.bound;
        if !is_shortage {
            known.cuts[p].push(PriceBound { prices, cost_min: answer.bound });
        }
        new += usize::from(answer.column.is_some_and(|c| known.master.add(p, c)));
    }
    if is_shortage {
        bound = if shared.weigh_shortage(lambda) { bound } else { f64::NEG_INFINITY };
    }
    Some(RoundResult { bound, new })
}
