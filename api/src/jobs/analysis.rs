//! How does the job of an analysis go, from its claim to its end?
//!
//! The analysis runs, what is ready of it is stored meanwhile, and its result is stored or the job put back.

use super::analysis_run::{AnalysisError, AnalysisProgress, AnalysisTask, TracesById};
use super::context::{JobContext, LEASE};
use super::places::JobPlace;
use super::retry::retry;
use super::solve::{SolveError, run_in_thread};
use super::watch::{END_MAX, StopCause, put_back, watch_job};
use crate::app::{counts, now};
use crate::store::analyses::{AnalysisInputRow, FinishedAnalysis, ReadyPoints};
use crate::store::{self, jobs::JobRow};
use apportion_wire::AnalysisState;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// Longest time of an analysis. What is ready by then stays.
pub const ANALYSIS_TIME_MAX: Duration = Duration::from_secs(3_600);

/// The end of a job.
#[derive(Debug, PartialEq)]
enum AnalysisEnd {
    /// The analysis is over, and its result is stored.
    Store { state: AnalysisState, result: Option<Value>, error: Option<String> },
    /// The next worker begins again.
    PutBack,
    /// Another worker has the job, or the analysis was deleted.
    Leave,
}

/// The answer of the thread of an analysis.
type Answer = Result<Result<Value, AnalysisError>, SolveError>;

/// Runs an analysis and stores its result.
pub(super) async fn execute(context: Arc<JobContext>, job: JobRow, row: Box<AnalysisInputRow>, place: JobPlace) {
    let _own = context.note_own_job(job.id);
    let progress = Arc::new(AnalysisProgress::default());
    match run_watched(&context, &job, &row, place, &progress).await {
        AnalysisEnd::Leave => tracing::warn!(analysis = %job.id, "another worker has this job by now, or it was deleted"),
        AnalysisEnd::PutBack => put_back(&context, &job).await,
        AnalysisEnd::Store { state, result, error } => {
            let end = FinishedAnalysis { state, result: result.as_ref(), error: error.as_deref() };
            store(&context, &job, end, &progress.unstored()).await;
        }
    }
}

async fn run_watched(
    context: &JobContext,
    job: &JobRow,
    row: &AnalysisInputRow,
    place: JobPlace,
    progress: &Arc<AnalysisProgress>,
) -> AnalysisEnd {
    let begun = Instant::now();
    let task = match AnalysisTask::read(row) {
        Ok(task) => task,
        Err(error) => return failed(&error),
    };
    let traces = match traces(context, &task).await {
        None => return AnalysisEnd::PutBack,
        Some(Err(error)) => return failed(&error),
        Some(Ok(traces)) => traces,
    };
    let cancel = Arc::new(AtomicBool::new(false));
    let (stop, noted, held) = (cancel.clone(), progress.clone(), place.clone());
    let running = run_in_thread("the analysis", move || {
        let answer = task.run(&traces, &stop, &noted);
        drop(held);
        answer
    });
    tokio::pin!(running);
    let beat = || renew_lease(context, job, progress);
    let cause = tokio::select! {
        answer = &mut running => return conclude(None, Some(answer)),
        cause = watch_job(context, job, &place, begun + ANALYSIS_TIME_MAX, beat) => cause,
    };
    cancel.store(true, Ordering::Relaxed);
    if cause == StopCause::Stopping {
        // Its answer would count for nothing, and the time until the process ends is short.
        return AnalysisEnd::PutBack;
    }
    let answer = tokio::time::timeout(END_MAX, &mut running).await.ok();
    if answer.is_none() {
        counts::ABANDONED.increment();
        tracing::error!(analysis = %job.id, ?cause, "the analysis does not end; the job goes on without it");
    }
    conclude(Some(cause), answer)
}

/// The end of a job, by the cause of its cancellation, if any, and the answer of its thread, if any. A run that was told to
/// stop may have left out some of its result, so its answer counts for nothing.
fn conclude(cause: Option<StopCause>, answer: Option<Answer>) -> AnalysisEnd {
    match (cause, answer) {
        (Some(StopCause::Lost), _) => AnalysisEnd::Leave,
        (Some(StopCause::Stopping), _) => AnalysisEnd::PutBack,
        (Some(StopCause::Cancelled), _) => {
            AnalysisEnd::Store { state: AnalysisState::Cancelled, result: None, error: None }
        }
        (Some(StopCause::Overran), _) | (None, None) => {
            failed(&format!("it did not end within {} s", ANALYSIS_TIME_MAX.as_secs()))
        }
        (None, Some(Ok(Ok(result)))) => {
            AnalysisEnd::Store { state: AnalysisState::Done, result: Some(result), error: None }
        }
        (None, Some(Ok(Err(error)))) => failed(&error),
        (None, Some(Err(error))) => failed(&error),
    }
}

fn failed(error: &dyn std::fmt::Display) -> AnalysisEnd {
    AnalysisEnd::Store { state: AnalysisState::Failed, result: None, error: Some(error.to_string()) }
}

/// Renews the lease once and stores what became ready; returns the cause to cancel the run, if there is one.
async fn renew_lease(context: &JobContext, job: &JobRow, progress: &AnalysisProgress) -> store::Result<Option<StopCause>> {
    let mut db = context.app.pool.acquire().await?;
    if !store::jobs::renew(&mut db, job, LEASE).await? {
        return Ok(Some(StopCause::Lost));
    }
    let ready = progress.unstored();
    store::analyses::write_ready(&mut db, job.id, &ready).await?;
    progress.note_stored(&ready);
    Ok(store::analyses::cancel_asked(&mut db, job.id).await?.then_some(StopCause::Cancelled))
}

/// Why an analysis has no trace.
#[derive(Debug, thiserror::Error)]
enum LoadError {
    #[error(transparent)]
    Database(#[from] store::Error),
    #[error("trace {0} was deleted")]
    Gone(String),
    #[error(transparent)]
    Unreadable(#[from] apportion_wire::BadInput),
}

/// The traces of an analysis; `None`: the service stops before the database is back.
async fn traces(context: &JobContext, task: &AnalysisTask) -> Option<Result<TracesById, LoadError>> {
    let mut traces = TracesById::new();
    for text in task.traces() {
        if traces.contains_key(&text) {
            continue;
        }
        let Ok(id) = text.parse::<Uuid>() else { return Some(Err(LoadError::Gone(text))) };
        let read = || async move { store::traces::csv(&mut *context.app.pool.acquire().await?, id).await };
        let csv = match retry(context, "reading a trace", read).await? {
            Err(error) => return Some(Err(error.into())),
            Ok(None) => return Some(Err(LoadError::Gone(text))),
            Ok(Some(csv)) => csv,
        };
        match apportion_wire::read_trace("trace", csv.as_bytes(), None) {
            Err(error) => return Some(Err(error.into())),
            Ok(trace) => traces.insert(text, trace),
        };
    }
    Some(Ok(traces))
}

/// Stores the end of an analysis with its last points, and deletes its job, unless another worker has it by now. If the
/// database refuses the result, the analysis fails.
async fn store(context: &JobContext, job: &JobRow, end: FinishedAnalysis<'_>, ready: &ReadyPoints) {
    tracing::info!(analysis = %job.id, state = end.state.name(), error = end.error, "job over");
    let stored = match write_end(context, job, end, ready).await {
        Some(Err(refused)) => {
            tracing::error!(analysis = %job.id, error = %refused, "the result is refused by the database");
            let failed = FinishedAnalysis::failed("its result could not be stored; the service's log says why");
            write_end(context, job, failed, ready).await
        }
        stored => stored,
    };
    if !matches!(stored, Some(Ok(()))) {
        tracing::error!(analysis = %job.id, "not stored: it is begun again when the lease has expired");
    }
}

async fn write_end(
    context: &JobContext,
    job: &JobRow,
    end: FinishedAnalysis<'_>,
    ready: &ReadyPoints,
) -> Option<store::Result<()>> {
    let write = || async move {
        let mut tx = context.app.pool.begin().await?;
        if store::jobs::delete(&mut tx, job).await? {
            store::analyses::write_ready(&mut tx, job.id, ready).await?;
            store::analyses::finish(&mut tx, job.id, end, now()).await?;
        }
        tx.commit().await
    };
    retry(context, "storing an analysis", write).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_run_that_was_told_to_stop_has_no_result() {
        let result = || Some(Ok(Ok(json!("a result"))));
        let end = |cause, answer| match conclude(cause, answer) {
            AnalysisEnd::Store { state, result, .. } => (state.name(), result.is_some()),
            AnalysisEnd::PutBack => ("put back", false),
            AnalysisEnd::Leave => ("left", false),
        };
        assert_eq!(end(None, result()), ("done", true));
        assert_eq!(end(None, Some(Err(SolveError::NoAnswer("it")))), ("failed", false));
        assert_eq!(end(Some(StopCause::Cancelled), result()), ("cancelled", false));
        assert_eq!(end(Some(StopCause::Cancelled), None), ("cancelled", false));
        assert_eq!(end(Some(StopCause::Stopping), result()), ("put back", false));
        assert_eq!(end(Some(StopCause::Lost), result()), ("left", false));
        assert_eq!(end(Some(StopCause::Overran), result()), ("failed", false));
    }
}
