//! What does a pipeline cost at given prices if parts of replicas could be bought? A walk up the trie, for any budgets.

use crate::exact::model::space::PipelineSpace;

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
    /// Price less the reward of its accuracy.
    pub cost: f64,
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
        let trie = &self.part.trie;
        self.below.fill(0.0);
        let mut whole = 0.0;
        for (s, split) in trie.splits.iter().enumerate().rev() {
            let mut best = f64::INFINITY;
            let mut taken = usize::MAX;
            for &n in &split.to {
                let node = &trie.nodes[n];
                let rate = levels[node.task.get()].rates[at[node.task.get()]][node.variant.get()];
                let cost = self.below[n] + node.load_qps * rate - reward * node.accuracy;
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
    pub fn strategy(&self, cost: f64) -> PureStrategy {
        let trie = &self.part.trie;
        let mut visited = vec![false; trie.nodes.len()];
        let mut nodes = Vec::new();
        let mut accuracy = 0.0;
        for (split, &n) in trie.splits.iter().zip(&self.taken) {
            if split.from.is_none_or(|from| visited[from]) {
                visited[n] = true;
                accuracy += trie.nodes[n].accuracy;
                nodes.push(n);
            }
        }
        PureStrategy { cost, accuracy, nodes }
    }
}
