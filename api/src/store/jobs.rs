//! The queue of plans to be solved.

use super::{PgConnection, Result, Time};
use uuid::Uuid;

/// A claimed job.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct JobRow {
    /// The plan to solve.
    pub plan: Uuid,
    /// How often it was claimed, this time included.
    pub attempts: i32,
}

/// Enqueues a plan, in the transaction that stores it.
///
/// # Errors
/// The database's.
pub async fn enqueue(db: &mut PgConnection, plan: Uuid) -> Result<()> {
    sqlx::query("insert into jobs (plan) values ($1)").bind(plan).execute(db).await?;
    Ok(())
}

/// Claims the oldest job that nobody has, or whose holder let its lease run out.
///
/// # Errors
/// The database's.
pub async fn claim(db: &mut PgConnection, now: Time, lease_until: Time) -> Result<Option<JobRow>> {
    sqlx::query_as(
        "update jobs set attempts = attempts + 1, lease_until = $2 where plan =
         (select plan from jobs where lease_until is null or lease_until < $1 order by plan limit 1 for update skip locked)
         returning plan, attempts",
    )
    .bind(now)
    .bind(lease_until)
    .fetch_optional(db)
    .await
}

/// Prolongs a lease; answers whether the job is still there with these attempts.
///
/// # Errors
/// The database's.
pub async fn renew(db: &mut PgConnection, job: &JobRow, lease_until: Time) -> Result<bool> {
    let done = sqlx::query("update jobs set lease_until = $3 where plan = $1 and attempts = $2")
        .bind(job.plan)
        .bind(job.attempts)
        .bind(lease_until)
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

/// How many jobs wait or are being worked on.
///
/// # Errors
/// The database's.
pub async fn open(db: &mut PgConnection) -> Result<i64> {
    sqlx::query_scalar("select count(*) from jobs").fetch_one(db).await
}
