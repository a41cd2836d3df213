//! How late did an agent's report arrive?
//!
//! A report waits while this process is suspended or its machine is busy. Its figures belong to the moment when it was
//! made. The clocks of agent and service have no common zero, so the delay is measured against the fastest report of the
//! last minute.

use std::time::{Duration, Instant};

/// The fastest report of this period, and of the one before it, has delay zero. Periods are short because clocks drift.
const PERIOD: Duration = Duration::from_secs(30);
/// Longest delay in milliseconds; longer ones are cut to it.
const DELAY_MS_MAX: i64 = 600_000;

/// The delays of one stream.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReportDelay {
    /// The clocks at the first report.
    zero: Option<Clocks>,
    current: Option<Period>,
    /// The least lead of the period before, in milliseconds.
    before: Option<i64>,
}

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug)]
struct Clocks {
    here: Instant,
    /// The agent's uptime in milliseconds.
    uptime_ms: u64,
}

/// A period in which leads are compared.
#[derive(Clone, Copy, Debug)]
struct Period {
    begin: Instant,
    /// The least lead of our clock in it, in milliseconds.
    least_ms: i64,
}

impl ReportDelay {
    /// The delay of a report that arrived `at` this moment, made when its agent had run for `uptime_ms`.
    pub fn of_report(&mut self, at: Instant, uptime_ms: u64) -> Duration {
        let zero = *self.zero.get_or_insert(Clocks { here: at, uptime_ms });
        let ours_ms = at.saturating_duration_since(zero.here).as_millis() as i64;
        let theirs_ms = uptime_ms.saturating_sub(zero.uptime_ms).min(i64::MAX as u64) as i64;
        let lead_ms = ours_ms.saturating_sub(theirs_ms);
        let current = match self.current {
            Some(Period { begin, least_ms }) if at.saturating_duration_since(begin) < PERIOD => {
                Period { begin, least_ms: least_ms.min(lead_ms) }
            }
            earlier => {
                self.before = earlier.map(|period| period.least_ms);
                Period { begin: at, least_ms: lead_ms }
            }
        };
        self.current = Some(current);
        let least = self.before.map_or(current.least_ms, |before| before.min(current.least_ms));
        Duration::from_millis(lead_ms.saturating_sub(least).clamp(0, DELAY_MS_MAX) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_report_that_waited_has_that_delay() {
        let (begin, mut uptime) = (Instant::now(), ReportDelay::default());
        // (arrived at, uptime, delay)
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
            assert_eq!(uptime.of_report(begin + ms(came), agent), ms(late), "{came}");
        }
    }

    #[test]
    fn a_drifting_clock_makes_no_delay() {
        let (begin, mut uptime) = (Instant::now(), ReportDelay::default());
        for second in 0..86_400_u64 {
            // 100 ms a day slower, which is 1.2 parts in a million.
            let agent = second * 1_000 - second / 864;
            let late = uptime.of_report(begin + ms(second * 1_000), agent);
            assert!(late <= ms(2), "{late:?} after {second} s");
        }
    }

    #[test]
    fn an_uptime_that_jumps_back_is_harmless() {
        let (begin, mut uptime) = (Instant::now(), ReportDelay::default());
        assert_eq!(uptime.of_report(begin, u64::MAX), ms(0));
        assert_eq!(uptime.of_report(begin + ms(10), 0), ms(10));
        assert_eq!(uptime.of_report(begin + ms(20), u64::MAX), ms(20));
        let mut other = ReportDelay::default();
        assert_eq!(other.of_report(begin, 0), ms(0));
        assert_eq!(other.of_report(begin, u64::MAX), ms(0));
        assert_eq!(other.of_report(begin + ms(10), 10), ms(DELAY_MS_MAX as u64));
    }
}
