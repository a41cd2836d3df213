//! What is the least cost of a pipeline if every prefix of a path chooses its own operating points?
//!
//! A plan gives each group one point, so this is a bound on every plan. It holds for both latency rules: budgets keep all
//! paths in time.

use crate::exact::model::space::PipelineSpace;
use apportion_domain::{Pipeline, SLACK};
use std::cell::Cell;

/// Most steps of one walk over all prefixes. Beyond them, every group takes its largest throughput at any latency.
const STEPS_MAX: usize = 150_000;

/// The walk over all prefixes with their points.
struct FreeWalk<'a> {
    part: &'a PipelineSpace,
    /// Price of a replica by group.
    replica: &'a [f64],
    reward: f64,
    /// Infinite if the walk ignores time.
    slo: f64,
    /// Least time after each node.
    rests: Vec<f64>,
    /// By node: its splits.
    splits_of: Vec<Vec<usize>>,
    steps: Cell<usize>,
}

/// The least cost; infinite if no way is in time.
pub(super) fn least_cost_of_any_points(pipeline: &Pipeline, part: &PipelineSpace, replica: &[f64], reward: f64) -> f64 {
    let mut splits_of = vec![Vec::new(); part.trie.nodes.len()];
    let mut roots = Vec::new();
    for (s, split) in part.trie.splits.iter().enumerate() {
        match split.from {
            Some(from) => splits_of[from].push(s),
            None => roots.push(s),
        }
    }
    // nodes without history have no paths
    let slo = if part.trie.merged { f64::INFINITY } else { pipeline.slo_ms + SLACK * pipeline.slo_ms.max(1.0) };
    let mut walk = FreeWalk { part, replica, reward, slo, rests: least_rests(part), splits_of, steps: Cell::new(0) };
    let total = |walk: &FreeWalk<'_>| roots.iter().map(|&s| walk.least(s, 0.0)).sum::<f64>();
    let found = total(&walk);
    if walk.steps.get() <= STEPS_MAX {
        return found;
    }
    walk.slo = f64::INFINITY;
    walk.steps.set(0);
    total(&walk)
}

/// The least time after each node of the trie.
fn least_rests(part: &PipelineSpace) -> Vec<f64> {
    let of_lane =
        |lane: &Vec<usize>| lane.iter().map(|&g| part.groups[g].points[0].charge_ms).fold(f64::INFINITY, f64::min);
    let fastest: Vec<f64> = part.lanes.iter().map(of_lane).collect();
    let mut rests = vec![0.0_f64; part.trie.nodes.len()];
    for split in part.trie.splits.iter().rev() {
        if let Some(from) = split.from {
            let least = split.to.iter().map(|&n| fastest[part.trie.nodes[n].lane] + rests[n]).fold(f64::INFINITY, f64::min);
            rests[from] = rests[from].max(least);
        }
    }
    rests
}

impl FreeWalk<'_> {
    /// The least cost over one split, if queries have taken `used_ms` so far.
    fn least(&self, split: usize, used_ms: f64) -> f64 {
        let mut best = f64::INFINITY;
        for &n in &self.part.trie.splits[split].to {
            let node = &self.part.trie.nodes[n];
            for &g in &self.part.lanes[node.lane] {
                best = best.min(self.least_at(n, g, used_ms));
            }
        }
        best
    }

    /// The least cost at one node on one group.
    fn least_at(&self, n: usize, g: usize, used_ms: f64) -> f64 {
        let (node, points) = (&self.part.trie.nodes[n], &self.part.groups[g].points);
        let is_limited = self.slo < f64::INFINITY;
        // without a limit on time the point of largest throughput is best
        let first = if is_limited { 0 } else { points.len() - 1 };
        let mut best = f64::INFINITY;
        for point in &points[first..] {
            self.steps.set(self.steps.get() + 1);
            let done_ms = used_ms + point.charge_ms;
            if is_limited && (done_ms + self.rests[n] > self.slo || self.steps.get() > STEPS_MAX) {
                break;
            }
            let own = node.load_qps * self.replica[g] / point.qps - self.reward * node.accuracy;
            best = best.min(own + self.splits_of[n].iter().map(|&s| self.least(s, done_ms)).sum::<f64>());
        }
        best
    }
}
