//! Which prices of the resources give the best bound? The Lagrangian dual of constraint 3, by Dantzig-Wolfe decomposition.
//!
//! For prices `u >= 0` the applications are independent, and
//! `L(u) = sum_i min over covers of (price + u use) - u R_total` is a lower bound. The largest `L` is the bound of the
//! programme in which applications mix integer covers. It is stronger than the plain relaxation, which also allows
//! fractions of replicas. The master programme mixes the proposals so far. It has one row for each resource and one for
//! the mixture, so a pivot is cheap. Its duals are the next prices.

use super::knapsack::{Knapsack, LoadCover, SearchStopped};
use super::program::{Program, fits};
use apportion_mip::RunLimits;
use apportion_mip::tableau::{PivotEnd, Tableau};
use apportion_mip::{ColumnId, Formulation};

/// Most rounds of prices. The bound is valid after each of them.
const ROUNDS_MAX: usize = 200;
/// Relative distance of the master's value and the bound at which the prices are good enough.
const TIGHT: f64 = 1e-7;
/// Price of exceeding a resource by its whole total, in upper bounds of a plan's price. If the relaxation exceeds a
/// resource by more than a millionth, its bound proves that there is no plan.
const EXCESS: f64 = 1e6;
/// A bound must exceed every plan's price by this to prove that there is no plan. Rounding at such prices stays below it.
const MARGIN: f64 = 1e-6;
/// Most pivots of the master.
const PIVOTS_MAX: usize = 10_000;

/// Prices with their bound.
#[derive(Clone, Debug)]
pub(crate) struct Prices {
    /// By resource; 0 where it does not bind.
    pub of: Vec<f64>,
    /// No plan has a lower price.
    pub bound: f64,
    /// The cheapest covers at these prices.
    pub choices: Vec<LoadCover>,
    /// The choices fit into the resources and cost no more than the bound: they are optimal.
    pub optimal: bool,
}

/// Result of pricing.
#[derive(Clone, Debug)]
pub(crate) enum Dual {
    Priced(Prices),
    /// It is proven that no plan obeys every constraint.
    Infeasible,
    /// The limits ended the search before any prices.
    Unknown,
}

/// The cheapest covers of all applications at one set of prices.
struct Proposal {
    price: f64,
    uses: Vec<f64>,
}

/// Finds the best prices.
pub(crate) fn find_prices(program: &Program, limits: &RunLimits) -> Dual {
    let mut knapsack = Knapsack::default();
    let Some(most) = price_max(program) else { return Dual::Infeasible };
    let mut proposals: Vec<Proposal> = Vec::new();
    let mut best: Option<Prices> = None;
    let mut prices = vec![0.0; program.totals.len()];
    for round in 0..ROUNDS_MAX {
        if round > 0 && limits.exceeded() {
            break;
        }
        let choices = match cheapest_covers(program, &mut knapsack, &prices, limits) {
            Ok(Some(choices)) => choices,
            Ok(None) => return Dual::Infeasible,
            Err(SearchStopped) => break,
        };
        let proposal = Proposal::of(&choices, prices.len());
        // differences first, because the prices of scarce resources are large
        let over = prices.iter().zip(&proposal.uses).zip(&program.totals).filter(|((u, _), _)| **u > 0.0);
        let bound = proposal.price + over.map(|((u, used), total)| u * (used - total)).sum::<f64>();
        let fitting = proposal.uses.iter().zip(&program.totals).all(|(&used, &total)| fits(used, total));
        if bound > most * (1.0 + MARGIN) + MARGIN {
            return Dual::Infeasible;
        }
        let optimal = fitting && proposal.price <= bound + 1e-9 * bound.abs().max(1.0);
        if optimal || best.as_ref().is_none_or(|b| bound > b.bound) {
            best = Some(Prices { of: prices.clone(), bound, choices, optimal });
        }
        if optimal {
            break;
        }
        proposals.push(proposal);
        let Some(mixture) = mix_proposals(program, &proposals, most) else { break };
        let is_tight = |b: &Prices| mixture.price - b.bound <= TIGHT * mixture.price.abs().max(1.0);
        if best.as_ref().is_some_and(is_tight) {
            break;
        }
        prices = mixture.resource_prices;
    }
    best.map_or(Dual::Unknown, Dual::Priced)
}

/// The cheapest cover of every application; `None` if no variant can cover some load.
fn cheapest_covers(
    program: &Program,
    knapsack: &mut Knapsack,
    prices: &[f64],
    limits: &RunLimits,
) -> Result<Option<Vec<LoadCover>>, SearchStopped> {
    let each = program.covers.iter().map(|cover| knapsack.cheapest(cover, prices, limits).transpose());
    each.collect::<Option<Result<Vec<LoadCover>, SearchStopped>>>().transpose()
}

/// An upper bound of the price of any cover that needs every replica. Its capacity is below the needed load plus one
/// replica, and no part costs more than the most expensive query per second. `None` if no variant can cover some load.
fn price_max(program: &Program) -> Option<f64> {
    let mut sum = 0.0;
    for cover in program.covers.iter().filter(|c| c.needed > 0.0) {
        if cover.capacity_max() < cover.needed {
            return None;
        }
        let dearest = cover.kinds.iter().map(|k| k.add / k.qps).fold(0.0, f64::max);
        let largest = cover.kinds.iter().map(|k| k.qps).fold(0.0, f64::max);
        sum += dearest * (cover.needed + largest);
    }
    Some(sum)
}

/// The cheapest mixture of proposals.
struct Mixture {
    price: f64,
    /// Duals of the resources: the next prices.
    resource_prices: Vec<f64>,
}

/// Mixes the proposals within the resources. Exceeding a resource has a high price, which depends on `most`, an upper bound
/// of a plan's price. `None` if the pivots are used up.
fn mix_proposals(program: &Program, proposals: &[Proposal], most: f64) -> Option<Mixture> {
    let rows: Vec<usize> = (0..program.totals.len()).filter(|&t| program.totals[t].is_finite()).collect();
    let scale = |t: usize| if program.totals[t] > 0.0 { program.totals[t] } else { 1.0 };
    let mut formulation = Formulation::default();
    let shares: Vec<ColumnId> = proposals.iter().map(|_| formulation.continuous(0.0, 1.0)).collect();
    for (&share, proposal) in shares.iter().zip(proposals) {
        formulation.add_cost(share, proposal.price);
    }
    formulation.equal(1.0, shares.iter().map(|&s| (s, 1.0)).collect());
    for &t in &rows {
        let largest = proposals.iter().map(|a| a.uses[t]).fold(0.0, f64::max) / scale(t);
        let excess = formulation.continuous(0.0, largest + 1.0);
        formulation.add_cost(excess, EXCESS * most.max(1.0));
        let mixed = shares.iter().zip(proposals).map(|(&s, a)| (s, a.uses[t] / scale(t)));
        formulation.at_most(program.totals[t] / scale(t), mixed.chain([(excess, -1.0)]).collect());
    }
    let mut tableau = Tableau::new(&formulation)?;
    if tableau.reoptimise(f64::INFINITY, PIVOTS_MAX) != PivotEnd::Optimal {
        return None;
    }
    let mut prices = vec![0.0; program.totals.len()];
    for (row, &t) in rows.iter().enumerate() {
        prices[t] = tableau.reduced_cost(formulation.columns.len() + 1 + row).max(0.0) / scale(t);
    }
    Some(Mixture { price: tableau.cost, resource_prices: prices })
}

impl Proposal {
    fn of(choices: &[LoadCover], resources: usize) -> Self {
        let use_of = |t: usize| choices.iter().map(|c| c.uses[t]).sum();
        Self { price: choices.iter().map(|c| c.price).sum(), uses: (0..resources).map(use_of).collect() }
    }
}
