//! How did the requests at this gateway end, by pipeline? Statistics and metrics show it.

use super::refusal::RefusalCause;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Upper bounds of the buckets of the requests' durations, in seconds.
pub const BUCKETS_S: [f64; 13] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// How many, and their time together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DurationSum {
    /// How many.
    pub count: u64,
    /// In nanoseconds.
    pub ns: u64,
}

impl DurationSum {
    fn add(&mut self, took: Duration) {
        self.count += 1;
        self.ns = self.ns.saturating_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }
}

/// What became of one pipeline's requests.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LedgerEntry {
    /// Rows of the requests that were served.
    pub rows: u64,
    /// Requests that were served, from arrival to answer.
    pub served: DurationSum,
    /// Requests that were begun and not served.
    pub failed: DurationSum,
    /// When the last one ended, in milliseconds of the Unix epoch.
    pub last_ms: u64,
    /// Served requests by duration: one count for each of [`BUCKETS_S`], and one for longer requests.
    pub durations: [u64; BUCKETS_S.len() + 1],
    /// Refused requests, by cause; requests that were never begun count too.
    pub refused: BTreeMap<RefusalCause, u64>,
}

/// How a request that was begun has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestEnding {
    /// It was served, with this number of rows.
    Served {
        /// Rows of the request.
        rows: usize,
    },
    /// It has an error for an answer.
    Failed,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Ledger(Mutex<BTreeMap<String, LedgerEntry>>);

impl Ledger {
    fn change(&self, pipeline: &str, change: impl FnOnce(&mut LedgerEntry)) {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = entries.get_mut(pipeline) {
            return change(entry);
        }
        change(entries.entry(pipeline.to_string()).or_default());
    }

    /// A request that was begun has ended.
    pub fn ended(&self, pipeline: &str, ending: RequestEnding, took: Duration) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.change(pipeline, |entry| {
            entry.last_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
            match ending {
                RequestEnding::Served { rows } => {
                    entry.rows += rows as u64;
                    entry.served.add(took);
                    let seconds = took.as_secs_f64();
                    entry.durations[BUCKETS_S.partition_point(|bound| *bound < seconds)] += 1;
                }
                RequestEnding::Failed => entry.failed.add(took),
            }
        });
    }

    /// A request has no answer.
    pub fn refused(&self, pipeline: &str, cause: RefusalCause) {
        self.change(pipeline, |entry| *entry.refused.entry(cause).or_default() += 1);
    }

    /// What became of the requests so far.
    #[must_use]
    pub fn entries(&self) -> BTreeMap<String, LedgerEntry> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_once() {
        let ledger = Ledger::default();
        ledger.ended("p", RequestEnding::Served { rows: 3 }, Duration::from_millis(1));
        ledger.ended("p", RequestEnding::Served { rows: 2 }, Duration::from_secs(60));
        ledger.ended("p", RequestEnding::Failed, Duration::from_secs(1));
        ledger.refused("p", RefusalCause::Late);
        let entries = ledger.entries();
        let entry = &entries["p"];
        assert_eq!((entry.rows, entry.served.count, entry.failed), (5, 2, DurationSum { count: 1, ns: 1_000_000_000 }));
        assert_eq!((entry.durations[0], entry.durations[BUCKETS_S.len()]), (1, 1));
        assert_eq!(entry.refused, [(RefusalCause::Late, 1)].into());
        assert_eq!(entries.len(), 1);
    }
}
