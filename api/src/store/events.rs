//! Events in the order of their commits. Triggers of the database write most of them (`migrations/0035_events.sql`).

use super::connection::{PgConnection, Result, Time};
use serde_json::Value;
use std::collections::BTreeMap;

/// Channel on which new events are announced when their transactions commit.
pub const CHANNEL: &str = "apportion_events";

/// An event.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct EventRow {
    /// Its number. All events with lower numbers were committed before it.
    pub id: i64,
    /// When it was made.
    pub made_at: Time,
    /// Its kind.
    pub kind: String,
    /// Its pipeline; `None` if it concerns no single one.
    pub pipeline: Option<String>,
    /// Its facts.
    pub detail: Value,
}

/// The filter of a reader.
#[derive(Clone, Debug, Default)]
pub struct EventFilter {
    /// Only events of this kind.
    pub kind: Option<String>,
    /// Only events of this pipeline.
    pub pipeline: Option<String>,
}

/// Adds an event, in a transaction of its own.
///
/// # Errors
/// The database's.
pub async fn insert(db: &mut PgConnection, kind: &str, pipeline: &str, detail: &Value) -> Result<()> {
    sqlx::query("select note_event($1, $2, $3)").bind(kind).bind(pipeline).bind(detail).execute(db).await?;
    Ok(())
}

/// Adds an event that concerns no single pipeline.
///
/// # Errors
/// The database's.
pub async fn insert_for_fleet(db: &mut PgConnection, kind: &str, detail: &Value) -> Result<()> {
    sqlx::query("select note_event($1, null, $2)").bind(kind).bind(detail).execute(db).await?;
    Ok(())
}

/// The event with this number.
///
/// # Errors
/// The database's.
pub async fn get(db: &mut PgConnection, id: i64) -> Result<Option<EventRow>> {
    let select = "select id, made_at, kind, pipeline, detail from events where id = $1";
    sqlx::query_as(select).bind(id).fetch_optional(db).await
}

/// Gives later events, and later entries of the audit, numbers above this one, and above those that are there.
///
/// # Errors
/// The database's.
pub async fn number_above(db: &mut PgConnection, number: i64) -> Result<()> {
    const SKIP: &str = "select setval(pg_get_serial_sequence('events', 'id'),
                        greatest($1, (select max(id) from events), (select max(number) from audit)))";
    sqlx::query(SKIP).bind(number).execute(db).await?;
    Ok(())
}

/// The facts of the last event of this kind of a pipeline.
///
/// # Errors
/// The database's.
pub async fn last(db: &mut PgConnection, kind: &str, pipeline: &str) -> Result<Option<Value>> {
    sqlx::query_scalar("select detail from events where kind = $1 and pipeline = $2 order by id desc limit 1")
        .bind(kind)
        .bind(pipeline)
        .fetch_optional(db)
        .await
}

/// The facts of the last event of this kind, by pipeline.
///
/// # Errors
/// The database's.
pub async fn last_by_pipeline(db: &mut PgConnection, kind: &str) -> Result<BTreeMap<String, Value>> {
    let rows: Vec<(String, Value)> = sqlx::query_as(
        "select distinct on (pipeline) pipeline, detail from events where kind = $1 and pipeline is not null
         order by pipeline, id desc",
    )
    .bind(kind)
    .fetch_all(db)
    .await?;
    Ok(rows.into_iter().collect())
}

/// The oldest events after `after`, in their order, at most `limit`.
///
/// # Errors
/// The database's.
pub async fn after(db: &mut PgConnection, after: i64, filter: &EventFilter, limit: i64) -> Result<Vec<EventRow>> {
    sqlx::query_as(
        "select id, made_at, kind, pipeline, detail from events where id > $1 and ($2::text is null or kind = $2)
         and ($3::text is null or pipeline = $3) order by id limit $4",
    )
    .bind(after)
    .bind(&filter.kind)
    .bind(&filter.pipeline)
    .bind(limit)
    .fetch_all(db)
    .await
}

/// At most `limit` events before `before`, the newest first; `None`: the newest of all.
///
/// # Errors
/// The database's.
pub async fn before(db: &mut PgConnection, before: Option<i64>, filter: &EventFilter, limit: i64) -> Result<Vec<EventRow>> {
    sqlx::query_as(
        "select id, made_at, kind, pipeline, detail from events where ($1::bigint is null or id < $1)
         and ($2::text is null or kind = $2) and ($3::text is null or pipeline = $3) order by id desc limit $4",
    )
    .persistent(false)
    .bind(before)
    .bind(&filter.kind)
    .bind(&filter.pipeline)
    .bind(limit)
    .fetch_all(db)
    .await
}

/// The number of the newest event; 0 before the first.
///
/// # Errors
/// The database's.
pub async fn newest(db: &mut PgConnection) -> Result<i64> {
    sqlx::query_scalar("select coalesce(max(id), 0) from events").fetch_one(db).await
}
