//! Which way through a pipeline is cheapest at given prices? A walk up the trie finds it without a solver.
//!
//! A *way* takes one variant over each edge. If a query at a lane costs its load times the lane's rate, the cheapest way
//! below a node is the sum of the cheapest ways over its edges.

use super::points::GroupPoints;
use crate::exact::model::space::PipelineSpace;

/// The price of a query at one group of a lane: `visit + load * rate`, for a share of 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct GroupPrice {
    /// Price of visiting the lane at all.
    pub visit: f64,
    /// Price of one query per second.
    pub rate: f64,
}

impl GroupPrice {
    fn of(self, load_qps: f64) -> f64 {
        self.visit + load_qps * self.rate
    }
}

/// Prices of queries at the lanes of one pipeline.
#[derive(Clone, Debug)]
pub(super) struct LanePrices {
    /// The prices of all groups that run, lane after lane.
    groups: Vec<GroupPrice>,
    /// By lane: the end of its groups.
    ends: Vec<usize>,
    /// Reward of a unit of the pipeline's accuracy.
    reward: f64,
}

impl LanePrices {
    /// No prices of lanes, and this reward of a unit of accuracy.
    pub fn new(reward: f64) -> Self {
        Self { groups: Vec::new(), ends: Vec::new(), reward }
    }

    /// Adds the next lane with the prices of its groups. Without groups nothing runs there.
    pub fn add_lane(&mut self, groups: impl Iterator<Item = GroupPrice>) {
        self.groups.extend(groups);
        self.ends.push(self.groups.len());
    }

    /// The least price of a query at a lane; infinite if nothing runs there.
    fn least(&self, lane: usize, load_qps: f64) -> f64 {
        let first = lane.checked_sub(1).map_or(0, |before| self.ends[before]);
        self.groups[first..self.ends[lane]].iter().map(|group| group.of(load_qps)).fold(f64::INFINITY, f64::min)
    }
}

/// The replicas that the lanes of a pipeline need at least.
///
/// Example: a lane gets 30 of the 100 queries per second that one replica serves. It needs one whole replica, and with
/// `survive: 1` another one. So it needs 2 replicas for a visit, and none for each query.
pub(super) struct LaneNeeds<'a> {
    part: &'a PipelineSpace,
    /// Spare replicas of a group in use.
    spares: f64,
    /// The largest load of each lane.
    loads_max: Vec<f64>,
}

/// Replicas of a group that carry a load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct NeededReplicas {
    pub group: usize,
    pub replicas: f64,
}

/// The replicas of a group: for visiting its lane at all, and for one query per second.
#[derive(Clone, Copy, Debug, PartialEq)]
struct GroupNeeds {
    visit: f64,
    query: f64,
}

impl<'a> LaneNeeds<'a> {
    /// The needs of a pipeline whose plan may lose so many replicas of each group.
    pub fn new(part: &'a PipelineSpace, survive: u32) -> Self {
        let mut loads_max = vec![0.0_f64; part.lanes.len()];
        // the shares of a lane's prefixes sum to at most 1
        part.trie.nodes.iter().for_each(|n| loads_max[n.lane] = loads_max[n.lane].max(n.load_qps));
        Self { part, spares: f64::from(survive), loads_max }
    }

    /// The needs of each group of a lane that runs. No whole replicas carry the same flows with less. A group that serves
    /// the largest load with one replica needs one whole replica.
    fn of_lane(&self, points: &GroupPoints, lane: usize) -> impl Iterator<Item = (usize, GroupNeeds)> {
        self.part.lanes[lane].iter().filter_map(move |&g| {
            let qps = self.part.groups[g].points[points.points[g]?].qps;
            let needs = if self.loads_max[lane] <= qps {
                GroupNeeds { visit: 1.0 + self.spares, query: 0.0 }
            } else {
                GroupNeeds { visit: self.spares, query: 1.0 / qps }
            };
            Some((g, needs))
        })
    }

    /// The cheapest replicas for all queries of a node, if a replica of group g costs `replica[g]`; `None` if nothing runs
    /// there.
    pub fn cheapest(&self, points: &GroupPoints, node: usize, replica: &[f64]) -> Option<NeededReplicas> {
        let node = &self.part.trie.nodes[node];
        let needed = |(group, needs): (usize, GroupNeeds)| NeededReplicas {
            group,
            replicas: needs.visit + needs.query * node.load_qps,
        };
        let cost = |of: &NeededReplicas| replica[of.group] * of.replicas;
        self.of_lane(points, node.lane).map(needed).min_by(|a, b| cost(a).total_cmp(&cost(b)))
    }

    /// The prices that follow if a replica of group g costs `replica[g]`.
    pub fn prices(&self, points: &GroupPoints, replica: &[f64], reward: f64) -> LanePrices {
        let mut prices = LanePrices::new(reward);
        for lane in 0..self.part.lanes.len() {
            let of_group = |(g, needs): (usize, GroupNeeds)| GroupPrice {
                visit: replica[g] * needs.visit,
                rate: replica[g] * needs.query,
            };
            prices.add_lane(self.of_lane(points, lane).map(of_group));
        }
        prices
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
            let own = if points.open[n] { prices.least(node.lane, node.load_qps) } else { f64::INFINITY };
            below[n] += own - prices.reward * node.accuracy;
            best = best.min(below[n]);
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
