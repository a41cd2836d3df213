//! How much traffic does each path carry, given the integers of a plan?

use super::choice::{GroupChoice, PlanIntegers, capacity};
use crate::exact::model::covers::nodes_in_time;
use crate::exact::model::space::{PipelineSpace, Space};
use apportion_domain::{LatencyRule, Problem, StopReason};
use apportion_mip::highs::{self, SolveSettings};
use apportion_mip::{Ending, Formulation, RunLimits};
use rayon::prelude::*;

/// Shares below this are noise of the solver.
pub(crate) const FLOW_MIN: f64 = 1e-12;

/// The flows of highest weighted accuracy that a choice can carry; `None` if it cannot carry the demand.
pub(crate) fn flows(
    problem: &Problem,
    space: &Space,
    choice: &PlanIntegers,
    limits: &RunLimits,
) -> Result<Option<Vec<Vec<f64>>>, StopReason> {
    let parts = space.parts.par_iter().zip(&choice.groups);
    let all: Vec<Option<Vec<f64>>> =
        parts.map(|(part, groups)| part_flows(problem, part, groups, limits)).collect::<Result<_, _>>()?;
    Ok(all.into_iter().collect())
}

fn part_flows(
    problem: &Problem,
    part: &PipelineSpace,
    groups: &[GroupChoice],
    limits: &RunLimits,
) -> Result<Option<Vec<f64>>, StopReason> {
    let mut formulation = Formulation::default();
    let of_lane = |lane: &Vec<usize>| lane.iter().map(|&g| capacity(problem, part, g, groups[g])).sum();
    let capacities: Vec<f64> = part.lanes.iter().map(of_lane).collect();
    let in_time = match part.rule {
        LatencyRule::TaskBudget => vec![true; part.trie.nodes.len()],
        LatencyRule::Path => {
            let points: Vec<_> = groups.iter().map(|c| (c.replicas > 0).then_some(c.point)).collect();
            nodes_in_time(problem.pipeline(part.index), &part.path_view(), &points)
        }
    };
    let flow: Vec<_> = part
        .trie
        .nodes
        .iter()
        .zip(in_time)
        .map(|(n, in_time)| {
            let open = in_time && capacities[n.lane] > 0.0;
            let column = formulation.continuous(0.0, if open { 1.0 } else { 0.0 });
            formulation.add_cost(column, -n.accuracy);
            column
        })
        .collect();
    for split in &part.trie.splits {
        let to = split.to.iter().map(|&n| (flow[n], 1.0));
        match split.from {
            Some(from) => formulation.equal(0.0, to.chain([(flow[from], -1.0)]).collect()),
            None => formulation.equal(1.0, to.collect()),
        }
    }
    for (lane, &capacity) in capacities.iter().enumerate().filter(|(_, c)| **c > 0.0) {
        let here = part.trie.nodes.iter().zip(&flow).filter(|(n, _)| n.lane == lane);
        formulation.at_most(1.0, here.map(|(n, &f)| (f, n.load_qps / capacity)).collect());
    }
    let solved = highs::solve(&formulation, SolveSettings::flows(), limits, None);
    match (solved.ending, solved.values) {
        (Ending::Optimal, Some(values)) => {
            let mut shares: Vec<f64> = flow.iter().map(|f| values[f.0].clamp(0.0, 1.0)).collect();
            normalise(part, &mut shares);
            Ok(Some(shares))
        }
        (Ending::Infeasible, _) => Ok(None),
        (Ending::Stopped, _) => Err(limits.stop_reason_or_time_limit()),
        _ => Err(StopReason::Numerics),
    }
}

/// Scales the children of every prefix so that they sum to its share exactly, parents first.
fn normalise(part: &PipelineSpace, shares: &mut [f64]) {
    shares.iter_mut().for_each(|s| *s = if *s < FLOW_MIN { 0.0 } else { *s });
    for split in &part.trie.splits {
        let target = split.from.map_or(1.0, |from| shares[from]);
        let total: f64 = split.to.iter().map(|&n| shares[n]).sum();
        if total > 0.0 {
            split.to.iter().for_each(|&n| shares[n] *= target / total);
        }
    }
}

/// Accuracy of one pipeline under these shares.
pub(crate) fn accuracy(part: &PipelineSpace, shares: &[f64]) -> f64 {
    part.trie.nodes.iter().zip(shares).map(|(n, s)| n.accuracy * s).sum()
}
