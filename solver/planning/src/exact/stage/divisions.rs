//! What is the best relaxed plan if each task has this many replicas? For rule `path`.
//!
//! Example: in the traffic pipeline the third task needs 0.6 replicas, so a plan has at least one. The relaxation without
//! this knowledge spends the other 0.4 on accuracy. With bounds on the replicas of each task it cannot.
//!
//! The relaxed plan mixes ways ([`Configurations`]). A small programme holds the ways that are known so far: its rows are
//! the replicas of the tasks, and its duals are their prices. The best way at these prices joins the programme, until no
//! way improves it (column generation).

use super::configurations::{Configurations, Way, Worth};
use crate::exact::model::goal::ReplicaRange;
use apportion_mip::tableau::{PivotEnd, Tableau};
use apportion_mip::{ColumnId, Formulation};

/// Most ways that one relaxation may add.
const WAYS_ADDED_MAX: usize = 200;
/// Most pivots for one small programme.
const PIVOTS_MAX: usize = 2_000;
/// Accuracy that a missing replica costs. Accuracies are at most 1, so no plan misses replicas by choice.
const MISSING_COST: f64 = 1_000.0;
/// Distance of bound and value at which a relaxation is solved.
const SOLVED: f64 = 1e-9;

/// The best relaxed plan within some numbers of replicas.
#[derive(Clone, Debug)]
pub(crate) struct Relaxed {
    /// Price of a replica by task, in accuracy.
    pub prices: Vec<f64>,
    /// No plan within these numbers is more accurate.
    pub bound: f64,
    /// Replicas that the queries of each task need within these numbers, not rounded.
    pub needed: Vec<f64>,
}

/// The relaxations of one pipeline. They share the ways that they find.
pub(crate) struct Relaxations<'a> {
    configurations: &'a Configurations,
    ways: Vec<Way>,
}

impl<'a> Relaxations<'a> {
    /// Begins with the most accurate way and with the way of the fewest replicas.
    pub fn new(configurations: &'a Configurations, tasks: usize) -> Self {
        let nothing = vec![0.0; tasks];
        let one = vec![1.0; tasks];
        let (_, accurate) = configurations.best_way(Worth { accuracy: 1.0, prices: &nothing });
        let (_, thrifty) = configurations.best_way(Worth { accuracy: 0.0, prices: &one });
        Self { configurations, ways: vec![accurate, thrifty] }
    }

    /// The best relaxed plan with these numbers of replicas of each task and at most `replicas` together. `None` if there
    /// is none.
    pub fn solve(&mut self, totals: &[ReplicaRange], replicas: f64) -> Option<Relaxed> {
        let least: f64 = totals.iter().map(|of| f64::from(of.least)).sum();
        if least > replicas || totals.iter().any(|of| of.least > of.most) {
            return None;
        }
        let mut best: Option<Relaxed> = None;
        for _ in 0..WAYS_ADDED_MAX {
            let Some(master) = Master::solve(&self.ways, totals, replicas) else {
                // a programme that the simplex cannot solve proves nothing: the bound without prices holds
                return Some(best.unwrap_or_else(|| self.without_prices(totals)));
            };
            let (value, way) = self.configurations.best_way(Worth { accuracy: 1.0, prices: &master.prices });
            let bound = value + spent_max(&master.prices, totals, replicas);
            if best.as_ref().is_none_or(|best| bound < best.bound) {
                best = Some(Relaxed { prices: master.prices, bound, needed: Vec::new() });
            }
            let best = best.as_mut()?;
            best.needed = master.needed;
            if best.bound <= master.value + SOLVED || self.ways.contains(&way) {
                return (master.missing <= 1e-6).then(|| best.clone());
            }
            self.ways.push(way);
        }
        best
    }

    /// The bound if replicas are free.
    fn without_prices(&self, totals: &[ReplicaRange]) -> Relaxed {
        let prices = vec![0.0; totals.len()];
        let (bound, _) = self.configurations.best_way(Worth { accuracy: 1.0, prices: &prices });
        Relaxed { prices, bound, needed: totals.iter().map(|of| f64::from(of.least)).collect() }
    }
}

/// The most that replicas within these numbers can be worth at these prices.
fn spent_max(prices: &[f64], totals: &[ReplicaRange], replicas: f64) -> f64 {
    let mut left = replicas - totals.iter().map(|of| f64::from(of.least)).sum::<f64>();
    let mut worth: f64 = prices.iter().zip(totals).map(|(price, of)| price * f64::from(of.least)).sum();
    let mut order: Vec<usize> = (0..prices.len()).collect();
    order.sort_by(|&a, &b| prices[b].total_cmp(&prices[a]));
    for t in order {
        let more = f64::from(totals[t].most - totals[t].least).min(left);
        worth += more * prices[t];
        left -= more;
    }
    worth
}

/// The best mix of the known ways.
struct Master {
    value: f64,
    prices: Vec<f64>,
    needed: Vec<f64>,
    /// Replicas that are missing.
    missing: f64,
}

impl Master {
    fn solve(ways: &[Way], totals: &[ReplicaRange], replicas: f64) -> Option<Self> {
        let mut programme = Formulation::default();
        let shares: Vec<ColumnId> = ways.iter().map(|_| programme.continuous(0.0, 1.0)).collect();
        let most = |t: usize| ways.iter().map(|w| w.replicas[t]).fold(1.0, f64::max);
        let numbers: Vec<ColumnId> =
            totals.iter().map(|of| programme.continuous(f64::from(of.least), f64::from(of.most))).collect();
        let missing: Vec<ColumnId> = (0..totals.len()).map(|t| programme.continuous(0.0, most(t))).collect();
        for (&share, way) in shares.iter().zip(ways) {
            programme.add_cost(share, -way.accuracy);
        }
        missing.iter().for_each(|&m| programme.add_cost(m, MISSING_COST));
        for t in 0..totals.len() {
            let mut terms: Vec<_> = shares.iter().zip(ways).map(|(&share, way)| (share, way.replicas[t])).collect();
            terms.extend([(numbers[t], -1.0), (missing[t], -1.0)]);
            programme.at_most(0.0, terms);
        }
        programme.at_most(replicas, numbers.iter().map(|&n| (n, 1.0)).collect());
        programme.equal(1.0, shares.iter().map(|&share| (share, 1.0)).collect());
        let mut tableau = Tableau::new(&programme)?;
        if tableau.reoptimise(f64::INFINITY, PIVOTS_MAX) != PivotEnd::Optimal {
            return None;
        }
        let columns = programme.columns.len();
        let taken = |t: usize| shares.iter().zip(ways).map(move |(share, way)| (share.0, way.replicas[t]));
        let load = |t: usize| taken(t).map(|(share, replicas)| tableau.value_of(share) * replicas).sum::<f64>();
        let needed = |t: usize| load(t).clamp(f64::from(totals[t].least), f64::from(totals[t].most));
        Some(Self {
            value: -tableau.cost,
            prices: (0..totals.len()).map(|t| tableau.reduced_cost(columns + t).max(0.0)).collect(),
            needed: (0..totals.len()).map(needed).collect(),
            missing: missing.iter().map(|m| tableau.value_of(m.0)).sum(),
        })
    }
}
