//! The events of the slow simulator, and the words for them.

#[derive(Clone, Debug)]
pub enum EventKind {
    BatchEnds { replica: usize },
    Arrives { request: usize },
    Joins { query: usize },
    GivesUp { request: usize },
    Nothing,
}

/// A future event. Events of one moment happen in the order in which they were made.
#[derive(Clone, Debug)]
pub struct SlowEvent {
    pub at: u64,
    pub order: u64,
    pub what: EventKind,
}

/// A query that was given up and has not been accounted for.
#[derive(Clone, Copy, Debug)]
pub struct GivenUp {
    pub query: usize,
    /// The task where it was given up.
    pub at: usize,
    pub why: &'static str,
}

/// Whether a query has overrun its maker's part of the SLO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    OnTime,
    Behind,
}

/// Which batch is filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filling {
    /// A batch that starts now, with the queries that there are.
    ThisBatch,
    /// The next batch of a busy replica: more queries may enter before it starts.
    NextBatch,
}

/// Where a query is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum State {
    /// Made, and held or on its way.
    Away,
    Queued,
    Forming,
    Running,
    /// Given up, and not yet accounted for.
    GivenUp,
    Gone,
}
