//! Which replicas of a choice do its flows not need?

use super::choice::{GroupChoice, PlanIntegers, capacity};
use crate::exact::model::space::{PipelineSpace, Space};
use apportion_domain::{Problem, SLACK};

/// Load of each group of a part under the flows, split in proportion to `(replicas - survive) q`.
fn group_loads(problem: &Problem, space: &Space, choice: &PlanIntegers, flows: &[Vec<f64>], p: usize) -> Vec<f64> {
    let part = &space.parts[p];
    let capacity = |g: usize| capacity(problem, part, g, choice.groups[p][g]);
    let mut loads = vec![0.0; part.groups.len()];
    for (node, share) in part.trie.nodes.iter().zip(&flows[p]) {
        let groups = &part.lanes[node.lane];
        let total: f64 = groups.iter().map(|&g| capacity(g)).sum();
        if total > 0.0 {
            groups.iter().for_each(|&g| loads[g] += node.load_qps * share * capacity(g) / total);
        }
    }
    loads
}

/// Fewest replicas that carry a load; at least one.
pub(crate) fn replicas_for(load: f64, qps: f64) -> u32 {
    ((load / qps - SLACK).ceil().max(1.0)) as u32
}

/// Removes replicas that the flows do not need, but keeps `survive` and `min_replicas`.
pub(crate) fn trim(problem: &Problem, space: &Space, mut choice: PlanIntegers, flows: &[Vec<f64>]) -> PlanIntegers {
    for (p, part) in space.parts.iter().enumerate() {
        let pipeline = problem.pipeline(part.index);
        let loads = group_loads(problem, space, &choice, flows, p);
        let shares = lane_shares(part, &flows[p]);
        for g in (0..part.groups.len()).rev() {
            let group = &part.groups[g];
            let GroupChoice { replicas, point } = choice.groups[p][g];
            let of_task = part.groups.iter().zip(&choice.groups[p]).filter(|(other, _)| other.task == group.task);
            let total: u32 = of_task.map(|(_, c)| c.replicas).sum();
            let spare = total.saturating_sub(pipeline.task(group.task).min_replicas);
            let used = shares[group.lane] > 0.0 && replicas > pipeline.survive;
            let needed = if used { replicas_for(loads[g], group.points[point].qps) + pipeline.survive } else { 0 };
            choice.groups[p][g].replicas = replicas - replicas.saturating_sub(needed).min(spare);
        }
    }
    choice
}

/// Share of the root queries at each lane.
fn lane_shares(part: &PipelineSpace, flows: &[f64]) -> Vec<f64> {
    let mut shares = vec![0.0; part.lanes.len()];
    part.trie.nodes.iter().zip(flows).for_each(|(node, share)| shares[node.lane] += share);
    shares
}
