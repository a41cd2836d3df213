//! How busy was a replica since the last announcement, and was it slower than profiled?
//!
//! A replica that is slower than profiled for some announcements in a row, though it is not overloaded, is disturbed by
//! its neighbours on the device (INFaaS section 4, figure 4).

use super::replicas::Replica;
use super::{Action, Node};
use crate::wire::Load;
use apportion_serving::selector::is_disturbed;

/// Announcements in a row after which a replica counts as disturbed: one slow batch says nothing.
const DISTURBED_PERIODS: u32 = 3;

/// Since the last announcement.
#[derive(Clone, Copy, Debug, Default)]
pub struct Period {
    /// Queries of the batches that ended, offline ones included.
    pub queries: u64,
    /// Time in which batches of other than offline queries ran.
    pub online_ns: u64,
    /// Time of the batches that ended.
    pub took_ns: u64,
    /// Time that the profile gives them.
    pub expected_ns: u64,
}

impl Replica {
    /// A batch that failed, or a member of one, has ended: it says nothing of the profile.
    pub(super) fn tally_failed(&mut self, took_ns: u64) {
        self.period.online_ns += took_ns;
    }

    /// A batch has ended; it had offline queries only, or not.
    pub(super) fn tally(&mut self, queries: usize, took_ns: u64, is_offline: bool) {
        let period = &mut self.period;
        period.queries += queries as u64;
        period.took_ns += took_ns;
        period.online_ns += if is_offline { 0 } else { took_ns };
        period.expected_ns += self.group.latency_ns(queries);
    }

    /// The period is over, after so long. Whether it has begun to be disturbed, or has ended to be.
    fn roll(&mut self, period_ns: u64) -> bool {
        let period = std::mem::take(&mut self.period);
        let part = |a: u64, b: u64, unit: f64| if b > 0 { (a as f64 / b as f64 * unit) as u32 } else { 0 };
        let was_disturbed = self.load.is_disturbed;
        self.load = Load {
            queued: u32::try_from(self.online_len()).unwrap_or(u32::MAX),
            served_mqps: part(period.queries * 1_000, period_ns, 1e9),
            busy_ppm: part(period.online_ns, period_ns, 1e6),
            // Without a profile nothing is slow.
            slowness_ppm: part(period.took_ns, period.expected_ns, 1e6),
            is_disturbed: false,
        };
        let (slowness, served_qps) = (self.slowness(), f64::from(self.load.served_mqps) / 1e3);
        let load = served_qps / self.group.capacity_qps().max(f64::MIN_POSITIVE);
        self.disturbed = if is_disturbed(load, slowness) { self.disturbed + 1 } else { 0 };
        self.load.is_disturbed = self.disturbed >= DISTURBED_PERIODS;
        if self.load.is_disturbed && !was_disturbed {
            let (replica, task, variant) = (self.id, &self.task().name, &self.group.variant);
            tracing::warn!(
                replica,
                task,
                variant,
                slowness,
                load,
                "a replica is slower than profiled, though not overloaded"
            );
        }
        self.load.is_disturbed != was_disturbed
    }

    /// Time of its batches of the last period over what the profile says; 0 if none ended.
    #[must_use]
    pub fn slowness(&self) -> f64 {
        f64::from(self.load.slowness_ppm) / 1e6
    }
}

impl Node {
    /// An announcement is due: what was measured since the last one is what is said from now on.
    pub(super) fn roll_loads(&mut self) {
        let period_ns = self.now_ns.saturating_sub(self.rolled_ns);
        if period_ns == 0 {
            return;
        }
        self.rolled_ns = self.now_ns;
        let changes = self.replicas.values_mut().map(|r| r.roll(period_ns)).filter(|changed| *changed).count();
        if changes > 0 {
            self.actions.push(Action::Acknowledge);
        }
    }
}
