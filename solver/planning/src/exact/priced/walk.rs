//! Which way through a pipeline is cheapest at given prices? A walk up the trie finds it without a solver.
//!
//! A *way* takes one variant over each edge. If a query at a lane costs its load times the lane's rate, the cheapest way
//! below a node is the sum of the cheapest ways over its edges.

use super::points::GroupPoints;
use crate::exact::model::space::PipelineSpace;

/// BudgetPrices of queries at the lanes of one pipeline.
#[derive(Clone, Debug)]
pub(super) struct LanePrices {
    /// Price of one query per second, by lane. Infinite where nothing runs.
    pub rate: Vec<f64>,
    /// Price of visiting the lane at all, for a share of 1.
    pub visit: Vec<f64>,
    /// Reward of a unit of the pipeline's accuracy.
    pub reward: f64,
}

impl LanePrices {
    /// The prices that follow if a replica of group g costs `replica[g]`.
    pub fn of_replicas(part: &PipelineSpace, points: &GroupPoints, replica: &[f64], reward: f64) -> Self {
        let of_group = |g: usize| points.points[g].map_or(f64::INFINITY, |b| replica[g] / part.groups[g].points[b].qps);
        let of_lane = |lane: &Vec<usize>| lane.iter().map(|&g| of_group(g)).fold(f64::INFINITY, f64::min);
        Self { rate: part.lanes.iter().map(of_lane).collect(), visit: vec![0.0; part.lanes.len()], reward }
    }
}

/// A way, with its load on each lane.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PricedWalk {
    /// The nodes that it visits.
    pub nodes: Vec<usize>,
    /// Its accuracy if all root queries take it.
    pub accuracy: f64,
}

/// The cost of the cheapest way; infinite if there is none. `below` is scratch space.
pub(super) fn least_cost(part: &PipelineSpace, points: &GroupPoints, prices: &LanePrices, below: &mut Vec<f64>) -> f64 {
    below.clear();
    below.resize(part.trie.nodes.len(), 0.0);
    let mut whole = 0.0;
    for split in part.trie.splits.iter().rev() {
        let mut best = f64::INFINITY;
        for &n in &split.to {
            let node = &part.trie.nodes[n];
            let rate = prices.rate[node.lane];
            if points.open[n] && rate < f64::INFINITY {
                let cost = below[n] + node.load_qps * rate + prices.visit[node.lane] - prices.reward * node.accuracy;
                best = best.min(cost);
                below[n] = cost;
            } else {
                below[n] = f64::INFINITY;
            }
        }
        match split.from {
            Some(from) => below[from] += best,
            None => whole += best,
        }
    }
    whole
}

/// The cheapest way; `None` if there is none.
pub(super) fn cheapest_way(part: &PipelineSpace, points: &GroupPoints, prices: &LanePrices) -> Option<PricedWalk> {
    let mut cost = Vec::new();
    if least_cost(part, points, prices, &mut cost) == f64::INFINITY {
        return None;
    }
    let mut taken = vec![false; part.trie.nodes.len()];
    let mut way = PricedWalk { nodes: Vec::new(), accuracy: 0.0 };
    for split in &part.trie.splits {
        if split.from.is_none_or(|from| taken[from]) {
            let best = split.to.iter().copied().min_by(|&a, &b| cost[a].total_cmp(&cost[b]))?;
            taken[best] = true;
            way.nodes.push(best);
            way.accuracy += part.trie.nodes[best].accuracy;
        }
    }
    Some(way)
}
