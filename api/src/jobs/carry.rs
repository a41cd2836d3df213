//! One job from its claim to its end: solved, watched meanwhile, and stored or put back.

use super::counts;
use super::insist::{attempt, insist};
use super::places::{Place, QUICK_MAX};
use super::solve::{Ask, PlanOptions, Solved, solve_holding};
use super::worker::{Crew, LEASE};
use crate::app::now;
use crate::documents;
use crate::store::{self, jobs::JobRow, plans::PlanRow};
use apportion_domain::{PlanOutcome, Problem, StopReason, Trace};
use apportion_planning::{Incumbent, Listener};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// How often a lease is renewed, and the plan looked at for a cancellation.
const RENEW_EVERY: Duration = Duration::from_millis(200);
/// How long a planner may take to end once it was told to; then the job goes on without it.
const END_MAX: Duration = Duration::from_secs(2);
/// A planner is told to end after twice its limit (it may plan twice, for the sake of a ladder) and so much for the last
/// replay.
const OVERRUN: Duration = Duration::from_secs(30);

/// Why a planner is told to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// The plan was cancelled.
    Cancelled,
    /// Somebody else has the job by now.
    Lost,
    /// The service stops.
    Stopping,
    /// The planner has not kept its limit.
    Overran,
}

/// What becomes of a job.
#[derive(Debug, PartialEq)]
enum Conclusion {
    /// The plan is over.
    Store { state: &'static str, plan: Option<Value>, error: Option<String> },
    /// Whoever comes next begins again.
    PutBack,
    /// It is somebody else's.
    Leave,
}

/// Solves a plan and stores what came of it.
pub(super) async fn carry_out(crew: Arc<Crew>, job: JobRow, row: Box<PlanRow>, place: Place) {
    let _own = crew.is_at(job.plan);
    match worked(&crew, &job, &row, place).await {
        Conclusion::Leave => tracing::warn!(plan = %job.plan, "somebody else has this job by now"),
        Conclusion::PutBack => put_back(&crew, &job).await,
        Conclusion::Store { state, plan, error } => store(&crew, &job, state, plan, error).await,
    }
}

async fn worked(crew: &Crew, job: &JobRow, row: &PlanRow, place: Place) -> Conclusion {
    let begun = Instant::now();
    let failed = |error: String| Conclusion::Store { state: "failed", plan: None, error: Some(error) };
    let problem = match documents::problem(&row.problem) {
        Ok(problem) => problem,
        Err(error) => return failed(error.to_string()),
    };
    let options: PlanOptions = match serde_json::from_value(row.options.clone()) {
        Ok(options) => options,
        Err(error) => return failed(error.to_string()),
    };
    let traces = match traces(crew, &problem, &options).await {
        None => return Conclusion::PutBack,
        Some(Err(error)) => return failed(error),
        Some(Ok(traces)) => traces,
    };
    let limit = options.time_limit();
    let cancel = Arc::new(AtomicBool::new(false));
    let (told, news) = watch::channel(None);
    let listener: Listener = Arc::new(move |now: Incumbent| {
        told.send_replace(Some(now));
    });
    let listener = Some(listener);
    let ask = Ask { problem, options, traces, cancel: cancel.clone(), explain: true, listener };
    let solving = solve_holding(ask, place.clone());
    tokio::pin!(solving);
    let why = tokio::select! {
        solved = &mut solving => return concluded(None, Some(solved), limit),
        why = until_told(crew, job, &place, news, begun + 2 * limit + OVERRUN) => why,
    };
    cancel.store(true, Ordering::Relaxed);
    let solved = tokio::time::timeout(END_MAX, &mut solving).await.ok();
    if solved.is_none() {
        counts::ABANDONED.add();
        tracing::error!(plan = %job.plan, ?why, "the planner does not end; the job goes on without it");
    }
    concluded(Some(why), solved, limit)
}

/// What becomes of a job by why its planner was told to end, if it was, and what it answered, if it did.
fn concluded(why: Option<Why>, solved: Option<Result<Solved, String>>, limit: Duration) -> Conclusion {
    let is_cut_short = matches!(&solved, Some(Ok(s)) if s.outcome.stopped() == Some(StopReason::Cancelled));
    let cancelled = Conclusion::Store { state: "cancelled", plan: None, error: None };
    match (why, solved) {
        (Some(Why::Lost), _) => Conclusion::Leave,
        (Some(Why::Cancelled), _) => cancelled,
        (Some(Why::Stopping), None) => Conclusion::PutBack,
        (Some(Why::Stopping), Some(_)) if is_cut_short => Conclusion::PutBack,
        (Some(Why::Overran), Some(Ok(solved))) if solved.outcome.plan().is_some() => outcome(solved),
        (None, Some(Ok(_))) if is_cut_short => cancelled,
        (Some(Why::Overran), Some(Ok(_))) | (Some(Why::Overran) | None, None) => {
            let error = format!("the planner did not keep its limit of {} s", limit.as_secs_f64());
            Conclusion::Store { state: "failed", plan: None, error: Some(error) }
        }
        (_, Some(Ok(solved))) => outcome(solved),
        (_, Some(Err(error))) => Conclusion::Store { state: "failed", plan: None, error: Some(error) },
    }
}

fn outcome(solved: Solved) -> Conclusion {
    let (state, error) = match &solved.outcome {
        PlanOutcome::Optimal(_) | PlanOutcome::Feasible { .. } => ("succeeded", None),
        PlanOutcome::Infeasible { .. } => ("infeasible", None),
        PlanOutcome::Unknown { .. } => ("failed", Some("stopped before a plan was found or proven impossible".to_owned())),
    };
    Conclusion::Store { state, plan: Some(solved.document), error }
}

/// Renews the lease, stores how far the search is and moves a plan that takes long to a long place, until there is a reason
/// to end. A database that is away is none.
async fn until_told(
    crew: &Crew,
    job: &JobRow,
    place: &Place,
    mut news: watch::Receiver<Option<Incumbent>>,
    until: Instant,
) -> Why {
    let begun = Instant::now();
    let watching = async {
        loop {
            tokio::time::sleep(RENEW_EVERY).await;
            if begun.elapsed() > QUICK_MAX {
                crew.places.lengthen(place);
            }
            if Instant::now() > until {
                return Why::Overran;
            }
            let incumbent = if news.has_changed().unwrap_or(false) { *news.borrow_and_update() } else { None };
            match attempt(crew, looked(crew, job, incumbent)).await {
                Ok(None) => {}
                Ok(Some(why)) => return why,
                Err(error) => tracing::warn!(plan = %job.plan, %error, "a lease could not be renewed"),
            }
        }
    };
    tokio::select! {
        () = crew.app.stopped() => Why::Stopping,
        why = watching => why,
    }
}

async fn looked(crew: &Crew, job: &JobRow, incumbent: Option<Incumbent>) -> store::Result<Option<Why>> {
    let mut db = crew.app.pool.acquire().await?;
    if let Some(now) = incumbent {
        let progress = json!({"goal": now.goal, "value": now.value, "bound": now.bound});
        store::plans::tell(&mut db, job.plan, &progress).await?;
    }
    if !store::jobs::renew(&mut db, job, LEASE).await? {
        return Ok(Some(Why::Lost));
    }
    Ok(store::plans::cancel_asked(&mut db, job.plan).await?.then_some(Why::Cancelled))
}

/// The trace of each pipeline; `None`: the service stops before the database is back.
async fn traces(crew: &Crew, problem: &Problem, options: &PlanOptions) -> Option<Result<Vec<Trace>, String>> {
    const DEFAULT_TRACE_S: u64 = 60;
    let Some(id) = options.trace else {
        return Some(Ok(problem.pipelines.iter().map(|p| documents::steady(p.demand_qps, DEFAULT_TRACE_S)).collect()));
    };
    let read = || async move { store::traces::csv(&mut *crew.app.pool.acquire().await?, id).await };
    let csv = match insist(crew, "reading a trace", read).await? {
        Err(error) => return Some(Err(error.to_string())),
        Ok(None) => return Some(Err(format!("trace {id} is gone"))),
        Ok(Some(csv)) => csv,
    };
    let trace = apportion_wire::read_trace("trace", csv.as_bytes(), None).map_err(|error| error.to_string());
    Some(trace.map(|trace| vec![trace; problem.pipelines.len()]))
}

/// Stores that a plan is over and deletes its job, unless somebody else has it by now. What the database refuses fails the
/// plan.
async fn store(crew: &Crew, job: &JobRow, state: &str, plan: Option<Value>, error: Option<String>) {
    let write = |state, plan, error| {
        insist(crew, "storing a plan", move || async move {
            let mut tx = crew.app.pool.begin().await?;
            if store::jobs::delete(&mut tx, job).await? {
                store::plans::finish(&mut tx, job.plan, state, plan, error, now()).await?;
            }
            tx.commit().await
        })
    };
    tracing::info!(plan = %job.plan, state, error, "job over");
    let stored = match write(state, plan.as_ref(), error.as_deref()).await {
        Some(Err(refused)) => {
            tracing::error!(plan = %job.plan, error = %refused, "the outcome is refused by the database");
            write("failed", None, Some("its outcome could not be stored; the service's log says why")).await
        }
        stored => stored,
    };
    if !matches!(stored, Some(Ok(()))) {
        tracing::error!(plan = %job.plan, "not stored: it is begun again once the lease has run out");
    }
}

/// Puts a job back, so that whoever comes next begins it at once.
async fn put_back(crew: &Crew, job: &JobRow) {
    let back = insist(crew, "putting a job back", || async {
        let mut tx = crew.app.pool.begin().await?;
        if store::jobs::put_back(&mut tx, job).await? {
            store::plans::requeue(&mut tx, job.plan).await?;
        }
        tx.commit().await
    });
    match back.await {
        Some(Ok(())) => tracing::info!(plan = %job.plan, "put back"),
        _ => tracing::error!(plan = %job.plan, "not put back: it is begun again once the lease has run out"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn solved(outcome: PlanOutcome) -> Option<Result<Solved, String>> {
        Some(Ok(Solved { outcome, attainment: None, document: json!("a plan") }))
    }

    fn unknown(stopped: StopReason) -> PlanOutcome {
        PlanOutcome::Unknown { stopped }
    }

    #[test]
    fn what_becomes_of_a_job() {
        let limit = Duration::from_secs(5);
        let stored = |state, plan: Option<&str>, error: Option<&str>| Conclusion::Store {
            state,
            plan: plan.map(|p| json!(p)),
            error: error.map(str::to_owned),
        };
        let infeasible = || solved(PlanOutcome::Infeasible { shortfalls: Vec::new() });
        let (cut, late) = (|| solved(unknown(StopReason::Cancelled)), || solved(unknown(StopReason::TimeLimit)));
        let without = "stopped before a plan was found or proven impossible";
        let overran = "the planner did not keep its limit of 5 s";
        let table = [
            (None, infeasible(), stored("infeasible", Some("a plan"), None)),
            (None, late(), stored("failed", Some("a plan"), Some(without))),
            (None, Some(Err("broken".into())), stored("failed", None, Some("broken"))),
            (Some(Why::Cancelled), infeasible(), stored("cancelled", None, None)),
            (Some(Why::Cancelled), None, stored("cancelled", None, None)),
            (Some(Why::Stopping), cut(), Conclusion::PutBack),
            (Some(Why::Stopping), None, Conclusion::PutBack),
            (Some(Why::Stopping), infeasible(), stored("infeasible", Some("a plan"), None)),
            (Some(Why::Lost), infeasible(), Conclusion::Leave),
            (Some(Why::Overran), cut(), stored("failed", None, Some(overran))),
            (Some(Why::Overran), None, stored("failed", None, Some(overran))),
        ];
        for (why, solved, becomes) in table {
            let shown = format!("{why:?}");
            assert_eq!(concluded(why, solved, limit), becomes, "{shown}");
        }
    }
}
