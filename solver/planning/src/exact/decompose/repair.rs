//! Which known plans fit together, and which exchanges between pipelines make them better? No programme is needed.
//!
//! The start takes the best plan of each pipeline at the last prices. While devices or budget are exceeded, the exchange of
//! one plan that costs least for what it frees is made. Then single exchanges and pairs of them lower the cost.

use super::joint::{JointBounds, JointPlan, JointProblem};
use super::master::SharedResources;
use super::sub::Column;

/// Most exchanges of each kind.
const MOVES_MAX: usize = 2_000;
/// Most exchanges of pairs.
const PAIR_MOVES_MAX: usize = 8;
/// Most first exchanges of a pair, the best ones.
const PAIRS_MAX: usize = 80;
/// Largest rounding error of a sum of parts of devices.
const ROUNDING: f64 = 1e-9;

/// One chosen plan for each pipeline.
struct Chosen<'a> {
    shared: &'a SharedResources,
    columns: &'a [Vec<Column>],
    chosen: Vec<usize>,
    used: Vec<f64>,
}

/// The exchange of the plan of one pipeline.
#[derive(Clone, Copy)]
struct Exchange {
    pipeline: usize,
    column: usize,
}

/// The best combination of the known columns that exchanges reach; `None` if they never fit together.
pub(super) fn choose_columns(joint: &JointProblem<'_>, known: &JointBounds) -> Option<JointPlan> {
    let columns = &known.master.columns;
    let priced = |c: &Column| c.cost_at(&known.lambda);
    let cheapest = |of: &Vec<Column>| (0..of.len()).min_by(|&a, &b| priced(&of[a]).total_cmp(&priced(&of[b])));
    let chosen: Vec<usize> = columns.iter().map(cheapest).collect::<Option<_>>()?;
    let mut used = vec![0.0; joint.shared.most.len()];
    for (of, &c) in columns.iter().zip(&chosen) {
        used.iter_mut().zip(&of[c].devices).for_each(|(u, d)| *u += d);
    }
    let mut state = Chosen { shared: &joint.shared, columns, chosen, used };
    for _ in 0..MOVES_MAX {
        if state.excess(state.used.iter().copied()) <= 0.0 {
            break;
        }
        let exchange = state.cheapest_relief(&known.lambda)?;
        state.make(exchange);
    }
    let mut pairs = 0;
    for _ in 0..MOVES_MAX {
        if joint.limits.exceeded() {
            break;
        }
        if !state.improve_once() {
            pairs += 1;
            if pairs > PAIR_MOVES_MAX || !state.improve_by_pair(&known.lambda) {
                break;
            }
        }
    }
    let chosen = state.chosen.iter().zip(columns).map(|(&c, of)| of[c].clone()).collect();
    joint.join(chosen)
}

impl Chosen<'_> {
    /// By how much these devices exceed counts and budget, relative; 0 if they fit.
    fn excess(&self, used: impl Iterator<Item = f64> + Clone) -> f64 {
        let whole = || used.clone().map(|u| (u - ROUNDING).ceil());
        let over: f64 = whole().zip(&self.shared.most).map(|(d, m)| (d - m).max(0.0) / m.max(1.0)).sum();
        let price: f64 = whole().zip(&self.shared.price).map(|(d, p)| d * p).sum();
        let budget =
            self.shared.budget.map_or(0.0, |b| (price - b - apportion_domain::SLACK * b.max(1.0)).max(0.0) / b.max(1.0));
        over + budget
    }

    /// Cost of whole devices.
    fn device_cost(&self, used: impl Iterator<Item = f64>) -> f64 {
        used.zip(&self.shared.cost).map(|(u, c)| (u - ROUNDING).ceil() * c).sum()
    }

    fn current(&self, pipeline: usize) -> &Column {
        &self.columns[pipeline][self.chosen[pipeline]]
    }

    /// The devices after an exchange.
    fn used_after<'b>(
        &'b self,
        used: &'b [f64],
        Exchange { pipeline, column }: Exchange,
    ) -> impl Iterator<Item = f64> + Clone + 'b {
        let (old, new) = (self.current(pipeline), &self.columns[pipeline][column]);
        used.iter().zip(old.devices.iter().zip(&new.devices)).map(|(u, (o, n))| u - o + n)
    }

    /// What an exchange costs at these prices of devices.
    fn priced_change(&self, exchange: Exchange, lambda: &[f64]) -> f64 {
        let (old, new) = (self.current(exchange.pipeline), &self.columns[exchange.pipeline][exchange.column]);
        let devices = old.devices.iter().zip(&new.devices).zip(lambda);
        self.goal_change(exchange) + devices.map(|((o, n), price)| (n - o) * price).sum::<f64>()
    }

    fn make(&mut self, exchange: Exchange) {
        self.used = self.used_after(&self.used, exchange).collect();
        self.chosen[exchange.pipeline] = exchange.column;
    }

    fn exchanges(&self) -> impl Iterator<Item = Exchange> {
        let of = |(pipeline, columns): (usize, &Vec<Column>)| {
            let now = self.chosen[pipeline];
            (0..columns.len()).filter(move |&c| c != now).map(move |column| Exchange { pipeline, column })
        };
        self.columns.iter().enumerate().flat_map(of)
    }

    /// Change of the goal without devices.
    fn goal_change(&self, Exchange { pipeline, column }: Exchange) -> f64 {
        self.columns[pipeline][column].goal - self.current(pipeline).goal
    }

    /// The exchange that lowers the excess at the least price; `None` if none lowers it.
    fn cheapest_relief(&self, lambda: &[f64]) -> Option<Exchange> {
        let excess = self.excess(self.used.iter().copied());
        let mut best: Option<(f64, Exchange)> = None;
        for exchange in self.exchanges() {
            let relief = excess - self.excess(self.used_after(&self.used, exchange));
            if relief <= 1e-12 {
                continue;
            }
            let ratio = self.priced_change(exchange, lambda) / relief;
            if best.as_ref().is_none_or(|(b, _)| ratio < *b) {
                best = Some((ratio, exchange));
            }
        }
        best.map(|(_, exchange)| exchange)
    }

    /// Makes the exchange that lowers the cost most; whether there is one.
    fn improve_once(&mut self) -> bool {
        let now = self.device_cost(self.used.iter().copied());
        let mut best: Option<(f64, Exchange)> = None;
        for exchange in self.exchanges() {
            let used = self.used_after(&self.used, exchange);
            let change = self.goal_change(exchange) + self.device_cost(used.clone()) - now;
            if change < best.as_ref().map_or(-1e-12, |(b, _)| *b) && self.excess(used) <= 0.0 {
                best = Some((change, exchange));
            }
        }
        best.map(|(_, exchange)| self.make(exchange)).is_some()
    }

    /// Makes two exchanges that lower the cost together; whether there are any.
    fn improve_by_pair(&mut self, lambda: &[f64]) -> bool {
        let now = self.device_cost(self.used.iter().copied());
        let mut all: Vec<(f64, Exchange)> = self.exchanges().map(|e| (self.priced_change(e, lambda), e)).collect();
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (i, &(_, first)) in all.iter().enumerate().take(PAIRS_MAX) {
            let between: Vec<f64> = self.used_after(&self.used, first).collect();
            let gain = self.goal_change(first);
            for &(_, second) in all.iter().skip(i + 1).filter(|(_, e)| e.pipeline != first.pipeline) {
                let used = self.used_after(&between, second);
                let change = gain + self.goal_change(second) + self.device_cost(used.clone()) - now;
                if change < -1e-12 && self.excess(used) <= 0.0 {
                    self.make(first);
                    self.make(second);
                    return true;
                }
            }
        }
        false
    }
}
