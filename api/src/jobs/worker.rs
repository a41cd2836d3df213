//! How does a process claim jobs? Any number of processes may do so on one database.

use super::analysis;
use super::context::{JobContext, LEASE};
use super::places::FreePlaces;
use super::plan;
use super::retry::{Pauses, attempt};
use crate::app::counts;
use crate::app::parts::ServicePart;
use crate::app::{App, now};
use crate::store::analyses::{AnalysisInputRow, FinishedAnalysis};
use crate::store::plans::{FinishedPlan, PlanRow};
use crate::store::{self, PgConnection, Time, jobs::JobFilter, jobs::JobQueue, jobs::JobRow};
use opentelemetry::KeyValue;
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
    /// An analysis to run.
    Analysis(JobRow, Box<AnalysisInputRow>),
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
    // The queue that gave no job last time is asked first, so that neither waits for the end of the other.
    let mut first = JobQueue::Plans;
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
        let pause = match attempt(&context, claim(&context, &free, first)).await {
            Ok(Claimed::Plan(job, row)) => {
                (pauses, first) = (Pauses::default(), job.queue.other());
                let place = free.take(job.solve_time).expect("the claim asked for what is free");
                let id = KeyValue::new("apportion.plan", job.id.to_string());
                let work = plan::execute(context.clone(), job, row, place);
                jobs.spawn(context.app.spans.clone().during("plan", id, work));
                continue;
            }
            Ok(Claimed::Analysis(job, row)) => {
                (pauses, first) = (Pauses::default(), job.queue.other());
                let place = free.take(job.solve_time).expect("the claim asked for what is free");
                let id = KeyValue::new("apportion.analysis", job.id.to_string());
                let work = analysis::execute(context.clone(), job, row, place);
                jobs.spawn(context.app.spans.clone().during("analysis", id, work));
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

/// Claims one job, of the queue `first` if it has one. A job that is cancelled or has failed too often ends at once.
async fn claim(context: &JobContext, free: &FreePlaces, first: JobQueue) -> store::Result<Claimed> {
    let own = context.own_jobs();
    let offer = JobFilter { lease: LEASE, long: free.takes_long(), take_over: context.is_calm(), own: &own };
    let mut tx = context.app.pool.begin().await?;
    let job = match store::jobs::claim(&mut tx, first, &offer).await? {
        Some(job) => job,
        None => match store::jobs::claim(&mut tx, first.other(), &offer).await? {
            Some(job) => job,
            None => return Ok(Claimed::Nothing),
        },
    };
    let claimed = begin(&mut tx, &job, now()).await?;
    tx.commit().await?;
    if job.deaths > 0 && !matches!(claimed, Claimed::Over) {
        counts::DEATHS.increment();
        tracing::warn!(job = %job.id, deaths = job.deaths, "taken over: its worker is silent");
    }
    Ok(claimed)
}

/// Begins a claimed job, or ends it.
async fn begin(db: &mut PgConnection, job: &JobRow, at: Time) -> store::Result<Claimed> {
    let error = (job.deaths >= DEATHS_MAX).then(|| format!("its worker died {DEATHS_MAX} times"));
    let is_begun = error.is_none()
        && match job.queue {
            JobQueue::Plans => store::plans::start(db, job.id, at).await?,
            JobQueue::Analyses => store::analyses::start(db, job.id, at).await?,
        };
    if !is_begun {
        tracing::info!(job = %job.id, error, "over before it was begun");
        store::jobs::delete(db, job).await?;
        end(db, job, error.as_deref(), at).await?;
        return Ok(Claimed::Over);
    }
    tracing::info!(job = %job.id, queue = ?job.queue, claim = job.attempts, "begun");
    let missing = store::Error::RowNotFound;
    Ok(match job.queue {
        JobQueue::Plans => Claimed::Plan(job.clone(), Box::new(store::plans::get(db, job.id).await?.ok_or(missing)?)),
        JobQueue::Analyses => {
            Claimed::Analysis(job.clone(), Box::new(store::analyses::input(db, job.id).await?.ok_or(missing)?))
        }
    })
}

/// Stores the end of a job that no worker begins: failed with this error, or cancelled.
async fn end(db: &mut PgConnection, job: &JobRow, error: Option<&str>, at: Time) -> store::Result<()> {
    match job.queue {
        JobQueue::Plans => {
            let end = error.map_or(FinishedPlan::CANCELLED, FinishedPlan::failed);
            store::plans::finish(db, job.id, end, at).await
        }
        JobQueue::Analyses => {
            let end = error.map_or(FinishedAnalysis::CANCELLED, FinishedAnalysis::failed);
            store::analyses::finish(db, job.id, end, at).await
        }
    }
}
