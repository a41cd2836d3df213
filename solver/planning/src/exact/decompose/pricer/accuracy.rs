//! Which price of accuracy meets a floor, and what does a pipeline cost at least at this price?

use super::boxes::{BoxSearch, CheapestBudgets, cheapest_budgets};
use super::walk::{PricedLevels, Walker};
use crate::exact::model::space::PipelineSpace;
use apportion_domain::Pipeline;

/// Budget vectors for which plans are made.
const VECTORS_MAX: usize = 1;
/// Relative distance of their bounds from the best one.
const DISTANCE: f64 = 0.01;
/// Most prices of accuracy that are tried for a floor.
const FLOOR_ROUNDS_MAX: usize = 12;
/// Relative difference of bound and relaxation at which the price of accuracy is exact enough.
const FLOOR_GAP: f64 = 1e-3;

/// The search for the price of accuracy under which the floor is met.
pub(super) struct FloorQuestion<'a> {
    pub pipeline: &'a Pipeline,
    pub part: &'a PipelineSpace,
    pub levels: &'a [PricedLevels],
    /// Least accuracy.
    pub floor: f64,
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
struct TriedPrice {
    /// Cost without the reward of the floor's price.
    cost: f64,
    accuracy: f64,
    /// Levels of the tasks.
    vector: Vec<usize>,
}

impl FloorQuestion<'_> {
    fn search(&self, reward: f64, walker: &mut Walker<'_>, vectors_max: usize, distance: f64) -> CheapestBudgets {
        let search = BoxSearch { reward, vectors_max, distance };
        cheapest_budgets(self.pipeline, self.part, self.levels, walker, search)
    }

    /// The relaxation at a price of the floor, and its strategy.
    fn relax(&self, reward: f64, floor_price: f64, walker: &mut Walker<'_>) -> Option<(f64, TriedPrice)> {
        let found = self.search(reward + floor_price, walker, 1, 0.0);
        let at = found.vectors.first()?;
        let cost = walker.least_cost(self.levels, at, reward + floor_price);
        let accuracy = walker.strategy().accuracy;
        let bound = found.bound + floor_price * self.floor;
        Some((bound, TriedPrice { cost: cost + floor_price * accuracy, accuracy, vector: at.clone() }))
    }

    /// Raises the price of accuracy until the relaxation meets the floor: the secant of a concave function of one variable.
    pub fn price_of_accuracy(&self, reward: f64, walker: &mut Walker<'_>) -> Option<PricedFloor> {
        let (mut bound, mut low) = self.relax(reward, 0.0, walker)?;
        let mut price = 0.0;
        // a price at which the floor is met
        let mut high: Option<TriedPrice> = None;
        if low.accuracy < self.floor - 1e-12 {
            let mut next = 4.0 * low.cost.abs().max(reward).max(1e-9);
            for _ in 0..FLOOR_ROUNDS_MAX {
                let (found, tried) = self.relax(reward, next, walker)?;
                let better = found > bound;
                (bound, price) = if better { (found, next) } else { (bound, price) };
                if tried.accuracy >= self.floor {
                    high = Some(tried);
                } else {
                    low = tried;
                }
                let Some(high) = &high else {
                    next *= 8.0;
                    continue;
                };
                let slope = ((high.cost - low.cost) / (high.accuracy - low.accuracy)).max(0.0);
                let relaxation = low.cost + slope * (self.floor - low.accuracy);
                if relaxation - bound <= FLOOR_GAP * relaxation.abs() || (slope - next).abs() <= 1e-12 * slope {
                    break;
                }
                next = slope;
            }
        }
        let distance = DISTANCE * bound.abs().max(reward + price);
        let found = self.search(reward + price, walker, VECTORS_MAX, distance);
        let mut vectors = found.vectors;
        // the cheapest vectors may be too short for the floor
        vectors.extend(high.map(|high| high.vector).filter(|vector| !vectors.contains(vector)));
        let guide = if reward + price > 0.0 { reward + price } else { 1e-3 * bound.abs() };
        Some(PricedFloor { bound, price, guide, vectors })
    }
}
