//! Which replicas do agents give a pipeline at other rates, and what moves the headroom of these rates?
//!
//! Example: a plan for 60 queries/s has a ladder up to 240, and its options name no `ladder_headroom`. The pipeline
//! promises 99 %. Then its agents move the headroom so that 1 % of the requests miss, and no more.

use super::budget::promise_of;
use apportion_domain::{Assignment, LadderStep, PipelinePlan};
use apportion_protocol::v1;

/// The plan's ladder, with the groups that are placed. It has no replicas of the offered groups, which come last.
pub(super) fn ladder_target(
    plan: &PipelinePlan,
    offered: usize,
    is_placed: impl Fn(&Assignment) -> bool,
) -> Vec<v1::LadderStep> {
    let step = |step: &LadderStep| {
        let placed = plan.assignments.iter().zip(&step.replicas).filter(|(a, _)| is_placed(a));
        let none = std::iter::repeat_n(0, offered);
        v1::LadderStep { rate_qps: step.rate_qps, replicas: placed.map(|(_, &n)| n).chain(none).collect() }
    };
    plan.ladder.iter().map(step).collect()
}

/// The share of the requests that the ladder's headroom lets miss at most; 0 without a ladder. `percentile` is the one that
/// the headroom keeps to, in percent; `None`: it is constant.
pub(super) fn missed_share_max(plan: &PipelinePlan, percentile: Option<f64>) -> f64 {
    let kept = percentile.filter(|_| !plan.ladder.is_empty());
    kept.map_or(0.0, |percentile| promise_of(Some(percentile)).missed_share_max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use apportion_domain::{Routing, ServingPolicy};

    #[test]
    fn only_a_ladder_with_feedback_has_a_promise() {
        let mut plan = PipelinePlan {
            name: "p".into(),
            demand_qps: 10.0,
            accuracy: 1.0,
            serving: ServingPolicy::default(),
            assignments: vec![],
            flows: vec![],
            routing: Routing::default(),
            ladder: vec![],
        };
        assert_eq!(missed_share_max(&plan, Some(95.0)), 0.0, "no ladder");
        plan.ladder = vec![LadderStep { rate_qps: 10.0, replicas: vec![] }];
        assert!((missed_share_max(&plan, Some(95.0)) - 0.05).abs() < 1e-12);
        assert_eq!(missed_share_max(&plan, None), 0.0, "its plan names a headroom");
    }
}
