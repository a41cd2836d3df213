//! Claims jobs and carries them out. Any number of processes may do so on one database.

use super::{Ask, PlanOptions, Solved, solve};
use crate::app::{App, now};
use crate::documents;
use crate::store::{self, jobs::JobRow, plans::PlanRow};
use apportion_domain::{PlanOutcome, Problem, StopReason, Trace};
use apportion_planning::{Incumbent, Listener};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// How often a job is begun before it counts as failed: its worker died each time, perhaps of it.
pub const RETRIES_MAX: i32 = 3;
/// A worker that does not renew its lease for so long is dead.
const LEASE: Duration = Duration::from_secs(15);
/// How often a worker renews its lease and looks whether its job was cancelled.
const RENEW_EVERY: Duration = Duration::from_millis(200);
/// How often it looks for jobs that other processes enqueued.
const POLL: Duration = Duration::from_millis(500);

/// Works until the service stops.
pub async fn run(app: App) {
    while !app.is_stopping() {
        match work_once(&app).await {
            Ok(true) => {}
            Ok(false) => tokio::select! {
                () = app.stopped() => return,
                () = app.job_enqueued.notified() => {}
                () = tokio::time::sleep(POLL) => {}
            },
            Err(error) => {
                tracing::error!(%error, "a job could not be claimed or stored");
                tokio::time::sleep(POLL).await;
            }
        }
    }
}

/// Claims one job and carries it out; answers whether there was one.
async fn work_once(app: &App) -> store::Result<bool> {
    let mut tx = app.pool.begin().await?;
    let at = now();
    let Some(job) = store::jobs::claim(&mut tx, at, at + LEASE).await? else { return Ok(false) };
    let Some(row) = store::plans::get(&mut tx, job.plan).await? else { return Ok(true) };
    if job.attempts > RETRIES_MAX {
        let error = format!("its worker died {RETRIES_MAX} times");
        finish(&mut tx, &job, Err(error)).await?;
        tx.commit().await?;
        return Ok(true);
    }
    store::plans::start(&mut tx, job.plan, at).await?;
    tx.commit().await?;
    tracing::info!(plan = %job.plan, attempt = job.attempts, "solving");
    let outcome = carry_out(app, &job, &row).await;
    if app.is_stopping() && matches!(&outcome, Ok(solved) if solved.outcome.stopped() == Some(StopReason::Cancelled)) {
        // Not its own fault: whoever comes next begins it again, once the lease has run out.
        return Ok(true);
    }
    let mut tx = app.pool.begin().await?;
    finish(&mut tx, &job, outcome).await?;
    tx.commit().await?;
    Ok(true)
}

/// Solves, and meanwhile renews the lease and listens for cancellation.
async fn carry_out(app: &App, job: &JobRow, row: &PlanRow) -> Result<Solved, String> {
    let problem = documents::problem(&row.problem).map_err(|error| error.to_string())?;
    let options: PlanOptions = serde_json::from_value(row.options.clone()).map_err(|error| error.to_string())?;
    let traces = traces(app, &problem, &options).await?;
    let cancel = Arc::new(AtomicBool::new(false));
    let (told, mut news) = watch::channel(None);
    let listener: Listener = Arc::new(move |now: Incumbent| {
        told.send_replace(Some(now));
    });
    let listener = Some(listener);
    let solving = solve(Ask { problem, options, traces, cancel: cancel.clone(), explain: true, listener });
    tokio::pin!(solving);
    loop {
        tokio::select! {
            solved = &mut solving => return solved,
            () = tokio::time::sleep(RENEW_EVERY) => {
                if app.is_stopping() || !still_wanted(app, job, &mut news).await {
                    cancel.store(true, Ordering::Relaxed);
                }
            }
        }
    }
}

/// Renews the lease and stores how far the search is. A database that does not answer is no reason to stop: the lease is longer than a hiccup.
async fn still_wanted(app: &App, job: &JobRow, news: &mut watch::Receiver<Option<Incumbent>>) -> bool {
    let incumbent = if news.has_changed().unwrap_or(false) { *news.borrow_and_update() } else { None };
    let result = async {
        let mut db = app.pool.acquire().await?;
        if let Some(now) = incumbent {
            let progress = json!({"goal": now.goal, "value": now.value, "bound": now.bound});
            store::plans::tell(&mut db, job.plan, &progress).await?;
        }
        let ours = store::jobs::renew(&mut db, job, now() + LEASE).await?;
        Ok::<bool, store::Error>(ours && !store::plans::cancel_asked(&mut db, job.plan).await?)
    };
    result.await.unwrap_or(true)
}

async fn traces(app: &App, problem: &Problem, options: &PlanOptions) -> Result<Vec<Trace>, String> {
    const DEFAULT_TRACE_S: u64 = 60;
    let Some(id) = options.trace else {
        return Ok(problem.pipelines.iter().map(|p| documents::steady(p.demand_qps, DEFAULT_TRACE_S)).collect());
    };
    let csv = async { store::traces::csv(&mut *app.pool.acquire().await?, id).await };
    let csv = csv.await.map_err(|error| error.to_string())?.ok_or_else(|| format!("trace {id} is gone"))?;
    let trace = apportion_wire::read_trace("trace", csv.as_bytes(), None).map_err(|error| error.to_string())?;
    Ok(vec![trace; problem.pipelines.len()])
}

/// Stores what came of a job and deletes it, unless somebody else has it by now.
async fn finish(tx: &mut store::PgConnection, job: &JobRow, outcome: Result<Solved, String>) -> store::Result<()> {
    if !store::jobs::delete(tx, job).await? {
        return Ok(());
    }
    let (state, plan, error) = match &outcome {
        Err(error) => ("failed", None, Some(error.as_str())),
        Ok(solved) => match &solved.outcome {
            _ if solved.outcome.stopped() == Some(StopReason::Cancelled) => ("cancelled", None, None),
            PlanOutcome::Optimal(_) | PlanOutcome::Feasible { .. } => ("succeeded", Some(&solved.document), None),
            PlanOutcome::Infeasible { .. } => ("infeasible", Some(&solved.document), None),
            PlanOutcome::Unknown { .. } => {
                ("failed", Some(&solved.document), Some("stopped before a plan was found or proven impossible"))
            }
        },
    };
    tracing::info!(plan = %job.plan, state, error, "job over");
    store::plans::finish(tx, job.plan, state, plan, error, now()).await
}
