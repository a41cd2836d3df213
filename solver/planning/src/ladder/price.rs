//! What do the replicas of a rate cost?

use apportion_domain::{Assignment, PipelinePlan, Plan, Problem};

/// Cost per hour of a pipeline's part of a plan at a rate in queries per second, with the replicas of its ladder's step.
/// Beyond the last step it grows in proportion. `None` without a ladder.
#[must_use]
pub fn price_per_hour(problem: &Problem, part: &PipelinePlan, rate_qps: f64) -> Option<f64> {
    let of = |replicas: &[u32]| -> f64 {
        part.assignments.iter().zip(replicas).map(|(a, &n)| f64::from(n) * replica_price(problem, a)).sum()
    };
    match part.ladder.iter().find(|step| step.rate_qps >= rate_qps) {
        Some(step) => Some(of(&step.replicas)),
        None => part.ladder.last().map(|last| of(&last.replicas) * rate_qps / last.rate_qps),
    }
}

/// Cost per hour of a pipeline's part of a plan at a rate: by its ladder, or as planned without one.
#[must_use]
pub fn price_at(problem: &Problem, part: &PipelinePlan, rate_qps: f64) -> f64 {
    let planned = || part.assignments.iter().map(|a| f64::from(a.replicas) * replica_price(problem, a)).sum();
    price_per_hour(problem, part, rate_qps).unwrap_or_else(planned)
}

/// Price of a replica per hour.
pub(super) fn replica_price(problem: &Problem, a: &Assignment) -> f64 {
    let hardware = problem.hardware.iter().find(|h| h.name == a.group.hardware);
    hardware.map_or(0.0, |h| h.price_per_hour * f64::from(a.group.share.eighths()) / 8.0)
}

/// Cost per hour of a plan at the demands of its pipelines: by their ladders, or as planned without one.
pub(crate) fn price_at_demand(problem: &Problem, plan: &Plan) -> f64 {
    plan.pipelines.iter().map(|part| price_at(problem, part, part.demand_qps)).sum()
}
