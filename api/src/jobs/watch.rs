//! When must a running job stop?
//!
//! The lease is renewed, a slow job moves to a long place, and a cancellation is noticed. An unavailable database stops no
//! job.

use super::context::JobContext;
use super::places::{JobPlace, QUICK_MAX};
use super::retry::{attempt, retry};
use crate::store::{self, jobs::JobQueue, jobs::JobRow};
use std::time::{Duration, Instant};

/// Pause between two renewals of the lease, each with a check for a cancellation.
const RENEW_EVERY: Duration = Duration::from_millis(200);
/// How long a cancelled run may take to end. Then the job goes on without it.
pub(super) const END_MAX: Duration = Duration::from_secs(2);

/// Why a run is cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StopCause {
    /// A client cancelled the plan or the analysis.
    Cancelled,
    /// Another worker has the job by now, or it was deleted.
    Lost,
    /// The service stops.
    Stopping,
    /// The run has exceeded its limit.
    Overran,
}

/// Beats every 0.2 s until there is a cause to cancel the run. A beat renews the lease, stores the progress, and returns a
/// cause if it finds one.
pub(super) async fn watch_job<F>(
    context: &JobContext,
    job: &JobRow,
    place: &JobPlace,
    until: Instant,
    mut beat: impl FnMut() -> F,
) -> StopCause
where
    F: Future<Output = store::Result<Option<StopCause>>>,
{
    let begun = Instant::now();
    let watching = async {
        loop {
            tokio::time::sleep(RENEW_EVERY).await;
            if begun.elapsed() > QUICK_MAX {
                context.places.move_to_long(place);
            }
            if Instant::now() > until {
                return StopCause::Overran;
            }
            match attempt(context, beat()).await {
                Ok(None) => {}
                Ok(Some(cause)) => return cause,
                Err(error) => tracing::warn!(job = %job.id, %error, "a lease could not be renewed"),
            }
        }
    };
    tokio::select! {
        () = context.app.stopped() => StopCause::Stopping,
        cause = watching => cause,
    }
}

/// Puts a job back, so that the next worker begins it at once.
pub(super) async fn put_back(context: &JobContext, job: &JobRow) {
    let back = retry(context, "putting a job back", || async {
        let mut tx = context.app.pool.begin().await?;
        if store::jobs::put_back(&mut tx, job).await? {
            match job.queue {
                JobQueue::Plans => store::plans::requeue(&mut tx, job.id).await?,
                JobQueue::Analyses => store::analyses::requeue(&mut tx, job.id).await?,
            }
        }
        tx.commit().await
    });
    match back.await {
        Some(Ok(())) => tracing::info!(job = %job.id, "put back"),
        _ => tracing::error!(job = %job.id, "not put back: it is begun again when the lease has expired"),
    }
}
