//! How does the job of a plan go, from its claim to its end?
//!
//! The plan is solved, the job is watched meanwhile, and the outcome is stored or the job put back.

use super::context::{JobContext, LEASE};
use super::places::JobPlace;
use super::retry::retry;
use super::solve::{PlanFileListener, PlanOptions, SolveError, SolveRequest, SolvedPlan, each_trace, solve_in_place};
use super::watch::{END_MAX, StopCause, put_back, watch_job};
use crate::app::counts;
use crate::app::now;
use crate::documents;
use crate::store::{self, jobs::JobRow, plans::FinishedPlan, plans::PlanEnding, plans::PlanRow};
use apportion_domain::{ArrivalTrace, PlanOutcome, Problem, StopReason};
use apportion_planning::{ExplanationDepth, Incumbent, Listener, StopSignal};
use apportion_wire::{BadInput, PlanState};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Longest search for the prices and alternatives of a plan: the plan is known, and its job waits.
const EXPLANATION_TIME_MAX: Duration = Duration::from_millis(500);
/// A planner is cancelled after twice its limit plus this time. It may plan twice for a ladder, and the last replay takes
/// time.
const OVERRUN_MAX: Duration = Duration::from_secs(30);

/// The end of a job.
#[derive(Debug, PartialEq)]
enum Conclusion {
    /// The plan is over, and its outcome is stored.
    Store { state: PlanState, plan: Option<Value>, error: Option<String> },
    /// The next worker begins again.
    PutBack,
    /// Another worker has the job.
    Leave,
}

/// Solves a plan and stores the outcome.
pub(super) async fn execute(context: Arc<JobContext>, job: JobRow, row: Box<PlanRow>, place: JobPlace) {
    let _own = context.note_own_job(job.id);
    match solve_watched(&context, &job, &row, place).await {
        Conclusion::Leave => tracing::warn!(plan = %job.id, "another worker has this job by now"),
        Conclusion::PutBack => put_back(&context, &job).await,
        Conclusion::Store { state, plan, error } => {
            store(&context, &job, FinishedPlan { state, plan: plan.as_ref(), error: error.as_deref() }).await
        }
    }
}

async fn solve_watched(context: &JobContext, job: &JobRow, row: &PlanRow, place: JobPlace) -> Conclusion {
    let begun = Instant::now();
    let problem = match documents::problem(&row.problem) {
        Ok(problem) => problem,
        Err(error) => return failed(&error),
    };
    let options: PlanOptions = match serde_json::from_value(row.options.clone()) {
        Ok(options) => options,
        Err(error) => return failed(&error),
    };
    let traces = match traces(context, &problem, &options).await {
        None => return Conclusion::PutBack,
        Some(Err(error)) => return failed(&error),
        Some(Ok(traces)) => traces,
    };
    let limit = options.time_limit();
    let (cancel, stop) = (Arc::new(AtomicBool::new(false)), Arc::new(StopSignal::default()));
    let news = Arc::new(SearchNews::default());
    let (found, handed_out) = (news.clone(), news.clone());
    let listener: Listener = Arc::new(move |now: Incumbent| found.incumbent.replace(now));
    let file_listener: PlanFileListener = Box::new(move |file: Value| handed_out.best.replace(file));
    let request = SolveRequest {
        cancel: cancel.clone(),
        stop: stop.clone(),
        explain: ExplanationDepth::Full { within: EXPLANATION_TIME_MAX },
        listener: Some(listener),
        file_listener: Some(file_listener),
        ..SolveRequest::unwatched(problem, options, traces)
    };
    let solving = solve_in_place(request, place.clone());
    tokio::pin!(solving);
    let beat = || renew_lease(context, job, &news, &stop);
    let cause = tokio::select! {
        solved = &mut solving => return conclude(None, Some(solved), limit),
        cause = watch_job(context, job, &place, begun + 2 * limit + OVERRUN_MAX, beat) => cause,
    };
    cancel.store(true, Ordering::Relaxed);
    let solved = tokio::time::timeout(END_MAX, &mut solving).await.ok();
    if solved.is_none() {
        counts::ABANDONED.increment();
        tracing::error!(plan = %job.id, ?cause, "the planner does not end; the job goes on without it");
    }
    conclude(Some(cause), solved, limit)
}

/// The end of a job, by the cause of its cancellation, if any, and the answer of its planner, if any.
fn conclude(cause: Option<StopCause>, solved: Option<Result<SolvedPlan, SolveError>>, limit: Duration) -> Conclusion {
    let is_cut_short = matches!(&solved, Some(Ok(s)) if s.outcome.stopped() == Some(StopReason::Cancelled));
    let cancelled = Conclusion::Store { state: PlanState::Cancelled, plan: None, error: None };
    match (cause, solved) {
        (Some(StopCause::Lost), _) => Conclusion::Leave,
        (Some(StopCause::Cancelled), _) => cancelled,
        (Some(StopCause::Stopping), None) => Conclusion::PutBack,
        (Some(StopCause::Stopping), Some(_)) if is_cut_short => Conclusion::PutBack,
        (Some(StopCause::Overran), Some(Ok(solved))) if solved.outcome.plan().is_some() => outcome(solved),
        (None, Some(Ok(_))) if is_cut_short => cancelled,
        (Some(StopCause::Overran), Some(Ok(_))) | (Some(StopCause::Overran) | None, None) => {
            failed(&format!("the planner did not keep its limit of {} s", limit.as_secs_f64()))
        }
        (_, Some(Ok(solved))) => outcome(solved),
        (_, Some(Err(error))) => failed(&error),
    }
}

fn failed(error: &dyn std::fmt::Display) -> Conclusion {
    Conclusion::Store { state: PlanState::Failed, plan: None, error: Some(error.to_string()) }
}

fn outcome(solved: SolvedPlan) -> Conclusion {
    let (state, error) = match &solved.outcome {
        PlanOutcome::Optimal(_) | PlanOutcome::Feasible { .. } => (PlanState::Succeeded, None),
        PlanOutcome::Infeasible { .. } => (PlanState::Infeasible, None),
        PlanOutcome::Unknown { .. } => {
            (PlanState::Failed, Some("stopped before a plan was found or proven impossible".to_owned()))
        }
    };
    Conclusion::Store { state, plan: Some(solved.document), error }
}

/// What a search has found and the plan's row does not have.
#[derive(Default)]
struct SearchNews {
    incumbent: Unstored<Incumbent>,
    /// The plan file of the best plan so far.
    best: Unstored<Value>,
}

/// The newest value that a search has found, until it is stored. A write that fails leaves it for the next one.
struct Unstored<T>(Mutex<Option<Arc<T>>>);

impl<T> Default for Unstored<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T> Unstored<T> {
    fn lock(&self) -> MutexGuard<'_, Option<Arc<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn replace(&self, found: T) {
        *self.lock() = Some(Arc::new(found));
    }

    fn get(&self) -> Option<Arc<T>> {
        self.lock().clone()
    }

    /// Notes that this value is stored, unless a newer one has come meanwhile.
    fn note_stored(&self, stored: &Arc<T>) {
        self.lock().take_if(|newest| Arc::ptr_eq(newest, stored));
    }
}

/// Renews the lease once; returns the cause to cancel the planner, if there is one. `stop` is asked if a client wants the
/// best plan so far: the planner then ends by itself.
async fn renew_lease(
    context: &JobContext,
    job: &JobRow,
    news: &SearchNews,
    stop: &StopSignal,
) -> store::Result<Option<StopCause>> {
    let mut db = context.app.pool.acquire().await?;
    // First: a worker without the lease must not write over the next one's plan.
    if !store::jobs::renew(&mut db, job, LEASE).await? {
        return Ok(Some(StopCause::Lost));
    }
    if let Some(now) = news.incumbent.get() {
        let progress = json!({"goal": now.goal, "value": now.value, "bound": now.bound});
        store::plans::write_progress(&mut db, job.id, &progress).await?;
        news.incumbent.note_stored(&now);
    }
    if let Some(best) = news.best.get() {
        store::plans::write_best(&mut db, job.id, &best).await?;
        news.best.note_stored(&best);
    }
    Ok(match store::plans::ending_asked(&mut db, job.id).await? {
        Some(PlanEnding::Cancel) => Some(StopCause::Cancelled),
        Some(PlanEnding::KeepBest) => {
            stop.ask();
            None
        }
        None => None,
    })
}

/// Why a plan has no trace to hold on.
#[derive(Debug, thiserror::Error)]
enum TraceError {
    #[error(transparent)]
    Database(#[from] store::Error),
    #[error("trace {0} was deleted")]
    Gone(uuid::Uuid),
    #[error(transparent)]
    Unreadable(#[from] BadInput),
}

/// The trace of each pipeline; `None`: the service stops before the database is back.
async fn traces(
    context: &JobContext,
    problem: &Problem,
    options: &PlanOptions,
) -> Option<Result<Vec<ArrivalTrace>, TraceError>> {
    let Some(id) = options.trace else { return Some(each_trace(problem, None).map_err(TraceError::from)) };
    let read = || async move { store::traces::csv(&mut *context.app.pool.acquire().await?, id).await };
    match retry(context, "reading a trace", read).await? {
        Err(error) => Some(Err(error.into())),
        Ok(None) => Some(Err(TraceError::Gone(id))),
        Ok(Some(csv)) => Some(each_trace(problem, Some(&csv)).map_err(TraceError::from)),
    }
}

/// Stores the outcome of a plan and deletes its job, unless another worker has it by now. If the database refuses the
/// outcome, the plan fails.
async fn store(context: &JobContext, job: &JobRow, outcome: FinishedPlan<'_>) {
    tracing::info!(plan = %job.id, state = outcome.state.name(), error = outcome.error, "job over");
    let stored = match write_outcome(context, job, outcome).await {
        Some(Err(refused)) => {
            tracing::error!(plan = %job.id, error = %refused, "the outcome is refused by the database");
            let failed = FinishedPlan::failed("its outcome could not be stored; the service's log says why");
            write_outcome(context, job, failed).await
        }
        stored => stored,
    };
    if !matches!(stored, Some(Ok(()))) {
        tracing::error!(plan = %job.id, "not stored: it is begun again when the lease has expired");
    }
}

async fn write_outcome(context: &JobContext, job: &JobRow, outcome: FinishedPlan<'_>) -> Option<store::Result<()>> {
    let write = || async move {
        let mut tx = context.app.pool.begin().await?;
        if store::jobs::delete(&mut tx, job).await? {
            store::plans::finish(&mut tx, job.id, outcome, now()).await?;
        }
        tx.commit().await
    };
    retry(context, "storing a plan", write).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use apportion_domain::Plan;

    fn solved(outcome: PlanOutcome) -> Option<Result<SolvedPlan, SolveError>> {
        Some(Ok(SolvedPlan { outcome, attainment: None, document: json!("a plan") }))
    }

    fn unknown(stopped: StopReason) -> PlanOutcome {
        PlanOutcome::Unknown { stopped }
    }

    #[test]
    fn a_find_stays_until_it_is_stored() {
        let news: Unstored<i32> = Unstored::default();
        assert_eq!(news.get(), None);
        news.replace(1);
        let first = news.get().expect("it was found");
        assert_eq!(news.get(), Some(first.clone()), "a write that failed is tried again");
        news.replace(1);
        news.note_stored(&first);
        let second = news.get().expect("it came meanwhile");
        news.note_stored(&second);
        assert_eq!(news.get(), None);
    }

    #[test]
    fn every_cause_has_its_conclusion() {
        let limit = Duration::from_secs(5);
        let stored = |state, plan: Option<&str>, error: Option<&str>| Conclusion::Store {
            state,
            plan: plan.map(|p| json!(p)),
            error: error.map(str::to_owned),
        };
        let infeasible = || solved(PlanOutcome::Infeasible { shortfalls: Vec::new() });
        let (cut, late) = (|| solved(unknown(StopReason::Cancelled)), || solved(unknown(StopReason::TimeLimit)));
        let plan = Plan { pipelines: Vec::new(), cost_per_hour: 0.0 };
        let kept = || solved(PlanOutcome::Feasible { plan: plan.clone(), stopped: StopReason::Stopped });
        let without = "stopped before a plan was found or proven impossible";
        let overran = "the planner did not keep its limit of 5 s";
        let table = [
            (None, infeasible(), stored(PlanState::Infeasible, Some("a plan"), None)),
            (None, late(), stored(PlanState::Failed, Some("a plan"), Some(without))),
            (None, kept(), stored(PlanState::Succeeded, Some("a plan"), None)),
            (None, solved(unknown(StopReason::Stopped)), stored(PlanState::Failed, Some("a plan"), Some(without))),
            (Some(StopCause::Cancelled), kept(), stored(PlanState::Cancelled, None, None)),
            (Some(StopCause::Stopping), kept(), stored(PlanState::Succeeded, Some("a plan"), None)),
            (
                None,
                Some(Err(SolveError::NoAnswer("it"))),
                stored(PlanState::Failed, None, Some("it ended without an answer")),
            ),
            (Some(StopCause::Cancelled), infeasible(), stored(PlanState::Cancelled, None, None)),
            (Some(StopCause::Cancelled), None, stored(PlanState::Cancelled, None, None)),
            (Some(StopCause::Stopping), cut(), Conclusion::PutBack),
            (Some(StopCause::Stopping), None, Conclusion::PutBack),
            (Some(StopCause::Stopping), infeasible(), stored(PlanState::Infeasible, Some("a plan"), None)),
            (Some(StopCause::Lost), infeasible(), Conclusion::Leave),
            (Some(StopCause::Overran), cut(), stored(PlanState::Failed, None, Some(overran))),
            (Some(StopCause::Overran), None, stored(PlanState::Failed, None, Some(overran))),
        ];
        for (cause, solved, expected) in table {
            let shown = format!("{cause:?}");
            assert_eq!(conclude(cause, solved, limit), expected, "{shown}");
        }
    }
}
