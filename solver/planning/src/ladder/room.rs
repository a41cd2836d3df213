//! Are there enough devices for a plan?

use apportion_domain::{Plan, Problem};

/// Whether there are enough devices for a plan.
#[must_use]
pub fn fits(problem: &Problem, plan: &Plan) -> bool {
    let count = |name: &str| problem.hardware_named(name).and_then(|h| problem.hardware_at(h).count);
    plan.devices().into_iter().all(|(name, wanted)| count(name).is_none_or(|count| wanted <= u64::from(count)))
}
