//! Offered queries per pipeline and second, as agents reported them.
//!
//! The table has partitions by time. A statement that reads it is not kept, so PostgreSQL plans it with its seconds, and
//! opens the partitions of these seconds only.

use super::connection::{PgConnection, Result};

/// One second of one pipeline.
#[derive(Clone, Debug, Default, PartialEq, Eq, sqlx::FromRow)]
pub struct ArrivalsRow {
    /// The pipeline.
    pub pipeline: String,
    /// Unix time.
    pub second: i64,
    /// Root queries that arrived, shed ones included.
    pub offered: i64,
    /// Requests answered in time.
    pub ok: i64,
    /// Requests answered late.
    pub late: i64,
    /// Requests dropped.
    pub dropped: i64,
    /// Requests that failed.
    pub failed: i64,
}

/// Adds the report of one agent.
///
/// # Errors
/// The database's.
pub async fn add(db: &mut PgConnection, row: &ArrivalsRow) -> Result<()> {
    sqlx::query(
        "insert into arrivals as a (pipeline, second, offered, ok, late, dropped, failed)
         values ($1, $2, $3, $4, $5, $6, $7)
         on conflict (pipeline, second) do update set offered = a.offered + $3, ok = a.ok + $4, late = a.late + $5,
         dropped = a.dropped + $6, failed = a.failed + $7",
    )
    .bind(&row.pipeline)
    .bind(row.second)
    .bind(row.offered)
    .bind(row.ok)
    .bind(row.late)
    .bind(row.dropped)
    .bind(row.failed)
    .execute(db)
    .await?;
    Ok(())
}

/// The seconds from `from` (included) to `to` (excluded), by pipeline and second; of one pipeline if it is named.
///
/// # Errors
/// The database's.
pub async fn between(db: &mut PgConnection, pipeline: Option<&str>, from: i64, to: i64) -> Result<Vec<ArrivalsRow>> {
    sqlx::query_as(
        "select pipeline, second, offered, ok, late, dropped, failed from arrivals
         where ($1::text is null or pipeline = $1) and second >= $2 and second < $3 order by pipeline, second",
    )
    .persistent(false)
    .bind(pipeline)
    .bind(from)
    .bind(to)
    .fetch_all(db)
    .await
}

/// The sums of the seconds from `from` (included) to `to` (excluded) of each pipeline that has any, by name. There are at
/// most `limit` rows, after this name. Each row's second is the newest of its pipeline.
///
/// # Errors
/// The database's.
pub async fn sums(db: &mut PgConnection, from: i64, to: i64, after: Option<&str>, limit: i64) -> Result<Vec<ArrivalsRow>> {
    sqlx::query_as(
        "select pipeline, max(second) as second, sum(offered)::bigint as offered, sum(ok)::bigint as ok,
         sum(late)::bigint as late, sum(dropped)::bigint as dropped, sum(failed)::bigint as failed
         from arrivals where second >= $1 and second < $2 and ($3::text is null or pipeline > $3)
         group by pipeline order by pipeline limit $4",
    )
    .persistent(false)
    .bind(from)
    .bind(to)
    .bind(after)
    .bind(limit)
    .fetch_all(db)
    .await
}

/// Requests of one pipeline that ended, and those of them that missed, over three windows.
#[derive(Clone, Debug, Default, PartialEq, Eq, sqlx::FromRow)]
pub struct OutcomesRow {
    /// The pipeline.
    pub pipeline: String,
    /// Of the shortest window.
    pub ended_fast: i64,
    /// Late, dropped and failed ones of the shortest window.
    pub missed_fast: i64,
    /// Of the middle window.
    pub ended_slow: i64,
    /// Late, dropped and failed ones of the middle window.
    pub missed_slow: i64,
    /// Of the longest window.
    pub ended: i64,
    /// Late, dropped and failed ones of the longest window.
    pub missed: i64,
}

/// The outcomes of each pipeline before the second `to`, over windows of so many seconds, the shortest first.
///
/// # Errors
/// The database's.
pub async fn outcomes(db: &mut PgConnection, to: i64, windows: [i64; 3]) -> Result<Vec<OutcomesRow>> {
    let [fast, slow, whole] = windows.map(|seconds| to - seconds);
    sqlx::query_as(
        "with counted as (
           select pipeline, second, ok + late + dropped + failed as ended, late + dropped + failed as missed
           from arrivals where second >= $3 and second < $4)
         select pipeline,
           coalesce(sum(ended) filter (where second >= $1), 0)::bigint as ended_fast,
           coalesce(sum(missed) filter (where second >= $1), 0)::bigint as missed_fast,
           coalesce(sum(ended) filter (where second >= $2), 0)::bigint as ended_slow,
           coalesce(sum(missed) filter (where second >= $2), 0)::bigint as missed_slow,
           sum(ended)::bigint as ended, sum(missed)::bigint as missed
         from counted group by pipeline order by pipeline",
    )
    .persistent(false)
    .bind(fast)
    .bind(slow)
    .bind(whole)
    .bind(to)
    .fetch_all(db)
    .await
}
