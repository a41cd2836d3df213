//! The fleet's target: one row, replaced by compare-and-set on its generation.

use super::connection::{PgConnection, Result, Time};
use serde_json::Value;
use uuid::Uuid;

/// Channel on which a new generation is announced when its transaction commits.
pub const CHANNEL: &str = "apportion_target";

/// The target in force.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct TargetRow {
    /// The incarnation of the database.
    pub incarnation: i64,
    /// Its generation: the number of targets so far.
    pub generation: i64,
    /// Its plans.
    pub plans: Vec<Uuid>,
    /// Replicas on devices.
    pub placement: Value,
    /// The pipelines' specs with profiles, as they were when it was made.
    pub specs: Value,
    /// The message that agents receive; empty before the first target.
    pub composed: Vec<u8>,
    /// The reason for it.
    pub reason: String,
    /// When it was committed; `None` before the first.
    pub committed_at: Option<Time>,
}

/// The target in force.
///
/// # Errors
/// The database's.
pub async fn get(db: &mut PgConnection) -> Result<TargetRow> {
    sqlx::query_as("select incarnation, generation, plans, placement, specs, composed, reason, committed_at from target")
        .fetch_one(db)
        .await
}

/// Replaces the target if its generation is still one below `next`'s, and announces it; returns whether it did.
///
/// # Errors
/// The database's.
pub async fn replace(db: &mut PgConnection, next: &TargetRow) -> Result<bool> {
    let done = sqlx::query(
        "update target set generation = $1, plans = $2, placement = $3, specs = $4, composed = $5, reason = $6,
         committed_at = $7 where generation = $1 - 1 and incarnation = $8",
    )
    .bind(next.generation)
    .bind(&next.plans)
    .bind(&next.placement)
    .bind(&next.specs)
    .bind(&next.composed)
    .bind(&next.reason)
    .bind(next.committed_at)
    .bind(next.incarnation)
    .execute(&mut *db)
    .await?;
    if done.rows_affected() != 1 {
        return Ok(false);
    }
    announce(db, next).await?;
    Ok(true)
}

/// Writes the history, and notifies every process.
async fn announce(db: &mut PgConnection, next: &TargetRow) -> Result<()> {
    sqlx::query(
        "insert into target_history (generation, plans, placement, reason, committed_at) values ($1, $2, $3, $4, $5)",
    )
    .bind(next.generation)
    .bind(&next.plans)
    .bind(&next.placement)
    .bind(&next.reason)
    .bind(next.committed_at)
    .execute(&mut *db)
    .await?;
    sqlx::query("select pg_notify($1, $2)").bind(CHANNEL).bind(next.generation.to_string()).execute(db).await?;
    Ok(())
}

/// Replaces the target `current` by one with a later incarnation, if it is still in force; returns whether it did.
///
/// # Errors
/// The database's.
pub async fn reincarnate(db: &mut PgConnection, next: &TargetRow, current: &TargetRow) -> Result<bool> {
    let done = sqlx::query(
        "update target set incarnation = $1, generation = $2, placement = $3, composed = $4, reason = $5, committed_at = $6
         where incarnation = $7 and generation = $8",
    )
    .bind(next.incarnation)
    .bind(next.generation)
    .bind(&next.placement)
    .bind(&next.composed)
    .bind(&next.reason)
    .bind(next.committed_at)
    .bind(current.incarnation)
    .bind(current.generation)
    .execute(&mut *db)
    .await?;
    if done.rows_affected() == 1 && next.generation > current.generation {
        announce(db, next).await?;
    }
    Ok(done.rows_affected() == 1)
}

/// Now, by the database's clock.
///
/// # Errors
/// The database's.
pub async fn clock(db: &mut PgConnection) -> Result<Time> {
    sqlx::query_scalar("select clock_timestamp()").fetch_one(db).await
}

/// One step of the target's history.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct HistoryRow {
    /// Its generation.
    pub generation: i64,
    /// Its plans.
    pub plans: Vec<Uuid>,
    /// Replicas on devices.
    pub placement: Value,
    /// The reason for it.
    pub reason: String,
    /// When it was committed.
    pub committed_at: Time,
}

/// The target of this generation.
///
/// # Errors
/// The database's.
pub async fn former(db: &mut PgConnection, generation: i64) -> Result<Option<HistoryRow>> {
    sqlx::query_as("select generation, plans, placement, reason, committed_at from target_history where generation = $1")
        .bind(generation)
        .fetch_optional(db)
        .await
}

/// The newest target with other plans than the one in force.
///
/// # Errors
/// The database's.
pub async fn last_other(db: &mut PgConnection) -> Result<Option<HistoryRow>> {
    sqlx::query_as(
        "select h.generation, h.plans, h.placement, h.reason, h.committed_at from target_history h, target t
         where h.generation < t.generation and h.plans <> t.plans order by h.generation desc limit 1",
    )
    .fetch_optional(db)
    .await
}

/// At most `limit` targets before this generation, the newest first; `None`: the newest of all. With `plan` only those that
/// had it.
///
/// # Errors
/// The database's.
pub async fn history(
    db: &mut PgConnection,
    plan: Option<Uuid>,
    before: Option<i64>,
    limit: i64,
) -> Result<Vec<HistoryRow>> {
    sqlx::query_as(
        "select generation, plans, placement, reason, committed_at from target_history
         where ($1::bigint is null or generation < $1) and ($3::uuid is null or plans @> array[$3])
         order by generation desc limit $2",
    )
    .persistent(false)
    .bind(before)
    .bind(limit)
    .bind(plan)
    .fetch_all(db)
    .await
}
