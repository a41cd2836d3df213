//! What takes the time of a run?

use apportion_domain::SecondsOf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A part of a run that is measured. The rest of a run is replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunPart {
    Search,
    Shortfalls,
    Explanation,
    Ladder,
}

/// The time of each part of one run. The parts do not overlap.
#[derive(Debug, Default)]
pub struct Stopwatch {
    search_ns: AtomicU64,
    shortfalls_ns: AtomicU64,
    explanation_ns: AtomicU64,
    ladder_ns: AtomicU64,
}

impl Stopwatch {
    /// Adds the time that something took.
    pub(crate) fn add(&self, part: RunPart, took: Duration) {
        let counter = match part {
            RunPart::Search => &self.search_ns,
            RunPart::Shortfalls => &self.shortfalls_ns,
            RunPart::Explanation => &self.explanation_ns,
            RunPart::Ladder => &self.ladder_ns,
        };
        counter.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
    }

    /// The parts of a run that took `total`.
    pub(crate) fn seconds_of(&self, total: Duration) -> SecondsOf {
        let read = |counter: &AtomicU64| Duration::from_nanos(counter.load(Ordering::Relaxed));
        let (search, shortfalls) = (read(&self.search_ns), read(&self.shortfalls_ns));
        let (explanation, ladder) = (read(&self.explanation_ns), read(&self.ladder_ns));
        SecondsOf {
            search: search.as_secs_f64(),
            replay: total.saturating_sub(search + shortfalls + explanation + ladder).as_secs_f64(),
            shortfalls: shortfalls.as_secs_f64(),
            explanation: explanation.as_secs_f64(),
            ladder: ladder.as_secs_f64(),
        }
    }
}
