//! Are the arrivals of all seconds up to now known?
//!
//! They are not if somebody has set the clock, or if nobody observed it for a while.

use std::time::{Duration, Instant};

/// After a longer pause between two observations, reports were missed.
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// The clock and the monotonic time may differ by this many seconds, because observations fall anywhere into their seconds.
const DIFFERENCE_MAX: i64 = 1;

/// The last observation, if there was one.
#[derive(Clone, Copy, Debug, Default)]
pub struct ObservedSeconds(Option<Observation>);

#[derive(Clone, Copy, Debug)]
struct Observation {
    at: Instant,
    /// The unix second up to which arrivals were complete.
    complete: i64,
}

impl ObservedSeconds {
    /// Whether all seconds from the last observation up to `complete` are known.
    pub fn observe(&mut self, at: Instant, complete: i64) -> bool {
        let Some(last) = self.0.replace(Observation { at, complete }) else { return true };
        let passed = at.saturating_duration_since(last.at);
        let difference = complete.saturating_sub(last.complete).saturating_sub(passed.as_secs() as i64);
        passed <= PAUSE_MAX && (-DIFFERENCE_MAX..=DIFFERENCE_MAX).contains(&difference)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_known_unless_a_clock_jumps() {
        let begin = Instant::now();
        // (milliseconds of this process, seconds of the database, whether they are known)
        let observations = [
            (0, 100, true),
            (200, 100, true),
            (400, 101, true),
            (1_400, 102, true),
            (1_600, 112, false),
            (1_800, 112, true),
            (2_000, 13, false),
            (2_200, 13, true),
            (7_200, 18, false),
            (7_400, 18, true),
            (9_300, 20, true),
        ];
        let mut seconds = ObservedSeconds::default();
        for (ms, complete, is_known) in observations {
            assert_eq!(seconds.observe(begin + Duration::from_millis(ms), complete), is_known, "{ms} ms");
        }
    }
}
