//! The queue of plans to be solved.
//!
//! Leases are measured by the database's clock, so that processes with different clocks agree which workers are dead. A
//! transaction that changes a plan and its job locks the job first. Because all lock in one order, they never deadlock.

use super::connection::{PgConnection, Result};
use std::time::Duration;
use uuid::Uuid;

/// How much time the solver of a plan may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SolveTime {
    /// At most the default limit.
    Usual,
    /// More than the default limit: the plan must leave places to other plans.
    Long,
}

impl From<bool> for SolveTime {
    /// The column `long` of a job.
    fn from(long: bool) -> Self {
        if long { Self::Long } else { Self::Usual }
    }
}

/// A claimed job.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct JobRow {
    /// The plan to solve.
    pub plan: Uuid,
    /// How often it was claimed, this claim included. A worker with another number has lost the job.
    pub attempts: i32,
    /// How often a worker let its lease expire.
    pub deaths: i32,
    /// How much time its solver may take.
    #[sqlx(rename = "long", try_from = "bool")]
    pub solve_time: SolveTime,
}

/// The jobs that a worker accepts.
#[derive(Clone, Debug)]
pub struct JobFilter<'a> {
    /// The duration of its lease.
    pub lease: Duration,
    /// Whether it accepts jobs with [`SolveTime::Long`].
    pub long: bool,
    /// Whether it takes over jobs whose lease has expired.
    pub take_over: bool,
    /// The plans that its process solves: its own expired lease is no death.
    pub own: &'a [Uuid],
}

/// Enqueues a plan, in the transaction that stores it.
///
/// # Errors
/// The database's.
pub async fn enqueue(db: &mut PgConnection, plan: Uuid, solve_time: SolveTime) -> Result<()> {
    let insert = sqlx::query("insert into jobs (plan, long) values ($1, $2)");
    insert.bind(plan).bind(solve_time == SolveTime::Long).execute(db).await?;
    Ok(())
}

/// Claims the oldest job without a lease, or with an expired one. An expired lease counts as the death of its worker.
///
/// # Errors
/// The database's.
pub async fn claim(db: &mut PgConnection, offer: &JobFilter<'_>) -> Result<Option<JobRow>> {
    sqlx::query_as(
        "update jobs set attempts = attempts + 1, deaths = deaths + (lease_until is not null)::integer,
         lease_until = clock_timestamp() + make_interval(secs => $1) where plan =
         (select plan from jobs where (lease_until is null or ($2 and lease_until < clock_timestamp()))
          and ($3 or not long) and plan <> all($4) order by plan limit 1 for update skip locked)
         returning plan, attempts, deaths, long",
    )
    .bind(offer.lease.as_secs_f64())
    .bind(offer.take_over)
    .bind(offer.long)
    .bind(offer.own)
    .fetch_optional(db)
    .await
}

/// Renews a lease; returns whether the worker still has the job.
///
/// # Errors
/// The database's.
pub async fn renew(db: &mut PgConnection, job: &JobRow, lease: Duration) -> Result<bool> {
    let done = sqlx::query(
        "update jobs set lease_until = clock_timestamp() + make_interval(secs => $3) where plan = $1 and attempts = $2",
    )
    .bind(job.plan)
    .bind(job.attempts)
    .bind(lease.as_secs_f64())
    .execute(db)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Puts a job back for the next worker; returns whether the worker still had it. It counts as no death.
///
/// # Errors
/// The database's.
pub async fn put_back(db: &mut PgConnection, job: &JobRow) -> Result<bool> {
    let done = sqlx::query("update jobs set lease_until = null where plan = $1 and attempts = $2")
        .bind(job.plan)
        .bind(job.attempts)
        .execute(db)
        .await?;
    Ok(done.rows_affected() == 1)
}

/// Deletes a job; returns whether the worker still had it.
///
/// # Errors
/// The database's.
pub async fn delete(db: &mut PgConnection, job: &JobRow) -> Result<bool> {
    let done = sqlx::query("delete from jobs where plan = $1 and attempts = $2")
        .bind(job.plan)
        .bind(job.attempts)
        .execute(db)
        .await?;
    Ok(done.rows_affected() == 1)
}

/// Deletes the job of a plan if no worker has it. A remaining job is locked until the transaction ends.
///
/// # Errors
/// The database's.
pub async fn withdraw(db: &mut PgConnection, plan: Uuid) -> Result<()> {
    sqlx::query("select from jobs where plan = $1 for update").bind(plan).execute(&mut *db).await?;
    sqlx::query("delete from jobs where plan = $1 and (lease_until is null or lease_until < clock_timestamp())")
        .bind(plan)
        .execute(db)
        .await?;
    Ok(())
}

/// How many jobs wait or are being solved.
///
/// # Errors
/// The database's.
pub async fn count_open(db: &mut PgConnection) -> Result<i64> {
    sqlx::query_scalar("select count(*) from jobs").fetch_one(db).await
}
