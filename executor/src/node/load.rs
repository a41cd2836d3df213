//! What a replica did between two announcements: how much it served, and how long its batches took beside the profile.

use super::Node;
use super::replicas::Replica;
use crate::wire::Load;

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
    /// A batch has ended; it had offline queries only, or not.
    pub(super) fn tally(&mut self, queries: usize, took_ns: u64, is_offline: bool) {
        let period = &mut self.period;
        period.queries += queries as u64;
        period.took_ns += took_ns;
        period.online_ns += if is_offline { 0 } else { took_ns };
        period.expected_ns += self.group.latency_ns(queries);
    }

    /// The period is over, after so long.
    fn roll(&mut self, period_ns: u64) {
        let period = std::mem::take(&mut self.period);
        let part = |a: u64, b: u64, unit: f64| if b > 0 { (a as f64 / b as f64 * unit) as u32 } else { 0 };
        self.load = Load {
            queued: u32::try_from(self.len()).unwrap_or(u32::MAX),
            served_mqps: part(period.queries * 1_000, period_ns, 1e9),
            busy_ppm: part(period.online_ns, period_ns, 1e6),
            // Without a profile nothing is slow.
            slowness_ppm: part(period.took_ns, period.expected_ns, 1e6),
        };
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
        self.replicas.values_mut().for_each(|r| r.roll(period_ns));
    }
}
