//! What does a pipeline cost at given prices if parts of replicas could be bought? A walk up the trie, for any budgets.

use crate::exact::model::space::PipelineSpace;
use crate::exact::model::trie::{PrefixNode, PrefixSplit};
use apportion_domain::VariantIndex;

/// The budgets of a task that change the price of some variant, with those prices.
#[derive(Clone, Debug)]
pub(super) struct PricedLevels {
    /// Budgets, increasing.
    pub budgets_ms: Vec<f64>,
    /// Price of one query per second by level and variant; infinite if the variant is too slow there.
    pub rates: Vec<Vec<f64>>,
}

/// The cheapest strategy within some budgets: one variant at every prefix that it reaches.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PureStrategy {
    pub accuracy: f64,
    /// The nodes that it visits.
    pub nodes: Vec<usize>,
}

/// A node of the trie as a walk sees it.
struct WalkedNode {
    load_qps: f64,
    accuracy: f64,
    /// Cost of the splits below it. Zero between two walks.
    below: f64,
    lane: usize,
}

/// A split of the trie as a walk sees it: its nodes follow each other.
#[derive(Clone, Copy)]
struct WalkedSplit {
    first: usize,
    end: usize,
    from: Option<usize>,
}

/// A lane of a variant.
struct WalkedLane {
    task: usize,
    variant: usize,
}

/// Walks over one trie. Most time of a search is spent here, so a walk reads only a copy of the few numbers that it needs.
pub(super) struct Walker<'a> {
    part: &'a PipelineSpace,
    nodes: Vec<WalkedNode>,
    splits: Vec<WalkedSplit>,
    lanes: Vec<WalkedLane>,
    /// Price of one query per second of each lane.
    rates: Vec<f64>,
    taken: Vec<usize>,
}

impl<'a> Walker<'a> {
    pub fn new(part: &'a PipelineSpace) -> Self {
        let trie = &part.trie;
        let node = |n: &PrefixNode| WalkedNode { load_qps: n.load_qps, accuracy: n.accuracy, below: 0.0, lane: n.lane };
        let split = |split: &PrefixSplit| {
            let first = split.to.first().copied().unwrap_or(0);
            debug_assert!(split.to.iter().copied().eq(first..first + split.to.len()), "nodes of a split are consecutive");
            WalkedSplit { first, end: first + split.to.len(), from: split.from }
        };
        let lane = |groups: &Vec<usize>| {
            let group = &part.groups[groups[0]];
            WalkedLane { task: group.task.get(), variant: group.variant.get() }
        };
        Self {
            part,
            nodes: trie.nodes.iter().map(node).collect(),
            splits: trie.splits.iter().map(split).collect(),
            lanes: part.lanes.iter().map(lane).collect(),
            rates: vec![0.0; part.lanes.len()],
            taken: vec![usize::MAX; trie.splits.len()],
        }
    }

    /// The least cost at these levels of the tasks: prices less `reward` for a unit of accuracy. Infinite if some task has
    /// no variant in time. The strategy is kept for [`Self::strategy`].
    pub fn least_cost(&mut self, levels: &[PricedLevels], at: &[usize], reward: f64) -> f64 {
        for (rate, lane) in self.rates.iter_mut().zip(&self.lanes) {
            *rate = levels[lane.task].rates[at[lane.task]][lane.variant];
        }
        self.walk(reward)
    }

    /// The same at a price of one query per second of each lane.
    pub fn least_cost_of_lanes(&mut self, rates: &[f64], reward: f64) -> f64 {
        self.rates.copy_from_slice(rates);
        self.walk(reward)
    }

    fn walk(&mut self, reward: f64) -> f64 {
        let mut whole = 0.0;
        for s in (0..self.splits.len()).rev() {
            let WalkedSplit { first, end, from } = self.splits[s];
            let mut best = f64::INFINITY;
            let mut taken = usize::MAX;
            for n in first..end {
                let node = &mut self.nodes[n];
                let cost = node.below + node.load_qps * self.rates[node.lane] - reward * node.accuracy;
                node.below = 0.0;
                if cost < best {
                    (best, taken) = (cost, n);
                }
            }
            self.taken[s] = taken;
            match from {
                Some(from) => self.nodes[from].below += best,
                None => whole += best,
            }
        }
        whole
    }

    /// The strategy of the last walk, which must have had a finite cost.
    pub fn strategy(&self) -> PureStrategy {
        self.strategy_by(|s, _| Some(self.taken[s]))
    }

    /// Load of each lane under the strategy of the last walk.
    pub fn loads(&self) -> Vec<f64> {
        let mut loads = vec![0.0; self.part.lanes.len()];
        for n in self.strategy().nodes {
            let node = &self.part.trie.nodes[n];
            loads[node.lane] += node.load_qps;
        }
        loads
    }

    /// The strategy that takes these variants, by task.
    pub fn strategy_of(&self, variants: &[Option<VariantIndex>]) -> PureStrategy {
        let nodes = &self.part.trie.nodes;
        self.strategy_by(|_, to| to.iter().copied().find(|&n| variants[nodes[n].task.get()] == Some(nodes[n].variant)))
    }

    /// The variants of a strategy, by task.
    pub fn variants_of(&self, strategy: &PureStrategy) -> Vec<Option<VariantIndex>> {
        let nodes = &self.part.trie.nodes;
        let tasks = nodes.iter().map(|n| n.task.get() + 1).max().unwrap_or(0);
        let mut variants = vec![None; tasks];
        strategy.nodes.iter().for_each(|&n| variants[nodes[n].task.get()] = Some(nodes[n].variant));
        variants
    }

    /// The strategy that takes a node at each split that it reaches. `take` gets the split and its nodes.
    fn strategy_by(&self, take: impl Fn(usize, &[usize]) -> Option<usize>) -> PureStrategy {
        let trie = &self.part.trie;
        let mut visited = vec![false; trie.nodes.len()];
        let mut nodes = Vec::new();
        let mut accuracy = 0.0;
        for (s, split) in trie.splits.iter().enumerate().filter(|(_, split)| !split.to.is_empty()) {
            if split.from.is_none_or(|from| visited[from])
                && let Some(n) = take(s, &split.to)
            {
                visited[n] = true;
                accuracy += trie.nodes[n].accuracy;
                nodes.push(n);
            }
        }
        PureStrategy { accuracy, nodes }
    }
}
