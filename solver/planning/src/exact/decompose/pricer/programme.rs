//! Which mixture of strategies is cheapest if some lanes have limited capacities? A small linear programme.
//!
//! Most lanes pay the rate of parts of replicas. A limited lane has a capacity between two points of its curve, and pays
//! at least the lower convex hull of the curve there. The columns are strategies, of which a walk finds the best one at any
//! prices of the lanes (column generation), and the corners of the hulls.
//!
//! The bound does not rest on the programme. Any prices of lanes and of accuracy give one (Lagrangian relaxation): the
//! cheapest walk at these prices, and the cheapest corner of each hull.

use super::curve::CapacityPoint;
use super::walk::Walker;
use std::sync::Arc;

/// Most pivots of one programme. Then its bound is a little weaker.
const PIVOTS_MAX: usize = 200;
/// Most walks of one programme.
const WALKS_MAX: usize = 25;
/// Reduced costs below this, relative to the penalty, are noise.
const TOLERANCE: f64 = 1e-8;
/// A mixture leaves this part of a capacity unused, so that rounding errors never cost a plan its flows.
const CAPACITY_MARGIN: f64 = 1e-6;
/// Strategies that are kept from one programme to the next, before the oldest ones are forgotten.
const STRATEGIES_MAX: usize = 96;
/// A strategy of the penalty is more accurate than the floor by this.
const PENALTY_ACCURACY: f64 = 0.05;
/// The first row of limited lanes. Before it come the sum of the shares and the floor.
const LANE_ROWS: usize = 2;

/// A lane of limited capacity.
#[derive(Clone, Debug)]
pub(super) struct LimitedLane {
    pub lane: usize,
    /// Its capacity is above this, at least `least` unless its curve is not complete, and at most `most`.
    pub above: f64,
    pub least: f64,
    pub most: f64,
    /// The corners of its prices, at least one.
    pub hull: Vec<CapacityPoint>,
}

/// One programme.
pub(super) struct MixtureQuestion<'a> {
    /// Reward of a unit of accuracy.
    pub reward: f64,
    /// Least accuracy.
    pub floor: f64,
    /// Price of one query per second of the lanes without limits. It is infinite if a lane is closed.
    pub rates: &'a [f64],
    pub limited: &'a [Arc<LimitedLane>],
    /// A bound of this much is enough.
    pub enough: f64,
    /// Cost of queries that no strategy carries; far above that of any plan.
    pub penalty: f64,
}

/// The answer of a programme.
pub(super) struct LaneMixture {
    /// No mixture costs less.
    pub bound: f64,
    pub accuracy: f64,
    /// Queries per second, by lane.
    pub loads: Vec<f64>,
    /// What each lane pays.
    pub paid: Vec<f64>,
    /// Share of the queries that no strategy carries.
    pub missing: f64,
}

/// A strategy as the programme sees it.
struct StrategyLoads {
    accuracy: f64,
    /// By lane.
    qps: Vec<f64>,
    /// The last programme in which it had a share.
    used_at: u64,
}

/// A column of the programme.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Entry {
    /// Carries all queries for the penalty.
    Penalty,
    /// The accuracy beyond the floor.
    Surplus,
    Strategy(usize),
    /// Unused capacity of a limited lane.
    Unused(usize),
    /// A corner of a limited lane's hull.
    Corner(usize, usize),
}

/// Solves programmes over one pipeline by the primal simplex method, with the inverse of the basis.
pub(super) struct MixtureProgramme {
    strategies: Vec<StrategyLoads>,
    /// Cost of each strategy at the lanes without limits.
    costs: Vec<f64>,
    /// One over the largest load of each lane.
    scales: Vec<f64>,
    /// Prices of the lanes in a walk.
    rates: Vec<f64>,
    rows: usize,
    /// By row.
    basis: Vec<Entry>,
    values: Vec<f64>,
    prices: Vec<f64>,
    /// Row by row.
    inverse: Vec<f64>,
    duals: Vec<f64>,
    /// The entering column, and the change of the basic values with it.
    column: Vec<f64>,
    direction: Vec<f64>,
    solved: u64,
}

impl MixtureProgramme {
    /// `load_max` is the largest load of each lane.
    pub fn new(load_max: &[f64]) -> Self {
        Self {
            strategies: Vec::new(),
            costs: Vec::new(),
            scales: load_max.iter().map(|&most| if most > 0.0 { 1.0 / most } else { 1.0 }).collect(),
            rates: vec![0.0; load_max.len()],
            rows: 0,
            basis: Vec::new(),
            values: Vec::new(),
            prices: Vec::new(),
            inverse: Vec::new(),
            duals: Vec::new(),
            column: Vec::new(),
            direction: Vec::new(),
            solved: 0,
        }
    }

    /// The cheapest mixture, or a bound that is enough.
    pub fn solve(&mut self, question: &MixtureQuestion<'_>, walker: &mut Walker<'_>) -> LaneMixture {
        self.start(question);
        let mut bound = f64::NEG_INFINITY;
        let mut walks = 0;
        for pivots in 0.. {
            self.find_duals();
            let known = if pivots < PIVOTS_MAX { self.cheapest_entry(question) } else { None };
            let entering = match known {
                Some(known) => known,
                None => {
                    walks += 1;
                    let least = self.walk(question, walker);
                    bound = bound.max(self.bound_of(question, least));
                    let is_better = least < self.duals[0] - TOLERANCE * question.penalty;
                    if bound >= question.enough || !is_better || walks >= WALKS_MAX || pivots >= PIVOTS_MAX {
                        break;
                    }
                    self.add_strategy(question, walker);
                    Entry::Strategy(self.strategies.len() - 1)
                }
            };
            self.enter(question, entering);
        }
        self.read(question, bound)
    }

    /// The basis in which the penalty carries everything, and every limited lane has its least corner.
    fn start(&mut self, question: &MixtureQuestion<'_>) {
        self.solved += 1;
        if self.strategies.len() > STRATEGIES_MAX {
            self.strategies.sort_by_key(|s| std::cmp::Reverse(s.used_at));
            self.strategies.truncate(STRATEGIES_MAX / 2);
        }
        self.rates.copy_from_slice(question.rates);
        question.limited.iter().for_each(|of| self.rates[of.lane] = 0.0);
        self.costs.clear();
        for strategy in &self.strategies {
            self.costs.push(cost_of(strategy, &self.rates, question.reward));
        }
        let rows = LANE_ROWS + 2 * question.limited.len();
        self.rows = rows;
        for buffer in [&mut self.values, &mut self.prices, &mut self.duals, &mut self.column, &mut self.direction] {
            buffer.clear();
            buffer.resize(rows, 0.0);
        }
        self.inverse.clear();
        self.inverse.resize(rows * rows, 0.0);
        let accuracy = question.floor + PENALTY_ACCURACY;
        self.basis.clear();
        self.basis.extend([Entry::Penalty, Entry::Surplus]);
        self.prices[0] = question.penalty;
        (self.values[0], self.values[1]) = (1.0, PENALTY_ACCURACY);
        self.inverse[0] = 1.0;
        self.inverse[rows] = accuracy;
        self.inverse[rows + 1] = -1.0;
        for (j, of) in question.limited.iter().enumerate() {
            let (load, sum) = (LANE_ROWS + 2 * j, LANE_ROWS + 2 * j + 1);
            let capacity = self.scaled(of.lane, of.hull[0].qps);
            self.basis.extend([Entry::Unused(j), Entry::Corner(j, 0)]);
            (self.values[load], self.values[sum]) = (capacity, 1.0);
            self.prices[sum] = of.hull[0].price;
            self.inverse[load * rows + load] = 1.0;
            self.inverse[load * rows + sum] = capacity;
            self.inverse[sum * rows + sum] = 1.0;
        }
    }

    /// A capacity in the unit of its row.
    fn scaled(&self, lane: usize, qps: f64) -> f64 {
        qps * (1.0 - CAPACITY_MARGIN) * self.scales[lane]
    }

    fn find_duals(&mut self) {
        self.duals.fill(0.0);
        for (row, &price) in self.inverse.chunks_exact(self.rows).zip(&self.prices).filter(|(_, price)| **price != 0.0) {
            self.duals.iter_mut().zip(row).for_each(|(dual, of)| *dual += price * of);
        }
    }

    /// The known column of the least reduced cost; `None` if none is negative.
    fn cheapest_entry(&self, question: &MixtureQuestion<'_>) -> Option<Entry> {
        let duals = &self.duals;
        let mut least = -TOLERANCE * question.penalty;
        let mut best = None;
        let mut offer = |entry: Entry, cost: f64| {
            if cost < least {
                (least, best) = (cost, Some(entry));
            }
        };
        offer(Entry::Surplus, duals[1]);
        for (s, (strategy, cost)) in self.strategies.iter().zip(&self.costs).enumerate().filter(|(_, (_, c))| c.is_finite())
        {
            let lanes = question.limited.iter().zip(duals[LANE_ROWS..].iter().step_by(2));
            let carried: f64 = lanes.map(|(of, dual)| dual * strategy.qps[of.lane] * self.scales[of.lane]).sum();
            offer(Entry::Strategy(s), cost - duals[0] - duals[1] * strategy.accuracy - carried);
        }
        for (j, of) in question.limited.iter().enumerate() {
            let (load, sum) = (duals[LANE_ROWS + 2 * j], duals[LANE_ROWS + 2 * j + 1]);
            offer(Entry::Unused(j), -load);
            for (k, corner) in of.hull.iter().enumerate() {
                offer(Entry::Corner(j, k), corner.price - sum + load * self.scaled(of.lane, corner.qps));
            }
        }
        best
    }

    /// Price of one query per second of a limited lane.
    fn price_of_lane(&self, j: usize, lane: usize) -> f64 {
        (-self.duals[LANE_ROWS + 2 * j]).max(0.0) * self.scales[lane]
    }

    /// The least cost of a strategy at the duals.
    fn walk(&mut self, question: &MixtureQuestion<'_>, walker: &mut Walker<'_>) -> f64 {
        self.rates.copy_from_slice(question.rates);
        for (j, of) in question.limited.iter().enumerate() {
            self.rates[of.lane] = self.price_of_lane(j, of.lane);
        }
        walker.least_cost_of_lanes(&self.rates, question.reward + self.duals[1].max(0.0))
    }

    /// The bound that follows from the least cost of a strategy at the duals.
    fn bound_of(&self, question: &MixtureQuestion<'_>, least: f64) -> f64 {
        let lane = |(j, of): (usize, &Arc<LimitedLane>)| {
            let price = self.price_of_lane(j, of.lane);
            of.hull.iter().map(|corner| corner.price - price * corner.qps).fold(f64::INFINITY, f64::min)
        };
        let lanes: f64 = question.limited.iter().enumerate().map(lane).sum();
        least + lanes + self.duals[1].max(0.0) * question.floor
    }

    /// Adds the strategy of the last walk.
    fn add_strategy(&mut self, question: &MixtureQuestion<'_>, walker: &Walker<'_>) {
        let accuracy = walker.strategy().accuracy;
        let strategy = StrategyLoads { accuracy, qps: walker.loads(), used_at: self.solved };
        self.rates.copy_from_slice(question.rates);
        question.limited.iter().for_each(|of| self.rates[of.lane] = 0.0);
        self.costs.push(cost_of(&strategy, &self.rates, question.reward));
        self.strategies.push(strategy);
    }

    /// Makes a column basic.
    fn enter(&mut self, question: &MixtureQuestion<'_>, entering: Entry) {
        self.column.fill(0.0);
        let price = self.fill_column(question, entering);
        let rows = self.rows;
        let mut leaving: Option<usize> = None;
        let mut least = f64::INFINITY;
        for (i, row) in self.inverse.chunks_exact(rows).enumerate() {
            let change: f64 = row.iter().zip(&self.column).map(|(a, b)| a * b).sum();
            self.direction[i] = change;
            if change > 1e-9 {
                let ratio = self.values[i] / change;
                let is_tie = ratio <= least + 1e-12 && leaving.is_some_and(|l| change > self.direction[l]);
                if ratio < least - 1e-12 || is_tie {
                    (least, leaving) = (ratio.min(least), Some(i));
                }
            }
        }
        let Some(leaving) = leaving else { return };
        let step = self.values[leaving] / self.direction[leaving];
        for (value, change) in self.values.iter_mut().zip(&self.direction) {
            *value = (*value - step * change).max(0.0);
        }
        self.values[leaving] = step;
        let pivot = 1.0 / self.direction[leaving];
        self.inverse[leaving * rows..(leaving + 1) * rows].iter_mut().for_each(|of| *of *= pivot);
        for i in (0..rows).filter(|&i| i != leaving && self.direction[i] != 0.0) {
            for k in 0..rows {
                self.inverse[i * rows + k] -= self.direction[i] * self.inverse[leaving * rows + k];
            }
        }
        (self.basis[leaving], self.prices[leaving]) = (entering, price);
    }

    /// Fills the entering column; returns its cost.
    fn fill_column(&mut self, question: &MixtureQuestion<'_>, entry: Entry) -> f64 {
        match entry {
            Entry::Penalty => {
                (self.column[0], self.column[1]) = (1.0, question.floor + PENALTY_ACCURACY);
                question.penalty
            }
            Entry::Surplus => {
                self.column[1] = -1.0;
                0.0
            }
            Entry::Strategy(s) => {
                let strategy = &self.strategies[s];
                (self.column[0], self.column[1]) = (1.0, strategy.accuracy);
                for (j, of) in question.limited.iter().enumerate() {
                    self.column[LANE_ROWS + 2 * j] = strategy.qps[of.lane] * self.scales[of.lane];
                }
                self.costs[s]
            }
            Entry::Unused(j) => {
                self.column[LANE_ROWS + 2 * j] = 1.0;
                0.0
            }
            Entry::Corner(j, k) => {
                let corner = question.limited[j].hull[k];
                self.column[LANE_ROWS + 2 * j] = -self.scaled(question.limited[j].lane, corner.qps);
                self.column[LANE_ROWS + 2 * j + 1] = 1.0;
                corner.price
            }
        }
    }

    /// The mixture of the basis.
    fn read(&mut self, question: &MixtureQuestion<'_>, bound: f64) -> LaneMixture {
        let lanes = question.rates.len();
        let mut mixture =
            LaneMixture { bound, accuracy: 0.0, loads: vec![0.0; lanes], paid: vec![0.0; lanes], missing: 0.0 };
        for (&entry, &value) in self.basis.iter().zip(&self.values).filter(|(_, value)| **value > 1e-11) {
            match entry {
                Entry::Penalty => mixture.missing = value,
                Entry::Strategy(s) => {
                    self.strategies[s].used_at = self.solved;
                    mixture.accuracy += value * self.strategies[s].accuracy;
                    let each = mixture.loads.iter_mut().zip(&self.strategies[s].qps);
                    each.for_each(|(load, qps)| *load += value * qps);
                }
                Entry::Corner(j, k) => {
                    let of = &question.limited[j];
                    mixture.paid[of.lane] += value * of.hull[k].price;
                }
                Entry::Surplus | Entry::Unused(_) => {}
            }
        }
        let is_limited = |lane: usize| question.limited.iter().any(|of| of.lane == lane);
        for lane in (0..lanes).filter(|&lane| mixture.loads[lane] > 0.0 && !is_limited(lane)) {
            mixture.paid[lane] = question.rates[lane] * mixture.loads[lane];
        }
        mixture
    }
}

/// What a strategy costs at these rates. Infinite if it needs a closed lane.
fn cost_of(strategy: &StrategyLoads, rates: &[f64], reward: f64) -> f64 {
    let loads = strategy.qps.iter().zip(rates).filter(|(qps, _)| **qps > 0.0);
    loads.map(|(qps, rate)| qps * rate).sum::<f64>() - reward * strategy.accuracy
}
