//! How long did replicas take to become ready, and which of these times are not reported yet?

use apportion_protocol::v1;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// Most times that wait for the next report. Beyond them the oldest are forgotten.
pub(super) const LOAD_TIMES_MAX: usize = 256;

/// A replica that has its file and starts.
#[derive(Debug)]
struct Starting {
    download: Duration,
    begun: Instant,
}

/// How long a replica took to become ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LoadDuration {
    /// Until its file was here.
    pub(super) download: Duration,
    /// From then until it was ready.
    pub(super) start: Duration,
}

/// The replicas that start, by the numbers of their loadings, and the times that wait for a report.
#[derive(Debug, Default)]
pub(super) struct LoadTimes {
    /// The number of the last loading.
    last: u64,
    starting: BTreeMap<u64, Starting>,
    unreported: VecDeque<v1::LoadTime>,
}

impl LoadTimes {
    /// The number of another loading.
    pub(super) fn next_number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// A replica starts; its file was here after `download`.
    pub(super) fn begin(&mut self, loading: u64, download: Duration, begun: Instant) {
        self.starting.insert(loading, Starting { download, begun });
    }

    /// A replica is ready or has failed; none if it was so before.
    pub(super) fn end(&mut self, loading: u64, now: Instant) -> Option<LoadDuration> {
        let Starting { download, begun } = self.starting.remove(&loading)?;
        Some(LoadDuration { download, start: now.saturating_duration_since(begun) })
    }

    /// A replica will not start.
    pub(super) fn forget(&mut self, loading: u64) {
        self.starting.remove(&loading);
    }

    /// Forgets the loadings that are given up.
    pub(super) fn keep(&mut self, is_kept: impl Fn(u64) -> bool) {
        self.starting.retain(|loading, _| is_kept(*loading));
    }

    /// Adds a time for the next report.
    pub(super) fn add(&mut self, time: v1::LoadTime) {
        if self.unreported.len() == LOAD_TIMES_MAX {
            self.unreported.pop_front();
        }
        self.unreported.push_back(time);
    }

    /// Takes the times that are not reported yet.
    pub(super) fn take(&mut self) -> Vec<v1::LoadTime> {
        std::mem::take(&mut self.unreported).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_has_a_download_and_a_start() {
        let (mut times, begun, second) = (LoadTimes::default(), Instant::now(), Duration::from_secs(1));
        times.begin(1, 3 * second, begun);
        times.begin(2, second, begun);
        times.begin(3, second, begun);
        assert_eq!(times.end(1, begun + 2 * second), Some(LoadDuration { download: 3 * second, start: 2 * second }));
        assert_eq!(times.end(1, begun + 9 * second), None, "a replica becomes ready once");
        times.forget(2);
        times.keep(|loading| loading != 3);
        assert_eq!((times.end(2, begun), times.end(3, begun)), (None, None), "both were given up");
    }

    #[test]
    fn the_oldest_unreported_times_are_forgotten() {
        let mut times = LoadTimes::default();
        let of = |at: usize| v1::LoadTime { start_ms: at as f64, ..Default::default() };
        (0..LOAD_TIMES_MAX + 2).for_each(|at| times.add(of(at)));
        let taken = times.take();
        assert_eq!((taken.len(), taken[0].start_ms), (LOAD_TIMES_MAX, 2.0));
        assert_eq!(times.take(), []);
    }
}
