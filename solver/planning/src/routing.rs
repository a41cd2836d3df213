//! Which routing tables does a plan get? Those of Loki's MostAccurateFirst (section 5.1).

use apportion_domain::{Plan, Problem};
use apportion_serving::most_accurate_first;

/// Fills the tables of every pipeline. They are made for the demand times `headroom` (by pipeline, at least 1). A table for
/// the demand alone would use the most accurate groups fully and leave the added replicas idle.
pub(crate) fn add_tables(problem: &Problem, plan: &mut Plan, headroom: &[f64]) {
    for ((pipeline, part), headroom) in problem.pipelines.iter().zip(&mut plan.pipelines).zip(headroom) {
        let demand = pipeline.demand_qps * headroom;
        match most_accurate_first(pipeline, &problem.hardware, &part.assignments, demand) {
            Ok(routing) => part.routing = routing,
            Err(error) => {
                debug_assert!(false, "our own groups are known: {error}");
                tracing::error!(%error, "no routing tables");
            }
        }
    }
}
