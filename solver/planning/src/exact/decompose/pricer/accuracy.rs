//! Which price of accuracy meets a floor, and what does a pipeline cost at least at this price?

use super::boxes::{BoxSearch, CheapestBudgets, UnprovenVector, cheapest_budgets};
use super::walk::{PricedLevels, Walker};
use crate::exact::model::space::PipelineSpace;
use apportion_domain::Pipeline;

/// Most prices of accuracy that are tried for a floor, the first one included.
const FLOOR_ROUNDS_MAX: usize = 13;
/// The factor of the first step from a known price of accuracy. Each further step is the square of the last one.
const STEP: f64 = 1.25;
/// Largest factor of a step.
const STEP_MAX: f64 = 8.0;
/// Steps below a known price of accuracy before the price 0.
const STEPS_DOWN_MAX: usize = 2;

/// How closely is the price of accuracy searched?
#[derive(Clone, Copy, Debug)]
pub(super) struct FloorEffort {
    /// Most boxes of budgets at one price.
    pub boxes_max: usize,
    /// The budgets of a strategy where these boxes do not suffice.
    pub unproven: UnprovenVector,
    /// Relative difference of bound and relaxation at which the price is exact enough.
    pub gap: f64,
}

/// The search for the price of accuracy under which the floor is met.
pub(super) struct FloorQuestion<'a> {
    pub pipeline: &'a Pipeline,
    pub part: &'a PipelineSpace,
    pub levels: &'a [PricedLevels],
    /// Least accuracy.
    pub floor: f64,
    pub effort: FloorEffort,
}

/// The relaxation with its best price of accuracy.
pub(super) struct PricedFloor {
    /// No strategy within any budgets costs less.
    pub bound: f64,
    /// Price of accuracy.
    pub price: f64,
    /// Reward at which the strategies of plans are made.
    pub guide: f64,
    /// Levels of the tasks, the cheapest first.
    pub vectors: Vec<Vec<usize>>,
}

/// One price of accuracy with its relaxation.
#[derive(Clone)]
struct TriedPrice {
    price: f64,
    /// No strategy costs less, with the floor at this price.
    bound: f64,
    /// Cost without the reward of the floor's price.
    cost: f64,
    accuracy: f64,
    /// Levels of the tasks.
    vector: Vec<usize>,
}

/// The prices around the best one.
#[derive(Default)]
struct TriedPrices {
    /// The one of the highest bound.
    best: Option<TriedPrice>,
    /// The last one at which the floor is not met.
    low: Option<TriedPrice>,
    /// The last one at which it is met.
    high: Option<TriedPrice>,
    steps_down: usize,
}

/// The next price to be tried, or none.
enum NextPrice {
    Try(f64),
    Enough,
}

impl TriedPrices {
    fn add(&mut self, tried: TriedPrice, floor: f64) {
        if self.best.as_ref().is_none_or(|best| tried.bound > best.bound) {
            self.best = Some(tried.clone());
        }
        let side = if tried.accuracy >= floor - 1e-12 { &mut self.high } else { &mut self.low };
        *side = Some(tried);
    }

    /// The secant of a concave function of one variable. Steps that grow come before it, until the best price is between
    /// two known ones.
    fn next(&mut self, floor: f64, reward: f64, gap: f64, step: f64) -> NextPrice {
        match (&self.low, &self.high) {
            (Some(low), Some(high)) => {
                let slope = ((high.cost - low.cost) / (high.accuracy - low.accuracy)).max(0.0);
                let relaxation = low.cost + slope * (floor - low.accuracy);
                let bound = self.best.as_ref().map_or(f64::NEG_INFINITY, |best| best.bound);
                let is_known = [low, high].iter().any(|tried| (slope - tried.price).abs() <= 1e-12 * slope);
                if relaxation - bound <= gap * relaxation.abs() || is_known {
                    return NextPrice::Enough;
                }
                NextPrice::Try(slope)
            }
            (Some(low), None) if low.price > 0.0 => NextPrice::Try(low.price * step),
            (Some(low), None) => NextPrice::Try(4.0 * low.cost.abs().max(reward).max(1e-9)),
            // the floor is met without a price, or a step to a lower price can gain little: the bound is concave
            (None, Some(high))
                if (STEP - 1.0) * high.price * (high.accuracy - floor) <= gap * high.bound.abs() || high.price <= 0.0 =>
            {
                NextPrice::Enough
            }
            (None, Some(_)) if self.steps_down == STEPS_DOWN_MAX => NextPrice::Try(0.0),
            (None, Some(high)) => {
                self.steps_down += 1;
                NextPrice::Try(high.price / step)
            }
            (None, None) => NextPrice::Enough,
        }
    }
}

impl FloorQuestion<'_> {
    fn search(&self, reward: f64, walker: &mut Walker<'_>) -> CheapestBudgets {
        let FloorEffort { boxes_max, unproven, .. } = self.effort;
        let search = BoxSearch { reward, boxes_max, unproven };
        cheapest_budgets(self.pipeline, self.part, self.levels, walker, search)
    }

    /// The relaxation at a price of the floor, and its strategy.
    fn relax(&self, reward: f64, price: f64, walker: &mut Walker<'_>) -> Option<TriedPrice> {
        let found = self.search(reward + price, walker);
        let vector = found.vector?;
        let cost = walker.least_cost(self.levels, &vector, reward + price);
        let accuracy = walker.strategy().accuracy;
        let bound = found.bound + price * self.floor;
        Some(TriedPrice { price, bound, cost: cost + price * accuracy, accuracy, vector })
    }

    /// Searches the price of accuracy at which the relaxation meets the floor, from a price that may be near.
    pub fn price_of_accuracy(&self, reward: f64, from: f64, walker: &mut Walker<'_>) -> Option<PricedFloor> {
        let FloorEffort { gap, .. } = self.effort;
        let mut prices = TriedPrices::default();
        let mut next = if self.floor > 0.0 { from } else { 0.0 };
        let mut step = STEP;
        for _ in 0..FLOOR_ROUNDS_MAX {
            prices.add(self.relax(reward, next, walker)?, self.floor);
            // without a price to begin at, nothing is known of the scale
            let factor = if from > 0.0 { step } else { STEP_MAX };
            match prices.next(self.floor, reward, gap, factor) {
                NextPrice::Try(price) => next = price,
                NextPrice::Enough => break,
            }
            step = (step * step).min(STEP_MAX);
        }
        let TriedPrices { best, high, .. } = prices;
        let TriedPrice { price, bound, vector, .. } = best?;
        let mut vectors = vec![vector];
        // the cheapest vector may be too short for the floor
        vectors.extend(high.map(|high| high.vector).filter(|vector| !vectors.contains(vector)));
        let guide = if reward + price > 0.0 { reward + price } else { 1e-3 * bound.abs() };
        Some(PricedFloor { bound, price, guide, vectors })
    }
}
