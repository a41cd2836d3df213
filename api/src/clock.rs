//! The database's clock, as this process knows it: what the database said last, and how much monotonic time has passed since.
//!
//! Processes on several machines share rows, so they need one clock. This one does not move when somebody sets the clock of a
//! process' machine.

use crate::store::Time;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// An answer that took longer than this says too little of when it was given.
const ROUND_TRIP_MAX: Duration = Duration::from_secs(1);
/// What two answers may differ by without any meaning, beyond the time that they took.
const TOLERANCE: Duration = Duration::from_millis(2);

/// A moment of both clocks.
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

/// The anchor after the database said `time` to a question asked and answered at these moments. One that agrees with the
/// answer stays, so that time does not tremble with the network.
fn corrected(current: Option<Anchor>, asked: Instant, answered: Instant, time: Time) -> Anchor {
    let took = answered.saturating_duration_since(asked);
    let said = Anchor { at: asked + took / 2, time };
    let Some(current) = current else { return said };
    let differ = (current.read(said.at) - time).abs().to_std().unwrap_or(Duration::MAX);
    if took > ROUND_TRIP_MAX || differ <= took / 2 + TOLERANCE { current } else { said }
}

static ANCHOR: Mutex<Option<Anchor>> = Mutex::new(None);

/// The database said `time` to a question asked and answered at these moments.
pub(crate) fn heard(asked: Instant, answered: Instant, time: Time) {
    let mut anchor = ANCHOR.lock().unwrap_or_else(PoisonError::into_inner);
    *anchor = Some(corrected(*anchor, asked, answered, time));
}

/// Now by the database's clock; before it was heard of, by this machine's.
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
    fn the_clock_follows_the_database_and_not_its_answers_jitter() {
        let (begin, noon) = (Instant::now(), chrono::DateTime::UNIX_EPOCH);
        let first = corrected(None, begin, begin + ms(2), noon);
        assert_eq!(first.read(begin + ms(1_001)), noon + ms(1_000));
        // (asked after, answer took, what it said, whether the clock moves)
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
