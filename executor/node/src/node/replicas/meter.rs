//! How busy was a replica since the last announcement, and was it slower than profiled?
//!
//! Example: batches that take 20 ms in the profile took 50 ms in three periods in a row, though the replica was not
//! overloaded. Then its neighbours on the device disturb it (INFaaS section 4, figure 4).

use crate::layout::ProfiledTime;
use crate::wire::ReplicaLoad;
use apportion_serving::selector::is_disturbed;

/// Announcements in a row after which a replica counts as disturbed: one slow batch says nothing.
const DISTURBED_PERIODS: u32 = 3;

/// Which queries a batch had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchKind {
    /// Offline queries only.
    Offline,
    /// Other queries too.
    Online,
}

/// The batches since the last announcement.
#[derive(Clone, Copy, Debug, Default)]
struct Period {
    /// Queries of the batches that ended, offline ones included.
    queries: u64,
    /// Time in which batches of other than offline queries ran.
    online_ns: u64,
    /// Time of the batches that ended.
    took_ns: u64,
    /// Time that the profile gives them.
    expected: ProfiledTime,
}

/// A batch that has ended.
#[derive(Clone, Copy, Debug)]
pub struct MeasuredBatch {
    /// Its queries.
    pub queries: u64,
    /// Its time, in nanoseconds.
    pub took_ns: u64,
    /// Its time in the profile.
    pub expected: ProfiledTime,
    /// Which queries it had.
    pub kind: BatchKind,
}

/// What a period says of its end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Disturbance {
    /// The replica is disturbed from now on.
    Began {
        /// Its load, as a part of its capacity.
        load: f64,
    },
    /// It is disturbed no longer.
    Ended,
    /// Nothing has changed.
    Unchanged,
}

/// Measures the load of one replica.
#[derive(Debug, Default)]
pub struct LoadMeter {
    period: Period,
    /// The load of the last period.
    load: ReplicaLoad,
    /// For how many announcements in a row it was slower than profiled without being overloaded.
    slow_periods: u32,
}

impl LoadMeter {
    /// The load as it was announced last.
    pub fn load(&self) -> ReplicaLoad {
        self.load
    }

    /// Time of the batches of the last period over their time in the profile; 0 if none ended. On a share of a device it is
    /// 1 for every time between that alone and that beside neighbours.
    pub fn slowness(&self) -> f64 {
        f64::from(self.load.slowness_ppm) / 1e6
    }

    /// Whether the last period was slower than profiled without being overloaded.
    pub fn was_slow(&self) -> bool {
        self.slow_periods > 0
    }

    /// A batch that failed, or a member of one, has ended: it says nothing of the profile.
    pub fn note_failed(&mut self, took_ns: u64) {
        self.period.online_ns += took_ns;
    }

    /// A batch has ended.
    pub fn note_batch(&mut self, batch: MeasuredBatch) {
        let period = &mut self.period;
        period.queries += batch.queries;
        period.took_ns += batch.took_ns;
        period.online_ns += if batch.kind == BatchKind::Offline { 0 } else { batch.took_ns };
        period.expected += batch.expected;
    }

    /// The period of this length is over. `queued` queries wait or run, and full batches would serve `capacity_qps`.
    pub fn end_period(&mut self, period_ns: u64, queued: usize, capacity_qps: f64) -> Disturbance {
        let period = std::mem::take(&mut self.period);
        let part = |a: u64, b: u64, unit: f64| if b > 0 { (a as f64 / b as f64 * unit) as u32 } else { 0 };
        let was_disturbed = self.load.is_disturbed;
        self.load = ReplicaLoad {
            queued: u32::try_from(queued).unwrap_or(u32::MAX),
            served_mqps: part(period.queries * 1_000, period_ns, 1e9),
            busy_ppm: part(period.online_ns, period_ns, 1e6),
            // Without a profile nothing is slow.
            slowness_ppm: part(period.took_ns, period.expected.compared_ns(period.took_ns), 1e6),
            is_disturbed: false,
        };
        let served_qps = f64::from(self.load.served_mqps) / 1e3;
        let load = served_qps / capacity_qps.max(f64::MIN_POSITIVE);
        self.slow_periods = if is_disturbed(load, self.slowness()) { self.slow_periods + 1 } else { 0 };
        self.load.is_disturbed = self.slow_periods >= DISTURBED_PERIODS;
        match (was_disturbed, self.load.is_disturbed) {
            (false, true) => Disturbance::Began { load },
            (true, false) => Disturbance::Ended,
            _ => Disturbance::Unchanged,
        }
    }
}
