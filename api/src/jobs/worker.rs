//! Claims jobs and has them carried out. Any number of processes may do so on one database.

use super::carry::carry_out;
use super::counts;
use super::insist::{Pauses, attempt};
use super::places::{Free, Places};
use crate::app::{App, now};
use crate::parts::Part;
use crate::store::{self, jobs::JobRow, jobs::Offer, plans::PlanRow};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::{JoinError, JoinSet};
use uuid::Uuid;

/// How many workers may die of a job before it counts as failed.
pub const DEATHS_MAX: i32 = 3;
/// A worker that does not renew its lease for so long is dead.
pub(super) const LEASE: Duration = Duration::from_secs(15);
/// How often jobs that other processes enqueued are looked for.
const POLL: Duration = Duration::from_millis(500);
/// After the database was away, leases that have run out are left alone for so long: those who have them come back too.
const CALM: Duration = Duration::from_secs(2);

/// What the jobs of one process share.
pub(super) struct Crew {
    pub(super) app: App,
    pub(super) places: Places,
    own: Mutex<BTreeSet<Uuid>>,
    disturbed: Mutex<Option<Instant>>,
}

/// A plan that this process is at, until it is dropped.
pub(super) struct Own<'a>(&'a Crew, Uuid);

impl Drop for Own<'_> {
    fn drop(&mut self) {
        self.0.own().remove(&self.1);
    }
}

impl Crew {
    fn new(app: App) -> Self {
        Self { app, places: Places::new(), own: Mutex::default(), disturbed: Mutex::default() }
    }

    fn own(&self) -> std::sync::MutexGuard<'_, BTreeSet<Uuid>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that this process is at a plan.
    pub(super) fn is_at(&self, plan: Uuid) -> Own<'_> {
        self.own().insert(plan);
        Own(self, plan)
    }

    /// Notes that the database was away.
    pub(super) fn disturbed(&self) {
        *self.disturbed.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    fn is_calm(&self) -> bool {
        self.disturbed.lock().unwrap_or_else(PoisonError::into_inner).is_none_or(|at| at.elapsed() > CALM)
    }
}

/// What a claim came to.
enum Claimed {
    /// A plan to be solved.
    Plan(JobRow, Box<PlanRow>),
    /// A job that needed no solving any more.
    Settled,
    /// There was no job.
    Nothing,
}

/// Works until the service stops; then every job is put back that has not ended by itself.
pub async fn run(app: App) {
    let crew = Arc::new(Crew::new(app));
    let mut jobs = JoinSet::new();
    let mut pauses = Pauses::default();
    while !crew.app.is_stopping() {
        crew.app.parts.sign(Part::Jobs);
        while let Some(ended) = jobs.try_join_next() {
            survived(ended);
        }
        let Some(free) = crew.places.free() else {
            tokio::select! {
                () = crew.app.stopped() => {}
                () = crew.places.freed() => {}
                () = tokio::time::sleep(POLL) => {}
            }
            continue;
        };
        let pause = match attempt(&crew, claim(&crew, &free)).await {
            Ok(Claimed::Plan(job, row)) => {
                pauses = Pauses::default();
                let place = free.take(job.long).expect("the claim asked for what is free");
                jobs.spawn(carry_out(crew.clone(), job, row, place));
                continue;
            }
            Ok(Claimed::Settled) => continue,
            Ok(Claimed::Nothing) => POLL,
            Err(error) => {
                tracing::error!(%error, "no job could be claimed");
                pauses.next()
            }
        };
        drop(free);
        tokio::select! {
            () = crew.app.stopped() => {}
            () = crew.app.job_enqueued.notified() => {}
            () = tokio::time::sleep(pause) => {}
            Some(ended) = jobs.join_next(), if !jobs.is_empty() => survived(ended),
        }
    }
    while let Some(ended) = jobs.join_next().await {
        survived(ended);
    }
}

/// A panic in the work around a planner is a panic of this part of the service.
fn survived(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && let Ok(payload) = error.try_into_panic()
    {
        std::panic::resume_unwind(payload);
    }
}

/// Claims one job, and settles it at once if there is nothing to solve.
async fn claim(crew: &Crew, free: &Free) -> store::Result<Claimed> {
    let own: Vec<Uuid> = crew.own().iter().copied().collect();
    let offer = Offer { lease: LEASE, long: free.takes_long(), from_the_dead: crew.is_calm(), own: &own };
    let mut tx = crew.app.pool.begin().await?;
    let Some(job) = store::jobs::claim(&mut tx, &offer).await? else { return Ok(Claimed::Nothing) };
    let at = now();
    if !store::plans::start(&mut tx, job.plan, at).await? {
        store::jobs::delete(&mut tx, &job).await?;
        store::plans::finish(&mut tx, job.plan, "cancelled", None, None, at).await?;
        tx.commit().await?;
        tracing::info!(plan = %job.plan, "cancelled before it was solved");
        return Ok(Claimed::Settled);
    }
    if job.deaths >= DEATHS_MAX {
        let error = format!("its worker died {DEATHS_MAX} times");
        store::jobs::delete(&mut tx, &job).await?;
        store::plans::finish(&mut tx, job.plan, "failed", None, Some(&error), at).await?;
        tx.commit().await?;
        tracing::error!(plan = %job.plan, error, "job over");
        return Ok(Claimed::Settled);
    }
    let row = store::plans::get(&mut tx, job.plan).await?.ok_or(store::Error::RowNotFound)?;
    tx.commit().await?;
    if job.deaths > 0 {
        counts::DEATHS.add();
        tracing::warn!(plan = %job.plan, deaths = job.deaths, "taken over: who had it is silent");
    }
    tracing::info!(plan = %job.plan, claim = job.attempts, "solving");
    Ok(Claimed::Plan(job, Box::new(row)))
}
