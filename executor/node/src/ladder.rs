//! Which ladder does the host of a steward follow, and what moves its headroom?
//!
//! Example: the target promises that at most 1 % of the requests miss. The ladder begins with a headroom of 1.1, and the
//! misses at all gateways move it.

use crate::layout::LayoutPipeline;
use apportion_domain::TimeSpan;
use apportion_serving::Ladder;
use apportion_serving::error_budget::AttainmentPromise;
use apportion_serving::headroom_controller::{HeadroomController, PROMISE};
use apportion_serving::ladder::{Headroom, LadderStep, WINDOW_MIN};
use apportion_serving::steward::TUNE;

/// Longest load of a replica that a ladder's reserve for leaps looks ahead, in nanoseconds: ten minutes.
pub const LOAD_NS_MAX: u64 = 600_000_000_000;

/// The ladder of a pipeline with these steps, which begins with the `held` replicas. Its headroom follows the misses if the
/// target promises a share of them, else it is 1.
#[must_use]
pub fn new_ladder(of: &LayoutPipeline, steps: Vec<LadderStep>, held: Vec<u32>) -> Ladder {
    let Some(missed_share_max) = of.missed_share_max else {
        return Ladder::new(steps, held, Headroom::Constant(1.0));
    };
    let controller = HeadroomController::new(AttainmentPromise { missed_share_max, ..PROMISE });
    let ladder = Ladder::new(steps, held, Headroom::Feedback(Box::new(controller)));
    match reaction(of) {
        Some(reaction) => ladder.with_reaction(reaction),
        None => ladder,
    }
}

/// The time from a load to the replicas that answer it: it is seen, reported, answered, and the slowest group's replica
/// loads. `None` if the target knows no load time.
fn reaction(of: &LayoutPipeline) -> Option<TimeSpan> {
    let load_ns = of.staffed().iter().map(|staffed| staffed.group.load_ns).max().filter(|ns| *ns > 0)?;
    Some(WINDOW_MIN + TUNE + TUNE + TimeSpan::from_nanos(load_ns.min(LOAD_NS_MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{lay_out, tests::chain};
    use apportion_protocol::v1;
    use apportion_serving::leap_reserve::REACTION_SECONDS;

    fn ladder(target: &v1::Target) -> Ladder {
        let layout = lay_out(target).expect("a valid target");
        let steps = vec![LadderStep { rate_qps: 10.0, replicas: vec![1, 1] }];
        new_ladder(&layout.pipelines["p"], steps, vec![1, 1])
    }

    fn reaction_s(target: &v1::Target) -> usize {
        ladder(target).feedback().expect("the misses move it").leap().reaction_s()
    }

    #[test]
    fn only_a_promised_share_moves_the_headroom() {
        let mut target = chain();
        assert_eq!((ladder(&target).headroom(), ladder(&target).feedback().is_none()), (1.0, true));
        target.pipelines[0].missed_share_max = 0.05;
        let promise = ladder(&target).feedback().expect("the misses move it").budget().promise();
        assert_eq!(promise, AttainmentPromise { missed_share_max: 0.05, ..PROMISE });
    }

    #[test]
    fn the_reserve_looks_as_far_as_the_slowest_load() {
        let mut target = chain();
        target.pipelines[0].missed_share_max = 0.05;
        assert_eq!(reaction_s(&target), REACTION_SECONDS, "nobody says how long replicas load");
        // Seen after 0.5 s, reported and answered within 0.1 s each, and the slower group loads.
        target.pipelines[0].groups[1].load_ns = 8_000_000_000;
        assert_eq!(reaction_s(&target), 9);
        target.pipelines[0].groups[0].load_ns = u64::MAX;
        assert_eq!(reaction_s(&target), 601, "no longer than the limit");
    }
}
