//! Which plan do the prices lead to in one stage?
//!
//! Candidates of points are tried in the order of their bounds at the prices ([`joint`](super::joint)). Each is a small
//! programme over replicas and flows, and only plans better than the best one count. Work is counted, so no clock decides
//! the result. Points near the best plan's are tried too ([`moves`](super::moves)).

use super::context::{StageEnd, StagePlan, StageSearch};
use super::prices::PricedBound;
use apportion_domain::LatencyRule;

/// Most pipelines whose replicas are chosen in one programme.
const JOINT_MAX: usize = 2;
/// Most pipelines of one programme if no plan was found one by one.
const JOINT_LATE_MAX: usize = 4;

impl StageSearch<'_> {
    /// Searches. With a known plan, only better ones count.
    pub fn solve(&self, priced: &PricedBound, known: Option<StagePlan>) -> StageEnd {
        let relaxation = self.relaxation();
        if priced.missing > 1e-6 && known.is_none() && relaxation.is_infeasible(self.limits) {
            return StageEnd::Infeasible;
        }
        let found = if self.parts.len() > JOINT_MAX {
            match self.solve_one_by_one(priced, known) {
                Some(plan) => StageEnd::Found { bound: priced.bound.min(plan.cost), plan },
                // the plans of fewest devices do not fit together, but others may
                None if self.parts.len() <= JOINT_LATE_MAX => self.solve_jointly(&relaxation, priced, None),
                None => StageEnd::NotFound,
            }
        } else {
            self.solve_jointly(&relaxation, priced, known)
        };
        match found {
            StageEnd::Found { mut plan, bound } if self.problem.objective.latency_rule == LatencyRule::Path => {
                self.improve_points(&mut plan, &relaxation, priced);
                StageEnd::Found { bound: bound.min(plan.cost), plan }
            }
            other => other,
        }
    }
}
