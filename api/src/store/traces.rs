//! Uploaded traces.

use super::connection::{PgConnection, Result, Time};
use apportion_wire::TraceKind;
use uuid::Uuid;

/// A trace without its rows.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct TraceRow {
    /// Its identifier.
    pub id: Uuid,
    /// Its name, not unique.
    pub name: String,
    /// The meaning of its rows.
    #[sqlx(try_from = "String")]
    pub kind: TraceKind,
    /// The number of its rows.
    pub rows: i64,
    /// When it was uploaded.
    pub created_at: Time,
}

/// Stores a trace.
///
/// # Errors
/// The database's.
pub async fn insert(db: &mut PgConnection, row: &TraceRow, csv: &str) -> Result<()> {
    sqlx::query("insert into traces (id, name, kind, rows, csv, created_at) values ($1, $2, $3, $4, $5, $6)")
        .bind(row.id)
        .bind(&row.name)
        .bind(row.kind.name())
        .bind(row.rows)
        .bind(csv)
        .bind(row.created_at)
        .execute(db)
        .await?;
    Ok(())
}

/// The trace with this identifier.
///
/// # Errors
/// The database's.
pub async fn get(db: &mut PgConnection, id: Uuid) -> Result<Option<TraceRow>> {
    sqlx::query_as("select id, name, kind, rows, created_at from traces where id = $1").bind(id).fetch_optional(db).await
}

/// Whether there is a trace with this identifier. Until the transaction ends, no other one can delete it.
///
/// # Errors
/// The database's.
pub async fn share(db: &mut PgConnection, id: Uuid) -> Result<bool> {
    let found = sqlx::query("select 1 from traces where id = $1 for share").bind(id).fetch_optional(db).await?;
    Ok(found.is_some())
}

/// The newest trace with this name.
///
/// # Errors
/// The database's.
pub async fn newest_named(db: &mut PgConnection, name: &str) -> Result<Option<TraceRow>> {
    let newest = "select id, name, kind, rows, created_at from traces where name = $1 order by id desc limit 1";
    sqlx::query_as(newest).bind(name).fetch_optional(db).await
}

/// Its rows as they were uploaded.
///
/// # Errors
/// The database's.
pub async fn csv(db: &mut PgConnection, id: Uuid) -> Result<Option<String>> {
    sqlx::query_scalar("select csv from traces where id = $1").bind(id).fetch_optional(db).await
}

/// At most `limit` traces before this one, the newest first; `None`: the newest of all.
///
/// # Errors
/// The database's.
pub async fn list(db: &mut PgConnection, before: Option<Uuid>, limit: i64) -> Result<Vec<TraceRow>> {
    sqlx::query_as(
        "select id, name, kind, rows, created_at from traces where $1::uuid is null or id < $1 order by id desc limit $2",
    )
    .persistent(false)
    .bind(before)
    .bind(limit)
    .fetch_all(db)
    .await
}
