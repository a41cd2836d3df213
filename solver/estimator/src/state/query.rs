//! A query of a run, and its dispatch.

use apportion_domain::{Moment, TimeSpan};

/// A query in a run.
///
/// To a station, queries of the same request are equal, so that one input cancels them all.
#[derive(Clone, Copy, Debug)]
pub struct SimulatedQuery {
    /// Slot of its request.
    pub request: u32,
    /// Its node in the table of path accuracies.
    pub node: u32,
    /// Accuracy accumulated over the tasks that its path has passed.
    pub stages: f64,
    /// The router that sent it.
    pub router: u32,
    /// The router's slot for it.
    pub pick: u32,
    /// Its scope in the joins of its pipeline.
    pub scope: u32,
}

impl PartialEq for SimulatedQuery {
    fn eq(&self, other: &Self) -> bool {
        self.request == other.request
    }
}

/// A query's way from a sender to a station.
#[derive(Clone, Copy, Debug)]
pub struct Dispatch {
    /// When its request should be answered.
    pub deadline: Moment,
    /// By how much the part of the SLO of the sender's task was overrun.
    pub behind: TimeSpan,
}

/// No slot of a router: the query was not sent.
pub const NO_PICK: u32 = u32::MAX;
