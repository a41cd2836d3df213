//! How often does the log warn of the same thing? Strangers could fill the disk with warnings otherwise.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Shortest time between two warnings. The metrics count all refusals.
const WARN_EVERY: Duration = Duration::from_secs(1);

/// When the last warning was written.
#[derive(Debug, Default)]
pub(super) struct WarningPace(Mutex<Option<Instant>>);

impl WarningPace {
    /// Whether a warning may be written now. If so, it counts as written.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = last.is_none_or(|last| now.saturating_duration_since(last) >= WARN_EVERY);
        if is_due {
            *last = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_keep_their_distance() {
        let (pace, now) = (WarningPace::default(), Instant::now());
        assert!(pace.is_due(now) && !pace.is_due(now) && !pace.is_due(now + WARN_EVERY / 2));
        assert!(pace.is_due(now + WARN_EVERY) && !pace.is_due(now + WARN_EVERY));
    }
}
