//! Which bound holds without a search? The sum of the best values that each task can reach alone.

use super::groups::{FeasibleGroup, usable_groups};
use super::tightening::Tightening;
use apportion_domain::{
    AccuracyModel, Mode, ObjectiveStep, Pipeline, PipelineIndex, Problem, SLACK, TaskIndex, VariantIndex,
};

/// Whether the objective is maximised.
pub(crate) fn is_maximised(problem: &Problem, step: Option<ObjectiveStep>) -> bool {
    step == Some(ObjectiveStep::Accuracy) || problem.objective.mode == Mode::MaxAccuracy
}

/// The bound of a mode and step: the highest accuracy of any path, or a sum over tasks. Each task counts the cost of its
/// least load at its best throughput, at any latency.
pub(crate) fn bound(problem: &Problem, tightening: &Tightening, step: Option<ObjectiveStep>) -> f64 {
    if is_maximised(problem, step) {
        let total: f64 = problem.pipelines.iter().map(|p| p.weight).sum();
        let weight = |p: &Pipeline| if total > 0.0 { p.weight / total } else { 1.0 / problem.pipelines.len() as f64 };
        return problem.pipelines.iter().map(|p| weight(p) * accuracy_max(p)).sum();
    }
    let quantity = if step == Some(ObjectiveStep::Hardware) { Quantity::Replicas } else { Quantity::Cost };
    (0..problem.pipelines.len()).map(|p| least(problem, tightening, PipelineIndex(p), quantity)).sum()
}

/// The highest accuracy of any path.
pub(crate) fn accuracy_max(pipeline: &Pipeline) -> f64 {
    let best = |t: TaskIndex| pipeline.task(t).variants.iter().map(|v| v.accuracy).fold(0.0, f64::max);
    let all = (0..pipeline.tasks.len()).map(TaskIndex);
    if pipeline.accuracy_model == AccuracyModel::TaskMean {
        return all.map(best).sum::<f64>() / pipeline.tasks.len() as f64;
    }
    let table = pipeline.path_accuracy.iter().map(|p| p.accuracy).fold(0.0, f64::max);
    let of_sink = |sink: TaskIndex| {
        let mut route = vec![sink];
        while let Some(edge) = pipeline.primary_parent(route[route.len() - 1]) {
            route.push(edge.from);
        }
        route.reverse();
        // a path may end early at a variant that makes no queries, so every length counts
        let ends = |n: usize| {
            let stages = route[..n].iter().map(|&t| best(t));
            match pipeline.accuracy_model {
                AccuracyModel::Mean => stages.sum::<f64>() / n as f64,
                _ => stages.product(),
            }
        };
        let may_end = |n: usize| {
            n == route.len() || {
                let edge = pipeline.primary_parent(route[n]).expect("only the root has none");
                (0..pipeline.task(edge.from).variants.len()).any(|v| pipeline.fanout(edge, VariantIndex(v)) <= 0.0)
            }
        };
        let lengths = (1..=route.len()).filter(|&n| may_end(n));
        pipeline.leaf_weight(sink) * lengths.map(ends).fold(table, f64::max)
    };
    pipeline.sinks().map(of_sink).sum()
}

/// The quantity that a bound adds up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Quantity {
    /// Whole replicas.
    Replicas,
    /// Price of the devices per hour.
    Cost,
}

/// Fewest replicas or least cost of one pipeline, its tasks added up.
fn least(problem: &Problem, tightening: &Tightening, index: PipelineIndex, quantity: Quantity) -> f64 {
    let pipeline = problem.pipeline(index);
    let groups = usable_groups(problem, index, tightening, |_, _| true);
    let mut load = vec![0.0; pipeline.tasks.len()];
    let mut sum = 0.0;
    for &t in pipeline.order() {
        load[t.get()] = match pipeline.primary_parent(t) {
            None => pipeline.demand_qps,
            Some(edge) => {
                let all = (0..pipeline.task(edge.from).variants.len()).map(VariantIndex);
                load[edge.from.get()] * all.map(|v| pipeline.fanout(edge, v)).fold(f64::INFINITY, f64::min)
            }
        };
        let headroom = tightening.parts[index.0].headroom[t.get()];
        let points = groups.iter().filter(|g| g.task == t).flat_map(|g| g.points.iter().map(move |p| (g, p)));
        let price = |g: &FeasibleGroup| match quantity {
            Quantity::Replicas => 1.0,
            Quantity::Cost => g.share.value() * problem.hardware_at(g.hardware).price_per_hour,
        };
        let each = points.map(|(g, p)| price(g) / p.qps).fold(f64::INFINITY, f64::min);
        if load[t.get()] > 0.0 && each.is_finite() {
            let needed = load[t.get()] * headroom * each;
            sum += match quantity {
                Quantity::Replicas => (needed - SLACK * needed.max(1.0)).ceil().max(1.0),
                Quantity::Cost => needed,
            };
        }
    }
    sum
}
