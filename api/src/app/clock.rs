//! What time is it by the database's clock?
//!
//! Processes on several machines share rows, so they need one clock. This one is the last answer of the database plus the
//! monotonic time since then. It does not move when somebody sets the clock of one machine.

use crate::store::Time;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A slower answer is ignored, because the moment at which the database gave it is unknown.
const ROUND_TRIP_MAX: Duration = Duration::from_secs(1);
/// Two answers that differ by less than this, plus half of the round trip, agree.
const TOLERANCE: Duration = Duration::from_millis(2);

/// One moment, by both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Anchor {
    at: Instant,
    time: Time,
}

impl Anchor {
    fn read(&self, at: Instant) -> Time {
        match at.checked_duration_since(self.at) {
            Some(passed) => self.time + passed,
            None => self.time - self.at.saturating_duration_since(at),
        }
    }
}

/// The anchor after one answer `time` of the database. An anchor that agrees with the answer stays, so that the network's
/// jitter does not move the clock.
fn corrected(current: Option<Anchor>, asked: Instant, answered: Instant, time: Time) -> Anchor {
    let took = answered.saturating_duration_since(asked);
    let said = Anchor { at: asked + took / 2, time };
    let Some(current) = current else { return said };
    let differ = (current.read(said.at) - time).abs().to_std().unwrap_or(Duration::MAX);
    if took > ROUND_TRIP_MAX || differ <= took / 2 + TOLERANCE { current } else { said }
}

static ANCHOR: Mutex<Option<Anchor>> = Mutex::new(None);

/// Takes one answer of the database into account: it said `time` between the two moments.
pub(crate) fn correct(asked: Instant, answered: Instant, time: Time) {
    let mut anchor = ANCHOR.lock().unwrap_or_else(PoisonError::into_inner);
    *anchor = Some(corrected(*anchor, asked, answered, time));
}

/// Now, by the database's clock; by this machine's clock before the first answer.
pub(crate) fn now() -> Time {
    let anchor = *ANCHOR.lock().unwrap_or_else(PoisonError::into_inner);
    anchor.map_or_else(chrono::Utc::now, |anchor| anchor.read(Instant::now()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_clock_follows_the_database_without_its_jitter() {
        let (begin, noon) = (Instant::now(), chrono::DateTime::UNIX_EPOCH);
        let first = corrected(None, begin, begin + ms(2), noon);
        assert_eq!(first.read(begin + ms(1_001)), noon + ms(1_000));
        // (asked after ms, round trip in ms, answer, whether the clock moves)
        let cases = [
            (1_000, 10, noon + ms(1_006), false, "within what the answer took"),
            (1_000, 10, noon + ms(11_000), true, "somebody has set the database's clock forward"),
            (20_000, 10, noon + ms(12_000), true, "or back"),
            (1_000, 5_000, noon + ms(1_000), false, "a stalled database says nothing of now"),
        ];
        for (asked, took, said, moves, why) in cases {
            let after = corrected(Some(first), begin + ms(asked), begin + ms(asked + took), said);
            assert_eq!(after != first, moves, "{why}");
        }
    }

    #[test]
    fn two_processes_of_one_database_read_one_clock() {
        let (begin, noon) = (Instant::now(), chrono::DateTime::UNIX_EPOCH);
        let one = corrected(None, begin, begin + ms(4), noon);
        let other = corrected(None, begin + ms(300), begin + ms(310), noon + ms(303));
        for after in [0, 1_000, 86_400_000] {
            let apart = (one.read(begin + ms(after)) - other.read(begin + ms(after))).abs();
            assert!(apart < chrono::Duration::milliseconds(10), "{apart}");
        }
    }
}
