//! Trying again while the database is away.

use super::counts;
use super::worker::Crew;
use crate::store;
use std::time::Duration;

/// The first pause; each further one is twice as long.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// A try that takes longer has failed: whoever should answer may be gone for good.
const TRY_MAX: Duration = Duration::from_secs(10);
/// The same while the service stops.
const TRY_STOPPING_MAX: Duration = Duration::from_secs(2);

/// Pauses that grow.
pub(super) struct Pauses(Duration);

impl Default for Pauses {
    fn default() -> Self {
        Self(PAUSE)
    }
}

impl Pauses {
    /// The next pause.
    pub(super) fn next(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (2 * pause).min(PAUSE_MAX);
        pause
    }
}

/// One try, which ends in time; a failure is noted.
pub(super) async fn attempt<T>(crew: &Crew, work: impl Future<Output = store::Result<T>>) -> store::Result<T> {
    let limit = if crew.app.is_stopping() { TRY_STOPPING_MAX } else { TRY_MAX };
    let done = tokio::time::timeout(limit, work).await.unwrap_or(Err(store::Error::PoolTimedOut));
    if done.as_ref().err().is_some_and(store::is_away) {
        crew.disturbed();
    }
    done
}

/// Does it until the database has taken it, with growing pauses. `None`: the service stops and the database is still away.
///
/// # Errors
/// What would be refused again.
pub(super) async fn insist<T, F>(crew: &Crew, what: &str, mut work: impl FnMut() -> F) -> Option<store::Result<T>>
where
    F: Future<Output = store::Result<T>>,
{
    let mut pauses = Pauses::default();
    loop {
        let was_stopping = crew.app.is_stopping();
        match attempt(crew, work()).await {
            Err(error) if store::is_away(&error) => {
                if was_stopping {
                    return None;
                }
                counts::RETRIES.add();
                tracing::warn!(%error, what, "the database is away; tried again");
            }
            done => return Some(done),
        }
        tokio::select! {
            () = crew.app.stopped() => {}
            () = tokio::time::sleep(pauses.next()) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound() {
        let mut pauses = Pauses::default();
        let seconds: Vec<f64> = (0..8).map(|_| pauses.next().as_secs_f64()).collect();
        assert_eq!(seconds, [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]);
    }
}
