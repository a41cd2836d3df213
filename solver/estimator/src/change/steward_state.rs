//! The steward of one pipeline, and the run's data about it.

use crate::scenario::BinCount;
use apportion_domain::{Moment, TimeSpan};
use apportion_serving::error_budget::OutcomeCount;
use apportion_serving::scaling::tuner::BIN_MAX;
use apportion_serving::{StationView, Steering, Steward};

/// Resolution of the arrivals in a steward's reports: the resolution of the agents' reports.
const BIN: TimeSpan = BIN_MAX;

/// The steward of one pipeline.
#[derive(Debug)]
pub struct StewardState {
    /// The steward.
    pub steward: Steward,
    /// The replicas of each group of its plan, by number.
    pub groups: Vec<usize>,
    /// The fewest replicas that each group may have. Only a ladder was checked with fewer than the plan's.
    pub replicas_min: Vec<u32>,
    /// Number of the pipeline's plan: a decision about a former plan has no effect.
    pub generation: u64,
    /// Requests that were offered since the last report, by bin.
    pub offered: Vec<BinCount>,
    /// All requests that had ended at the last report.
    pub ended: OutcomeCount,
    /// The views that stations were given last; empty before the first.
    pub views: Vec<StationView>,
    /// A decision that waits until no replica of the former plan stands in.
    pub pending: Option<Steering>,
}

impl StewardState {
    /// The view that the stations of a task were given last.
    pub fn view(&self, task: u32) -> Option<StationView> {
        self.views.get(task as usize).copied()
    }

    /// A request was offered.
    pub fn count_arrival(&mut self, now: Moment) {
        let bin = Moment::from_nanos(now.as_nanos() / BIN.as_nanos() * BIN.as_nanos());
        BinCount::add_one(&mut self.offered, bin);
    }
}
