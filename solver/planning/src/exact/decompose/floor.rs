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

/// A strategy with replicas rounded up.
pub(super) struct RoundedStrategy {
    /// The choice of each group.
    pub groups: Vec<GroupChoice>,
    pub accuracy: f64,
}

/// The node of a split that costs least, with everything below it.
struct CheapestNode {
    cost: f64,
    node: usize,
}

impl Strategy {
    /// `None` if the points admit no strategy.
    pub fn cheapest(part: &PipelineSpace, points: &[Option<usize>], tariff: &Tariff) -> Option<Self> {
        let mut below: Vec<Option<f64>> = vec![Some(0.0); part.trie.nodes.len()];
        let mut whole = Some(0.0);
        let mut taken = vec![usize::MAX; part.trie.splits.len()];
        for (s, split) in part.trie.splits.iter().enumerate().rev() {
            let mut best: Option<CheapestNode> = None;
            for &n in &split.to {
                let node = &part.trie.nodes[n];
                let group = cheapest_group(part, points, tariff, node.task, node.variant.get());
                if let (Some(under), Some(group)) = (below[n], group) {
                    let cost = under + node.load_qps * group.rate - tariff.reward * node.accuracy;
                    if best.as_ref().is_none_or(|b| cost < b.cost) {
                        best = Some(CheapestNode { cost, node: n });
                    }
                }
            }
            let target = match split.from {
                Some(from) => &mut below[from],
                None => &mut whole,
            };
            *target = match (*target, best) {
                (Some(sum), Some(best)) => {
                    taken[s] = best.node;
                    Some(sum + best.cost)
                }
                _ => None,
            };
        }
        whole.map(|cost| Self { cost, taken })
    }

    /// Rounds replicas up. `None` if a task that must have replicas has no group within the budgets.
    pub fn round_up(
        &self,
        pipeline: &Pipeline,
        part: &PipelineSpace,
        points: &[Option<usize>],
        tariff: &Tariff,
    ) -> Option<RoundedStrategy> {
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
                let g = cheapest_group(part, points, tariff, TaskIndex(t), v)?.group;
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
        Some(RoundedStrategy { groups, accuracy })
    }
}

/// A group with the price at which it serves one query per second.
struct GroupRate {
    rate: f64,
    group: usize,
}

/// The group of a variant that serves a query per second at the lowest price. `None` if no group has an operating point.
fn cheapest_group(
    part: &PipelineSpace,
    points: &[Option<usize>],
    tariff: &Tariff,
    task: TaskIndex,
    variant: usize,
) -> Option<GroupRate> {
    let mut best: Option<GroupRate> = None;
    for &g in &part.by_variant[task.get()][variant] {
        let Some(point) = points[g] else { continue };
        let rate = tariff.replica[g] / part.groups[g].points[point].qps;
        if best.as_ref().is_none_or(|b| rate < b.rate) {
            best = Some(GroupRate { rate, group: g });
        }
    }
    best
}
