//! What does a pipeline cost at given prices if parts of replicas could be bought? A walk up the trie, for any budgets.

use crate::exact::model::space::PipelineSpace;
use crate::exact::model::trie::PrefixNode;
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

/// Buffers of walks over one trie.
pub(super) struct Walker<'a> {
    part: &'a PipelineSpace,
    below: Vec<f64>,
    taken: Vec<usize>,
}

impl<'a> Walker<'a> {
    pub fn new(part: &'a PipelineSpace) -> Self {
        Self { part, below: vec![0.0; part.trie.nodes.len()], taken: vec![usize::MAX; part.trie.splits.len()] }
    }

    /// The least cost at these levels of the tasks: prices less `reward` for a unit of accuracy. Infinite if some task has
    /// no variant in time. The strategy is kept for [`Self::strategy`].
    pub fn least_cost(&mut self, levels: &[PricedLevels], at: &[usize], reward: f64) -> f64 {
        self.walk(reward, |node| levels[node.task.get()].rates[at[node.task.get()]][node.variant.get()])
    }

    /// The same at a price of one query per second of each lane.
    pub fn least_cost_of_lanes(&mut self, rates: &[f64], reward: f64) -> f64 {
        self.walk(reward, |node| rates[node.lane])
    }

    fn walk(&mut self, reward: f64, rate: impl Fn(&PrefixNode) -> f64) -> f64 {
        let trie = &self.part.trie;
        self.below.fill(0.0);
        let mut whole = 0.0;
        for (s, split) in trie.splits.iter().enumerate().rev() {
            let mut best = f64::INFINITY;
            let mut taken = usize::MAX;
            for &n in &split.to {
                let node = &trie.nodes[n];
                let cost = self.below[n] + node.load_qps * rate(node) - reward * node.accuracy;
                if cost < best {
                    (best, taken) = (cost, n);
                }
            }
            self.taken[s] = taken;
            match split.from {
                Some(from) => self.below[from] += best,
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
