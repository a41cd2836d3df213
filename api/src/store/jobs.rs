//! The queue of plans to be solved.
//!
//! Leases are told by the database's clock, so that processes whose clocks differ agree on who is dead. Whoever changes a
//! plan and its job locks the job first: two that lock in one order never wait for each other in a circle, and none acts on
//! what the other has just changed.

use super::{PgConnection, Result};
use std::time::Duration;
use uuid::Uuid;

/// A claimed job.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct JobRow {
    /// The plan to solve.
    pub plan: Uuid,
    /// How often it was claimed, this time included: who has another number has lost it.
    pub attempts: i32,
    /// How often who had it let the lease run out.
    pub deaths: i32,
    /// Whether it may take long.
    pub long: bool,
}

/// What a claimer will take.
#[derive(Clone, Debug)]
pub struct Offer<'a> {
    /// How long it will have the job before it must renew.
    pub lease: Duration,
    /// Whether it takes jobs that may take long.
    pub long: bool,
    /// Whether it takes the jobs of those whose lease has run out.
    pub from_the_dead: bool,
    /// What it is at already: a lease of its own that has run out is no death.
    pub own: &'a [Uuid],
}

/// Enqueues a plan, in the transaction that stores it.
///
/// # Errors
/// The database's.
pub async fn enqueue(db: &mut PgConnection, plan: Uuid, long: bool) -> Result<()> {
    sqlx::query("insert into jobs (plan, long) values ($1, $2)").bind(plan).bind(long).execute(db).await?;
    Ok(())
}

/// Claims the oldest job that nobody has, or whose holder let its lease run out: that counts as a death.
///
/// # Errors
/// The database's.
pub async fn claim(db: &mut PgConnection, offer: &Offer<'_>) -> Result<Option<JobRow>> {
    sqlx::query_as(
        "update jobs set attempts = attempts + 1, deaths = deaths + (lease_until is not null)::integer,
         lease_until = clock_timestamp() + make_interval(secs => $1) where plan =
         (select plan from jobs where (lease_until is null or ($2 and lease_until < clock_timestamp()))
          and ($3 or not long) and plan <> all($4) order by plan limit 1 for update skip locked)
         returning plan, attempts, deaths, long",
    )
    .bind(offer.lease.as_secs_f64())
    .bind(offer.from_the_dead)
    .bind(offer.long)
    .bind(offer.own)
    .fetch_optional(db)
    .await
}

/// Prolongs a lease; answers whether the job is still there with these attempts.
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

/// Puts a job back for whoever comes next; answers whether it was still the claimer's. No death is counted.
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

/// Deletes a job; answers whether it was still the claimer's.
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

/// Deletes the job of a plan if nobody is at it; the job, if there is one, is locked until the transaction ends.
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

/// How many jobs wait or are being worked on.
///
/// # Errors
/// The database's.
pub async fn open(db: &mut PgConnection) -> Result<i64> {
    sqlx::query_scalar("select count(*) from jobs").fetch_one(db).await
}
