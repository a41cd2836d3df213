//! Which bound and which plan follow from budgets and prices, without a solver?
//!
//! Budgets fix the operating point of every group. If a replica costs `p`, one query per second at a variant costs the
//! least of `p / q` over its groups. So the linear relaxation of
//!
//! `min sum of p_g X_g - reward * sum of A f`, with the rows of flow and load (`constraints`),
//!
//! puts all flow on one strategy. A walk up the trie adds the cheapest child over every edge. The strategy ignores accuracy
//! floors, counts and `survive`, so its cost is a lower bound. With replicas rounded up it is a plan.

use crate::exact::model::space::PipelineSpace;
use crate::exact::solution::choice::GroupChoice;
use crate::exact::solution::trim::replicas_for;
use apportion_domain::{Pipeline, TaskIndex};

/// Prices of replicas and the reward of accuracy.
pub(super) struct Tariff {
    /// Price of one replica of each group.
    pub replica: Vec<f64>,
    /// Reward of a unit of accuracy.
    pub reward: f64,
}

/// The cheapest strategy under a tariff: its cost and, by split, the node that it takes.
pub(super) struct Strategy {
    pub cost: f64,
    taken: Vec<usize>,
}

impl Strategy {
    /// `None` if the points admit no strategy.
    pub fn cheapest(part: &PipelineSpace, points: &[Option<usize>], tariff: &Tariff) -> Option<Self> {
        let mut below: Vec<Option<f64>> = vec![Some(0.0); part.trie.nodes.len()];
        let mut whole = Some(0.0);
        let mut taken = vec![usize::MAX; part.trie.splits.len()];
        for (s, split) in part.trie.splits.iter().enumerate().rev() {
            let mut best: Option<(f64, usize)> = None;
            for &n in &split.to {
                let node = &part.trie.nodes[n];
                let group = cheapest_group(part, points, tariff, node.task, node.variant.get());
                if let (Some(under), Some((rate, _))) = (below[n], group) {
                    let cost = under + node.load_qps * rate - tariff.reward * node.accuracy;
                    if best.is_none_or(|(least, _)| cost < least) {
                        best = Some((cost, n));
                    }
                }
            }
            let target = match split.from {
                Some(from) => &mut below[from],
                None => &mut whole,
            };
            *target = match (*target, best) {
                (Some(sum), Some((cost, n))) => {
                    taken[s] = n;
                    Some(sum + cost)
                }
                _ => None,
            };
        }
        whole.map(|cost| Self { cost, taken })
    }

    /// The strategy with replicas rounded up: the choice of each group, and the accuracy. `None` if a task that must have
    /// replicas has no group within the budgets.
    pub fn rounded(
        &self,
        pipeline: &Pipeline,
        part: &PipelineSpace,
        points: &[Option<usize>],
        tariff: &Tariff,
    ) -> Option<(Vec<GroupChoice>, f64)> {
        let mut visited = vec![false; part.trie.nodes.len()];
        let mut load: Vec<Vec<f64>> = part.by_variant.iter().map(|v| vec![-1.0; v.len()]).collect();
        let mut accuracy = 0.0;
        for (split, &n) in part.trie.splits.iter().zip(&self.taken) {
            if split.from.is_none_or(|from| visited[from]) {
                let node = &part.trie.nodes[n];
                visited[n] = true;
                accuracy += node.accuracy;
                let there = &mut load[node.task.get()][node.variant.get()];
                *there = there.max(0.0) + node.load_qps;
            }
        }
        let mut groups = vec![GroupChoice::default(); part.groups.len()];
        for (t, task) in pipeline.tasks.iter().enumerate() {
            let mut largest: Option<usize> = None;
            for (v, &qps) in load[t].iter().enumerate().filter(|(_, l)| **l >= 0.0) {
                let (_, g) = cheapest_group(part, points, tariff, TaskIndex(t), v)?;
                let point = points[g]?;
                let replicas = replicas_for(qps, part.groups[g].points[point].qps) + pipeline.survive;
                groups[g] = GroupChoice { replicas, point };
                largest = Some(g);
            }
            let total: u32 =
                part.groups.iter().zip(&groups).filter(|(g, _)| g.task.get() == t).map(|(_, c)| c.replicas).sum();
            if total < task.min_replicas {
                let any = || (0..part.groups.len()).find(|&g| part.groups[g].task.get() == t && points[g].is_some());
                let g = largest.or_else(any)?;
                let replicas = groups[g].replicas + task.min_replicas - total;
                groups[g] = GroupChoice { replicas, point: points[g]? };
            }
        }
        Some((groups, accuracy))
    }
}

/// The group of a variant that serves a query per second at the lowest price: the price, and the group.
fn cheapest_group(
    part: &PipelineSpace,
    points: &[Option<usize>],
    tariff: &Tariff,
    task: TaskIndex,
    variant: usize,
) -> Option<(f64, usize)> {
    let mut best: Option<(f64, usize)> = None;
    for &g in &part.by_variant[task.get()][variant] {
        let Some(point) = points[g] else { continue };
        let rate = tariff.replica[g] / part.groups[g].points[point].qps;
        if best.is_none_or(|(least, _)| rate < least) {
            best = Some((rate, g));
        }
    }
    best
}
