//! What an agent counts between two reports.

use std::collections::BTreeMap;

/// Width of a bin of arrivals in nanoseconds.
pub const BIN_NS: u64 = 10_000_000;

/// Since the last report.
#[derive(Debug, Default)]
pub struct Counts {
    /// By pipeline.
    pub pipelines: BTreeMap<String, Requests>,
    /// By pipeline and group.
    pub groups: BTreeMap<(String, u64), Batches>,
}

/// Requests at this agent's gateway.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Requests {
    /// Offered root queries by bin of the agent's clock.
    pub bins: BTreeMap<u64, u32>,
    /// Answered in time.
    pub ok: u64,
    /// Answered late.
    pub late: u64,
    /// Shed.
    pub dropped: u64,
    /// Failed.
    pub failed: u64,
}

/// Batches of a group's replicas here.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batches {
    /// Queries that were run.
    pub queries: u64,
    /// Batches.
    pub batches: u64,
    /// Time of the batches, in nanoseconds.
    pub busy_ns: u64,
    /// Time that their queries waited, in nanoseconds.
    pub waited_ns: u64,
    /// Queries sent on, by task.
    pub children: BTreeMap<String, u64>,
}
