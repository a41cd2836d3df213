//! How are database operations tried again while the database is unavailable?

use super::context::JobContext;
use crate::app::counts;
use crate::store;
use std::time::{Duration, Instant};

/// The first pause. Each further one is twice as long.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// A longer try has failed: the connection may be gone for good.
const TRY_MAX: Duration = Duration::from_secs(10);
/// All tries together while the service stops. With the wait for a planner before them, they fit into the time that the
/// service gives a part to end.
const STOPPING_MAX: Duration = Duration::from_secs(5);

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

/// One try with a time limit. An outage of the database is noted.
pub(super) async fn attempt<T>(context: &JobContext, work: impl Future<Output = store::Result<T>>) -> store::Result<T> {
    let limit = if context.app.is_stopping() { STOPPING_MAX } else { TRY_MAX };
    attempt_within(context, limit, work).await
}

async fn attempt_within<T>(
    context: &JobContext,
    limit: Duration,
    work: impl Future<Output = store::Result<T>>,
) -> store::Result<T> {
    let done = tokio::time::timeout(limit, work).await.unwrap_or(Err(store::Error::PoolTimedOut));
    if done.as_ref().err().is_some_and(store::is_unavailable) {
        context.note_outage();
    }
    done
}

/// Tries until the database has answered, with growing pauses. Once the service stops, tries go on for [`STOPPING_MAX`].
/// `None`: the database was unavailable until then.
///
/// # Errors
/// The errors that another try would return, too.
pub(super) async fn retry<T, F>(context: &JobContext, what: &str, mut work: impl FnMut() -> F) -> Option<store::Result<T>>
where
    F: Future<Output = store::Result<T>>,
{
    let mut pauses = Pauses::default();
    let mut last_try_at = None;
    loop {
        if context.app.is_stopping() && last_try_at.is_none() {
            (pauses, last_try_at) = (Pauses::default(), Some(Instant::now() + STOPPING_MAX));
        }
        let limit = last_try_at.map_or(TRY_MAX, |at| at.saturating_duration_since(Instant::now()));
        let error = match attempt_within(context, limit, work()).await {
            Err(error) if store::is_unavailable(&error) => error,
            done => return Some(done),
        };
        let pause = pauses.next();
        if last_try_at.is_some_and(|at| Instant::now() + pause >= at) {
            tracing::error!(%error, what, "the database is unavailable; no more tries, because the service stops");
            return None;
        }
        counts::RETRIES.increment();
        tracing::warn!(%error, what, "the database is unavailable; trying again");
        match last_try_at {
            Some(_) => tokio::time::sleep(pause).await,
            None => tokio::select! {
                () = context.app.stopped() => {}
                () = tokio::time::sleep(pause) => {}
            },
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
