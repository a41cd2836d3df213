//! What does an agent count for the control plane, and for the stewards of steered pipelines?
//!
//! Example: a request with three rows comes for a steered pipeline. Its three queries are counted in the report to the
//! control plane, and in the measurement that goes to the agent that hosts the steward.

use super::counts::{BIN_NS, ReportCounts, RequestCounts};
use apportion_protocol::v1;
use apportion_serving::error_budget::OutcomeCount;
use std::collections::{BTreeMap, BTreeSet};

/// Queries of one group that ended since the last measurement.
#[derive(Debug, Default)]
pub(super) struct EndedQueries {
    /// How many ended.
    pub queries: u64,
    /// Queries that they made, by child.
    pub children: Vec<u64>,
}

/// What an agent has seen of one steered pipeline since its last measurement.
#[derive(Debug, Default)]
struct Seen {
    /// Offered root queries by bin of the agent's clock.
    bins: BTreeMap<u64, u32>,
    /// By group.
    made: BTreeMap<u64, EndedQueries>,
}

/// All counts of one agent.
#[derive(Default)]
pub(super) struct Tallies {
    /// The number of this life of the agent.
    session: u64,
    counts: ReportCounts,
    /// Requests that ended since the agent's start, by pipeline, without those in `counts`.
    ended: BTreeMap<String, OutcomeCount>,
    /// By steered pipeline; pipelines that are not steered have none.
    seen: BTreeMap<String, Seen>,
}

impl Tallies {
    /// The counts of an agent whose life has this number, which no other of its lives has.
    pub fn of_session(session: u64) -> Self {
        Self { session, ..Self::default() }
    }

    /// The counts for the control plane.
    pub fn counts(&mut self) -> &mut ReportCounts {
        &mut self.counts
    }

    /// Takes out the counts for the control plane.
    pub fn take_counts(&mut self) -> ReportCounts {
        let counts = std::mem::take(&mut self.counts);
        for (pipeline, requests) in &counts.pipelines {
            let sum = self.ended.entry(pipeline.clone()).or_default();
            *sum = sum.with(requests.outcomes());
        }
        counts
    }

    /// The requests of a pipeline that ended since the agent's start.
    pub fn ended(&self, pipeline: &str) -> v1::EndedRequests {
        let before = self.ended.get(pipeline).copied().unwrap_or_default();
        let new = self.counts.pipelines.get(pipeline).map(RequestCounts::outcomes).unwrap_or_default();
        let OutcomeCount { in_time, missed } = before.with(new);
        v1::EndedRequests { session: self.session, in_time, missed }
    }

    /// The counts of a pipeline's requests.
    pub fn requests_of(&mut self, pipeline: String) -> &mut RequestCounts {
        self.counts.pipelines.entry(pipeline).or_default()
    }

    /// Begins new measurements, of these pipelines only.
    pub fn measure_only(&mut self, steered: &BTreeSet<String>) {
        self.seen = steered.iter().map(|pipeline| (pipeline.clone(), Seen::default())).collect();
    }

    /// Counts the root queries of a request.
    pub fn count_offered(&mut self, pipeline: &str, rows: u32, now_ns: u64) {
        let bin = now_ns / BIN_NS;
        *self.requests_of(pipeline.to_owned()).bins.entry(bin).or_default() += rows;
        if let Some(seen) = self.seen.get_mut(pipeline) {
            *seen.bins.entry(bin).or_default() += rows;
        }
    }

    /// Counts queries of a group that ended, and the queries that they made at each child.
    pub fn count_made(&mut self, pipeline: &str, group: u64, queries: u64, children: &[u64]) {
        if let Some(seen) = self.seen.get_mut(pipeline) {
            let made = seen.made.entry(group).or_default();
            made.queries += queries;
            made.children.resize(children.len(), 0);
            made.children.iter_mut().zip(children).for_each(|(sum, n)| *sum += n);
        }
    }

    /// Takes out the offered root queries of a steered pipeline, by bin.
    pub fn take_offered(&mut self, pipeline: &str) -> BTreeMap<u64, u32> {
        self.seen.get_mut(pipeline).map(|seen| std::mem::take(&mut seen.bins)).unwrap_or_default()
    }

    /// Takes out the ended queries of a steered pipeline, by group.
    pub fn take_made(&mut self, pipeline: &str) -> BTreeMap<u64, EndedQueries> {
        self.seen.get_mut(pipeline).map(|seen| std::mem::take(&mut seen.made)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ended_requests_stay_counted_after_a_report() {
        let mut tallies = Tallies::of_session(7);
        let ended = |tallies: &Tallies| {
            let v1::EndedRequests { session, in_time, missed } = tallies.ended("p");
            (session, in_time, missed)
        };
        assert_eq!(ended(&tallies), (7, 0, 0));
        *tallies.requests_of("p".into()) = RequestCounts { ok: 5, late: 1, dropped: 2, failed: 3, ..Default::default() };
        tallies.requests_of("q".into()).ok = 9;
        assert_eq!(ended(&tallies), (7, 5, 6));
        assert_eq!(tallies.take_counts().pipelines["p"].ok, 5);
        assert_eq!(ended(&tallies), (7, 5, 6), "the control plane's report takes nothing from the sums");
        tallies.requests_of("p".into()).ok = 4;
        assert_eq!(ended(&tallies), (7, 9, 6));
    }
}
