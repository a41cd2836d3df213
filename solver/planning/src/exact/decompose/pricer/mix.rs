//! Which plan of whole replicas is cheapest within given budgets? Two strategies share the traffic, and covers round up.

use super::cover::{CoverItem, cheapest_cover};
use super::walk::{PricedLevels, PureStrategy, Walker};
use crate::exact::model::space::PipelineSpace;

/// Factors on the reward of accuracy at which strategies are made.
const REWARD_FACTORS: [f64; 7] = [1.0, 0.8, 1.25, 0.5, 2.0, 0.2, 5.0];
/// Parts of the way from one strategy to another that are tried.
const STEPS: usize = 8;

/// What the replicas of a pipeline should do.
#[derive(Clone, Copy, Debug)]
pub(super) struct MixGoal {
    /// Reward of a unit of accuracy in the cost of the plan.
    pub reward: f64,
    /// Reward at which strategies are made.
    pub guide: f64,
    /// Least accuracy.
    pub accuracy_min: f64,
    /// Replicas of a used group beyond those that carry load.
    pub survive: u32,
}

/// Whole replicas with their cost.
#[derive(Clone, Debug)]
pub(super) struct MixedPlan {
    /// Price of the replicas less the reward.
    pub cost: f64,
    pub accuracy: f64,
    /// (group, replicas).
    pub replicas: Vec<(usize, u32)>,
}

/// The covers within some budgets.
pub(super) struct Mixer<'a> {
    pub part: &'a PipelineSpace,
    /// Groups by lane that run within the budgets, by increasing rate.
    pub items: Vec<Vec<CoverItem>>,
    pub goal: MixGoal,
}

impl Mixer<'_> {
    /// The strategies of several rewards, by accuracy.
    pub fn strategies(&self, levels: &[PricedLevels], at: &[usize], walker: &mut Walker<'_>) -> Vec<PureStrategy> {
        let mut strategies: Vec<PureStrategy> = Vec::new();
        for factor in REWARD_FACTORS {
            let cost = walker.least_cost(levels, at, factor * self.goal.guide);
            if cost.is_finite() {
                let strategy = walker.strategy();
                if !strategies.iter().any(|s| s.nodes == strategy.nodes) {
                    strategies.push(strategy);
                }
            }
        }
        strategies.sort_by(|a, b| a.accuracy.total_cmp(&b.accuracy));
        strategies
    }

    /// The cheapest plan found for these strategies and the ways from each to the next.
    pub fn best_plan(&self, strategies: &[PureStrategy]) -> Option<MixedPlan> {
        let loads: Vec<Vec<f64>> = strategies.iter().map(|s| self.loads(s)).collect();
        let mut best: Option<MixedPlan> = None;
        let mut offer = |plan: Option<MixedPlan>| {
            if let Some(plan) = plan.filter(|p| p.accuracy >= self.goal.accuracy_min - 1e-9)
                && best.as_ref().is_none_or(|b| plan.cost < b.cost - 1e-12)
            {
                best = Some(plan);
            }
        };
        for (i, strategy) in strategies.iter().enumerate() {
            offer(self.cover(&loads[i], strategy.accuracy));
            if let (Some(next), Some(more)) = (loads.get(i + 1), strategies.get(i + 1)) {
                self.offer_ways(&loads[i], next, (strategy.accuracy, more.accuracy), &mut offer);
            }
        }
        best
    }

    /// Offers mixes of two strategies, the second one being more accurate.
    fn offer_ways(&self, from: &[f64], to: &[f64], (low, high): (f64, f64), offer: &mut impl FnMut(Option<MixedPlan>)) {
        let floor = self.goal.accuracy_min;
        if high < floor - 1e-9 {
            return;
        }
        let first = if low < floor { (floor - low) / (high - low) } else { 0.0 };
        let accuracy = |x: f64| low + x * (high - low);
        for step in 0..STEPS {
            let x = first + (1.0 - first) * step as f64 / STEPS as f64;
            let load: Vec<f64> = from.iter().zip(to).map(|(a, b)| a + x * (b - a)).collect();
            let Some(plan) = self.cover(&load, accuracy(x)) else { continue };
            // the same replicas carry more of the accurate strategy
            let further = self.furthest(&plan, from, to).clamp(x, 1.0);
            let gain = self.goal.reward * (accuracy(further) - plan.accuracy);
            offer(Some(MixedPlan { accuracy: accuracy(further), cost: plan.cost - gain, ..plan }));
        }
    }

    /// The largest part of the second strategy that some replicas carry.
    fn furthest(&self, plan: &MixedPlan, from: &[f64], to: &[f64]) -> f64 {
        let mut capacity = vec![0.0; from.len()];
        for &(g, replicas) in &plan.replicas {
            let lane = self.part.groups[g].lane;
            let qps = self.items[lane].iter().find(|i| i.group == g).map_or(0.0, |i| i.qps);
            capacity[lane] += f64::from(replicas.saturating_sub(self.goal.survive)) * qps;
        }
        let rising = (0..from.len()).filter(|&lane| to[lane] > from[lane]);
        rising.map(|lane| (capacity[lane] - from[lane]) / (to[lane] - from[lane])).fold(1.0, f64::min)
    }

    /// The cheapest replicas for these loads.
    fn cover(&self, loads: &[f64], accuracy: f64) -> Option<MixedPlan> {
        let mut replicas = Vec::new();
        let mut price = 0.0;
        for (items, &load) in self.items.iter().zip(loads).filter(|(_, load)| **load > 0.0) {
            let cover = cheapest_cover(items, load, self.goal.survive)?;
            price += cover.price;
            replicas.extend(cover.replicas);
        }
        Some(MixedPlan { cost: price - self.goal.reward * accuracy, accuracy, replicas })
    }

    /// Load of each lane under a strategy.
    pub fn loads(&self, strategy: &PureStrategy) -> Vec<f64> {
        let mut loads = vec![0.0; self.part.lanes.len()];
        for &n in &strategy.nodes {
            let node = &self.part.trie.nodes[n];
            loads[node.lane] += node.load_qps;
        }
        loads
    }
}
