//! Which trace does a query belong to, and which spans of it have ended? Times are of the agent's clock. The executor
//! exports spans.

use apportion_serving::mix::{SplitMix, mix};
use std::time::Duration;

/// The trace that a request belongs to, and the parent of its next span. Only sampled requests have a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// Number of the trace: W3C Trace Context's `trace-id`.
    pub id: u128,
    /// Number of the span above: W3C Trace Context's `parent-id`.
    pub parent: u64,
}

/// One span that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceSpan {
    /// The trace, and the span above.
    pub trace: TraceContext,
    /// Its number.
    pub id: u64,
    /// When it began, in nanoseconds of the agent's clock.
    pub begun_ns: u64,
    /// When it ended, in nanoseconds of the agent's clock.
    pub ended_ns: u64,
    /// What it was.
    pub what: SpanActivity,
    /// Why it failed, if it did.
    pub error: Option<String>,
}

/// What a span was.
#[derive(Clone, Debug, PartialEq)]
pub enum SpanActivity {
    /// The way of a query to another agent and its stay there: from when it was sent until that agent had finished it.
    Hop {
        /// Name of its task.
        task: String,
        /// That agent.
        to: u64,
    },
    /// A query's visit at a replica, from its arrival.
    Visit(Visit),
}

/// A query's visit at a replica.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Visit {
    /// The pipeline.
    pub pipeline: String,
    /// Name of the task.
    pub task: String,
    /// Name of the variant.
    pub variant: String,
    /// The replica.
    pub replica: u64,
    /// The batch in which it ran; none if it was dropped before.
    pub batch: Option<Batch>,
}

/// A batch, as its members' spans describe it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Its members.
    pub size: usize,
    /// When it began, in nanoseconds of the agent's clock.
    pub begun_ns: u64,
    /// How long it ran.
    pub execution: Duration,
    /// How long its members had waited in it for its beginning, on average: more than nothing under `forming` alone.
    pub wait: Duration,
}

/// Numbers of spans: a sequence that does not repeat and is the same for the same beginning, so that a recorded agent gives
/// its spans the same numbers when it is replayed.
#[derive(Clone, Copy, Debug)]
pub struct SpanIds(SplitMix);

impl SpanIds {
    /// A sequence; sequences of different seeds have nothing in common but by chance.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(SplitMix(mix(seed)))
    }
}

impl Iterator for SpanIds {
    type Item = u64;

    /// The next number; never 0, which W3C Trace Context forbids.
    fn next(&mut self) -> Option<u64> {
        Some(self.0.bits().max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn span_numbers_are_unique_nonzero_and_reproducible() {
        let all: BTreeSet<u64> = [1, 2].into_iter().flat_map(|seed| SpanIds::new(seed).take(1_000)).collect();
        assert_eq!((all.len(), all.contains(&0)), (2_000, false));
        assert!(SpanIds::new(7).take(9).eq(SpanIds::new(7).take(9)));
    }
}
