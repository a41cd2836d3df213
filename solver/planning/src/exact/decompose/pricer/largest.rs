//! How much load can a lane have at most, if the pipeline keeps its floor?
//!
//! Example: a replica of a lane serves 100 queries per second for 4, but the lane never has more than 10. Then a query per
//! second costs at least .40 there, and not .04, because less than a whole replica is never paid. With few replicas in each
//! task this is most of the price.

use super::walk::Walker;
use apportion_domain::SLACK;

/// Most prices of accuracy that are tried for one lane.
const ROUNDS_MAX: usize = 5;
/// Relative difference of a load and its bound at which the bound is close enough.
const CLOSE: f64 = 1e-3;

/// The load of a lane in one strategy.
#[derive(Clone, Copy)]
struct LaneLoad {
    qps: f64,
    accuracy: f64,
}

/// The largest load of each lane in any mixture of strategies whose accuracy is at least the floor, or a little more.
pub(super) fn largest_loads(walker: &mut Walker<'_>, lanes: usize, floor: f64) -> Vec<f64> {
    walker.least_cost_of_lanes(&vec![0.0; lanes], 1.0);
    let (accuracy, loads) = (walker.strategy().accuracy, walker.loads());
    let most = |(lane, qps): (usize, f64)| {
        let mut rates = vec![0.0; lanes];
        rates[lane] = -1.0;
        largest_load(walker, &rates, floor - SLACK, LaneLoad { qps, accuracy })
    };
    loads.into_iter().enumerate().map(most).collect()
}

/// The same for the lane of the only rate. Any price of accuracy bounds the load (Lagrangian relaxation). `high` is the
/// load in the most accurate strategy.
fn largest_load(walker: &mut Walker<'_>, rates: &[f64], floor: f64, mut high: LaneLoad) -> f64 {
    let mut bound = -walker.least_cost_of_lanes(rates, 0.0);
    let mut low = LaneLoad { qps: bound, accuracy: walker.strategy().accuracy };
    if low.accuracy >= floor || high.accuracy < floor {
        return bound;
    }
    for _ in 0..ROUNDS_MAX {
        let price = ((low.qps - high.qps) / (high.accuracy - low.accuracy)).max(0.0);
        let least = walker.least_cost_of_lanes(rates, price);
        bound = bound.min(-least - price * floor);
        let accuracy = walker.strategy().accuracy;
        let next = LaneLoad { qps: -least - price * accuracy, accuracy };
        let mixed = low.qps + (high.qps - low.qps) * (floor - low.accuracy) / (high.accuracy - low.accuracy);
        if bound <= mixed * (1.0 + CLOSE) {
            break;
        }
        let side = if accuracy >= floor { &mut high } else { &mut low };
        *side = next;
    }
    bound
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::drawn::{self, ProblemShape, ShapeHardware};
    use crate::exact::model::space::{PipelineSpace, Space};
    use crate::exact::model::tightening::Tightening;
    use apportion_domain::{Mode, Objective};
    use apportion_mip::RunLimits;
    use std::sync::Arc;
    use std::time::Duration;

    /// Loads and accuracy of every strategy of the nodes of some splits, tried.
    fn strategies(part: &PipelineSpace) -> Vec<(Vec<f64>, f64)> {
        let mut all = vec![(vec![false; part.trie.nodes.len()], vec![0.0; part.lanes.len()], 0.0)];
        for split in &part.trie.splits {
            let mut next = Vec::new();
            for (visited, loads, accuracy) in all {
                if split.from.is_some_and(|from| !visited[from]) {
                    next.push((visited, loads, accuracy));
                    continue;
                }
                for &n in &split.to {
                    let node = &part.trie.nodes[n];
                    let (mut visited, mut loads) = (visited.clone(), loads.clone());
                    visited[n] = true;
                    loads[node.lane] += node.load_qps;
                    next.push((visited, loads, accuracy + node.accuracy));
                }
            }
            all = next;
        }
        all.into_iter().map(|(_, loads, accuracy)| (loads, accuracy)).collect()
    }

    /// The largest load of a lane in any mixture of two strategies.
    fn brute(all: &[(Vec<f64>, f64)], lane: usize, floor: f64) -> f64 {
        let mut most = 0.0_f64;
        for (a, high) in all.iter().filter(|(_, accuracy)| *accuracy >= floor) {
            most = most.max(a[lane]);
            for (b, low) in all.iter().filter(|(_, accuracy)| *accuracy < floor) {
                let part = (floor - low) / (high - low);
                most = most.max(part * a[lane] + (1.0 - part) * b[lane]);
            }
        }
        most
    }

    #[test]
    fn no_mixture_loads_a_lane_more() {
        let shape = ProblemShape {
            pipelines: 2,
            tasks_max: 3,
            variants_max: 3,
            batches: 2,
            hardware: vec![ShapeHardware { price_per_hour: 1.0, count: Some(60), speed: 1.0 }],
            halves: false,
            demand_qps: 50.0,
            min_accuracy: Some(0.9),
            objective: Objective { mode: Mode::MinCost, ..Objective::default() },
        };
        let limits = RunLimits::new(Arc::new(|| Duration::ZERO));
        let (mut compared, mut lowered) = (0, 0);
        for seed in 50_700..50_740 {
            let problem = drawn::problem(seed, &shape);
            let Ok(space) = Space::new(&problem, &Tightening::none(&problem), &limits) else { continue };
            for part in &space.parts {
                let (mut walker, lanes) = (Walker::new(part), part.lanes.len());
                let all = strategies(part);
                let floor = 0.93;
                if !all.iter().any(|(_, accuracy)| *accuracy >= floor) {
                    continue;
                }
                let free = largest_loads(&mut walker, lanes, 0.0);
                for (lane, found) in largest_loads(&mut walker, lanes, floor).into_iter().enumerate() {
                    let best = brute(&all, lane, floor);
                    assert!(found >= best * (1.0 - 1e-9), "seed {seed}: {found} for {best}");
                    let most = brute(&all, lane, 0.0);
                    assert!((free[lane] - most).abs() <= 1e-9 * most && found <= most * (1.0 + 1e-9), "seed {seed}");
                    compared += 1;
                    lowered += usize::from(found < 0.99 * free[lane]);
                }
            }
        }
        assert!(compared > 100 && 10 * lowered > compared, "{lowered} of {compared} loads are below the floorless ones");
    }
}
