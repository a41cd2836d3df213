//! What do whole replicas cost beyond parts of them? A bound that every task adds by itself.
//!
//! A walk buys parts of replicas. Compared with it, a plan pays three things more: the unused parts of its replicas, the
//! premium of replicas that are not of the cheapest rate, and the reduced cost of prefixes that the walk does not take. The
//! reduced costs of a walk are sums over nodes. So each task has a least extra cost of its own, over all shares of its
//! lanes, and the sum over the tasks is a bound.
//!
//! Example: a task needs 14.3 of the cheapest replicas. It can buy 15, or 14 and something small, or send 2 % of its
//! queries to another variant. The least of these is added.

use super::curve::{CapacityCurve, Combination};
use crate::exact::model::space::PipelineSpace;

/// Cells of the shares of a lane. The least cost within a cell counts for all of it.
const CELLS: usize = 192;

/// A lane as one task sees it.
struct LaneCost<'a> {
    curve: &'a CapacityCurve,
    /// Load and reduced cost of its cheapest prefix, for a share of 1.
    load_qps: f64,
    reduced: f64,
    /// What a query per second less or more costs, by prefixes of other loads or by unused capacity.
    less: f64,
    more: f64,
}

impl LaneCost<'_> {
    /// The least extra cost of a share between `low` and `high`, both above 0 or not.
    fn of_share(&self, low: f64, high: f64) -> f64 {
        let (low_qps, high_qps) = (low * self.load_qps, high * self.load_qps);
        let CapacityCurve { unit, premium_max, .. } = *self.curve;
        let mut best = premium_max;
        for &Combination { premium, capacity, .. } in &self.curve.combinations {
            if premium >= best {
                break;
            }
            // some replica carries it
            let least = if capacity > 0.0 { 0.0 } else { 1.0 };
            let units = ((low_qps - capacity) / unit - 1e-9).ceil().max(least);
            let above = capacity + units * unit;
            best = best.min(premium + self.more * (above - high_qps).max(0.0));
            if units > least {
                best = best.min(premium + self.less * (low_qps - above + unit).max(0.0));
            }
        }
        low * self.reduced + best
    }
}

/// Reduced costs and curves at the levels of a walk.
pub(super) struct RoundingCosts<'a> {
    pub part: &'a PipelineSpace,
    /// By node.
    pub reduced: &'a [f64],
    /// By lane; `None` for lanes without replicas in time.
    pub curves: &'a [Option<&'a CapacityCurve>],
    /// The tasks whose rates are those of whole replicas.
    pub is_whole: &'a [bool],
}

impl RoundingCosts<'_> {
    /// The least extra cost of all tasks.
    pub fn total(&self) -> f64 {
        let lanes = self.lanes();
        (0..self.is_whole.len()).filter(|&t| !self.is_whole[t]).map(|t| self.of_task(t, &lanes)).sum()
    }

    /// The costs of the lanes that have a prefix.
    fn lanes(&self) -> Vec<Option<LaneCost<'_>>> {
        let nodes = &self.part.trie.nodes;
        let mut lanes: Vec<Option<LaneCost<'_>>> = self.curves.iter().map(|_| None).collect();
        for (node, &reduced) in nodes.iter().zip(self.reduced).filter(|(_, reduced)| reduced.is_finite()) {
            let Some(curve) = self.curves[node.lane] else { continue };
            if lanes[node.lane].as_ref().is_none_or(|lane| reduced < lane.reduced) {
                let (load_qps, more) = (node.load_qps, curve.rate);
                lanes[node.lane] = Some(LaneCost { curve, load_qps, reduced, less: f64::INFINITY, more });
            }
        }
        for (node, &reduced) in nodes.iter().zip(self.reduced).filter(|(_, reduced)| reduced.is_finite()) {
            let Some(lane) = &mut lanes[node.lane] else { continue };
            let slope = (reduced - lane.reduced) / (node.load_qps - lane.load_qps).abs();
            if node.load_qps < lane.load_qps {
                lane.less = lane.less.min(slope);
            } else if node.load_qps > lane.load_qps {
                lane.more = lane.more.min(slope);
            }
        }
        lanes
    }

    /// The least extra cost of one task over all shares of its lanes.
    fn of_task(&self, t: usize, lanes: &[Option<LaneCost<'_>>]) -> f64 {
        let is_here = |lane: &usize| self.part.groups[self.part.lanes[*lane][0]].task.get() == t;
        let here: Vec<&LaneCost<'_>> = (0..lanes.len()).filter(is_here).filter_map(|lane| lanes[lane].as_ref()).collect();
        // one lane alone has a share of 1
        let alone = here.iter().map(|lane| lane.of_share(1.0, 1.0)).fold(f64::INFINITY, f64::min);
        if here.len() < 2 || alone <= 0.0 {
            return if alone.is_finite() { alone } else { 0.0 };
        }
        least_of_shares(&here, alone)
    }
}

/// The least cost of shares that sum to 1, of two lanes or more. `most` is a cost that is known.
fn least_of_shares(lanes: &[&LaneCost<'_>], most: f64) -> f64 {
    let cell = |k: usize| (k as f64 / CELLS as f64, (k + 1) as f64 / CELLS as f64);
    // by number of lanes and by the sum of their cells: a sum of c cells reaches c cells further
    let mut least: Vec<Vec<f64>> = vec![vec![f64::INFINITY; CELLS + 1]; lanes.len() + 1];
    least[0][0] = 0.0;
    for (used, lane) in lanes.iter().enumerate() {
        let costs = (0..CELLS).map(|k| (k, lane.of_share(cell(k).0, cell(k).1)));
        let open: Vec<(usize, f64)> = costs.filter(|(_, cost)| *cost < most).collect();
        for count in (0..=used).rev() {
            for sum in 0..=CELLS {
                let so_far = least[count][sum];
                if so_far >= most {
                    continue;
                }
                for &(k, cost) in open.iter().take_while(|(k, _)| sum + k <= CELLS) {
                    let there = &mut least[count + 1][sum + k];
                    *there = there.min(so_far + cost);
                }
            }
        }
    }
    let reaches_one =
        |(count, costs): (usize, &Vec<f64>)| costs[CELLS.saturating_sub(count)..].iter().copied().fold(most, f64::min);
    least.iter().enumerate().skip(2).map(reaches_one).fold(most, f64::min)
}
