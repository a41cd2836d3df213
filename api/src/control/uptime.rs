//! Pure: when reports came and how long their agent had run when it made them, in; how late they came, out.
//!
//! A report that waited (this process was stopped, its machine was busy) speaks of the time when it was made. The two clocks
//! have no common zero, so lateness is measured against the quickest report of the last minute.

use std::time::{Duration, Instant};

/// The quickest report of a period this long, and of the one before, is the measure: clocks drift.
const PERIOD: Duration = Duration::from_secs(30);
/// Later than this no report is believed to be.
const LATE_MS_MAX: i64 = 600_000;

/// What is known of one stream.
#[derive(Clone, Copy, Debug, Default)]
pub struct Uptime {
    /// Where both clocks stood at the first report.
    zero: Option<(Instant, u64)>,
    /// Since when the period runs, and the least lead of our clock in it, in milliseconds.
    now: Option<(Instant, i64)>,
    before: Option<i64>,
}

impl Uptime {
    /// How late a report is that came at this moment, from an agent that had run for so many milliseconds.
    pub fn late_by(&mut self, at: Instant, uptime_ms: u64) -> Duration {
        let (begin, first_ms) = *self.zero.get_or_insert((at, uptime_ms));
        let ours_ms = at.saturating_duration_since(begin).as_millis() as i64;
        let lead_ms = ours_ms.saturating_sub(uptime_ms.saturating_sub(first_ms).min(i64::MAX as u64) as i64);
        self.now = match self.now {
            Some((since, least)) if at.saturating_duration_since(since) < PERIOD => Some((since, least.min(lead_ms))),
            earlier => {
                self.before = earlier.map(|(_, least)| least);
                Some((at, lead_ms))
            }
        };
        let least = self.now.map_or(lead_ms, |(_, least)| least);
        let least = self.before.map_or(least, |before| before.min(least));
        Duration::from_millis(lead_ms.saturating_sub(least).clamp(0, LATE_MS_MAX) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn reports_that_waited_are_as_late_as_they_waited() {
        let (begin, mut uptime) = (Instant::now(), Uptime::default());
        // (came at, uptime, late)
        let reports = [
            (0, 70_020, 0),
            (1_000, 71_020, 0),
            (2_005, 72_020, 5),
            // This process was stopped from 3 s to 8 s; what had come meanwhile is read at once.
            (8_000, 73_020, 5_000),
            (8_000, 74_020, 4_000),
            (8_001, 77_020, 1_001),
            (8_003, 78_020, 3),
            (9_000, 79_021, 0),
        ];
        for (came, agent, late) in reports {
            assert_eq!(uptime.late_by(begin + ms(came), agent), ms(late), "{came}");
        }
    }

    #[test]
    fn a_clock_that_drifts_makes_no_lateness() {
        let (begin, mut uptime) = (Instant::now(), Uptime::default());
        for second in 0..86_400_u64 {
            // 100 ms a day slower, which is 1.2 parts in a million.
            let agent = second * 1_000 - second / 864;
            let late = uptime.late_by(begin + ms(second * 1_000), agent);
            assert!(late <= ms(2), "{late:?} after {second} s");
        }
    }

    #[test]
    fn an_uptime_that_jumps_back_harms_nobody() {
        let (begin, mut uptime) = (Instant::now(), Uptime::default());
        assert_eq!(uptime.late_by(begin, u64::MAX), ms(0));
        assert_eq!(uptime.late_by(begin + ms(10), 0), ms(10));
        assert_eq!(uptime.late_by(begin + ms(20), u64::MAX), ms(20));
        let mut other = Uptime::default();
        assert_eq!(other.late_by(begin, 0), ms(0));
        assert_eq!(other.late_by(begin, u64::MAX), ms(0));
        assert_eq!(other.late_by(begin + ms(10), 10), ms(LATE_MS_MAX as u64));
    }
}
