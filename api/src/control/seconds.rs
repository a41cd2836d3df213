//! Pure: whether the seconds that are complete by now have gone by one after the other. They have not if somebody has set the
//! clock, or if nobody looked for a while.

use std::time::{Duration, Instant};

/// A look this late has missed reports.
const LOOK_MAX: Duration = Duration::from_secs(2);
/// Seconds that the clock may differ from what has passed: two looks fall differently into seconds.
const DIFFER_MAX: i64 = 1;

/// The last look.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seconds(Option<(Instant, i64)>);

impl Seconds {
    /// Whether the seconds up to `complete` are known, given the look before.
    pub fn look(&mut self, at: Instant, complete: i64) -> bool {
        let Some((before, then)) = self.0.replace((at, complete)) else { return true };
        let passed = at.saturating_duration_since(before);
        let differ = complete.saturating_sub(then).saturating_sub(passed.as_secs() as i64);
        passed <= LOOK_MAX && (-DIFFER_MAX..=DIFFER_MAX).contains(&differ)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_known_unless_the_clock_or_the_looks_jump() {
        let begin = Instant::now();
        // (milliseconds of this process, seconds of the database, whether they are known)
        let looks = [
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
        let mut seconds = Seconds::default();
        for (ms, complete, is_known) in looks {
            assert_eq!(seconds.look(begin + Duration::from_millis(ms), complete), is_known, "{ms} ms");
        }
    }
}
