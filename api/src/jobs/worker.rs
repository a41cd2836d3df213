//! How does a process claim jobs? Any number of processes may do so on one database.

use super::context::{JobContext, LEASE};
use super::execution::execute;
use super::places::FreePlaces;
use super::retry::{Pauses, attempt};
use crate::app::counts;
use crate::app::parts::ServicePart;
use crate::app::{App, now};
use crate::store::{self, jobs::JobFilter, jobs::JobRow, plans::FinishedPlan, plans::PlanRow};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{JoinError, JoinSet};

/// After this many dead workers, a job counts as failed.
pub const DEATHS_MAX: i32 = 3;
/// Pause between two searches for jobs that other processes enqueued.
const POLL_EVERY: Duration = Duration::from_millis(500);

/// The result of a claim.
enum Claimed {
    /// A plan to solve.
    Plan(JobRow, Box<PlanRow>),
    /// A job that was over already.
    Over,
    /// There was no job.
    Nothing,
}

/// Works until the service stops. Then every job that has not ended is put back.
pub async fn run(app: App) {
    let context = Arc::new(JobContext::new(app));
    let mut jobs = JoinSet::new();
    let mut pauses = Pauses::default();
    while !context.app.is_stopping() {
        context.app.parts.note_alive(ServicePart::Jobs);
        while let Some(ended) = jobs.try_join_next() {
            resume_panic(ended);
        }
        let Some(free) = context.places.free() else {
            tokio::select! {
                () = context.app.stopped() => {}
                () = context.places.freed() => {}
                () = tokio::time::sleep(POLL_EVERY) => {}
            }
            continue;
        };
        let pause = match attempt(&context, claim(&context, &free)).await {
            Ok(Claimed::Plan(job, row)) => {
                pauses = Pauses::default();
                let place = free.take(job.solve_time).expect("the claim asked for what is free");
                jobs.spawn(execute(context.clone(), job, row, place));
                continue;
            }
            Ok(Claimed::Over) => continue,
            Ok(Claimed::Nothing) => POLL_EVERY,
            Err(error) => {
                tracing::error!(%error, "no job could be claimed");
                pauses.next()
            }
        };
        drop(free);
        tokio::select! {
            () = context.app.stopped() => {}
            () = context.app.job_enqueued.notified() => {}
            () = tokio::time::sleep(pause) => {}
            Some(ended) = jobs.join_next(), if !jobs.is_empty() => resume_panic(ended),
        }
    }
    while let Some(ended) = jobs.join_next().await {
        resume_panic(ended);
    }
}

/// Passes a panic of a job on to this part of the service. (A panic of a planner fails only its job.)
fn resume_panic(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && let Ok(payload) = error.try_into_panic()
    {
        std::panic::resume_unwind(payload);
    }
}

/// Claims one job. A job that is cancelled or has failed too often ends at once.
async fn claim(context: &JobContext, free: &FreePlaces) -> store::Result<Claimed> {
    let own = context.own_plans();
    let offer = JobFilter { lease: LEASE, long: free.takes_long(), take_over: context.is_calm(), own: &own };
    let mut tx = context.app.pool.begin().await?;
    let Some(job) = store::jobs::claim(&mut tx, &offer).await? else { return Ok(Claimed::Nothing) };
    let at = now();
    if !store::plans::start(&mut tx, job.plan, at).await? {
        store::jobs::delete(&mut tx, &job).await?;
        store::plans::finish(&mut tx, job.plan, FinishedPlan::CANCELLED, at).await?;
        tx.commit().await?;
        tracing::info!(plan = %job.plan, "cancelled before it was solved");
        return Ok(Claimed::Over);
    }
    if job.deaths >= DEATHS_MAX {
        let error = format!("its worker died {DEATHS_MAX} times");
        store::jobs::delete(&mut tx, &job).await?;
        store::plans::finish(&mut tx, job.plan, FinishedPlan::failed(&error), at).await?;
        tx.commit().await?;
        tracing::error!(plan = %job.plan, error, "job over");
        return Ok(Claimed::Over);
    }
    let row = store::plans::get(&mut tx, job.plan).await?.ok_or(store::Error::RowNotFound)?;
    tx.commit().await?;
    if job.deaths > 0 {
        counts::DEATHS.increment();
        tracing::warn!(plan = %job.plan, deaths = job.deaths, "taken over: its worker is silent");
    }
    tracing::info!(plan = %job.plan, claim = job.attempts, "solving");
    Ok(Claimed::Plan(job, Box::new(row)))
}
