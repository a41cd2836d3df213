//! What does the end of a query mean for its request?

use super::group::CompiledGroup;
use super::requests::{ClosedRequest, RequestSlots};
use super::statistics::Statistics;
use apportion_domain::{Moment, Partial};

/// What requests of one group's pipeline are counted by.
#[derive(Clone, Copy, Debug)]
pub struct Settlement<'a> {
    /// The group whose query ended.
    pub group: &'a CompiledGroup,
    /// Weight of each channel of the accuracy.
    pub weights: &'a [f64],
    /// Whether dropped parts are left out of the answer.
    pub partial: Partial,
}

/// A query that has ended at its group.
#[derive(Clone, Copy, Debug)]
pub struct SettledQuery {
    /// The slot of its request.
    pub slot: u32,
    /// The present.
    pub now: Moment,
    /// Queries that it made.
    pub made: u64,
}

impl Settlement<'_> {
    /// A query has ended. `accuracy` is its path's: it is asked for if the path is scored. Returns whether its request is
    /// complete, and counted.
    #[inline(always)]
    pub fn settle(
        &self,
        requests: &mut RequestSlots,
        statistics: &mut Statistics,
        query: SettledQuery,
        accuracy: impl FnOnce() -> f64,
    ) -> bool {
        let SettledQuery { slot, now, made } = query;
        let request = requests.get_mut(slot);
        if made > 0 {
            request.progress.pass(1, made);
        } else {
            request.progress.leaf(now, 1);
        }
        let is_complete = request.progress.is_complete();
        if made == 0 || self.group.is_scored {
            let accuracy = accuracy();
            // The only path of a request with one sink.
            if is_complete && !request.is_scored && self.weights.len() == 1 && self.group.stage_channel.is_none() {
                let request = requests.close_unscored(slot);
                statistics.count_outcome(ClosedRequest { request, accuracy: Some(accuracy) }, self.partial);
                return true;
            }
            request.is_scored = true;
            requests.score(slot, self.group, accuracy);
        }
        if is_complete {
            let closed = requests.close(slot, self.weights);
            statistics.count_outcome(closed, self.partial);
        }
        is_complete
    }
}
