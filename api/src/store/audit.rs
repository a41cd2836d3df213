//! The audit: who asked for which change, and with which result.

use super::connection::{PgConnection, Result, Time};
use uuid::Uuid;

/// One request for a change.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct AuditRow {
    /// Its identifier.
    pub id: Uuid,
    /// When it was answered.
    pub made_at: Time,
    /// The name of the client.
    pub who: String,
    /// Its token; `None`: no token of the table.
    pub token: Option<Uuid>,
    /// The method.
    pub method: String,
    /// The path.
    pub path: String,
    /// The status of the answer; 499 if the client left before it.
    pub status: i32,
}

/// Stores an entry, unless it is there already.
///
/// # Errors
/// The database's.
pub async fn insert(db: &mut PgConnection, row: &AuditRow) -> Result<()> {
    sqlx::query(
        "insert into audit (id, made_at, who, token, method, path, status) values ($1, $2, $3, $4, $5, $6, $7)
         on conflict (id) do nothing",
    )
    .bind(row.id)
    .bind(row.made_at)
    .bind(&row.who)
    .bind(row.token)
    .bind(&row.method)
    .bind(&row.path)
    .bind(row.status)
    .execute(db)
    .await?;
    Ok(())
}

/// At most `limit` entries before `before`, the newest first; `None`: the newest of all. With `who` only those of clients
/// with this name.
///
/// # Errors
/// The database's.
pub async fn list(db: &mut PgConnection, who: Option<&str>, before: Option<Uuid>, limit: i64) -> Result<Vec<AuditRow>> {
    sqlx::query_as(
        "select id, made_at, who, token, method, path, status from audit
         where ($1::uuid is null or id < $1) and ($3::text is null or who = $3) order by id desc limit $2",
    )
    .persistent(false)
    .bind(before)
    .bind(limit)
    .bind(who)
    .fetch_all(db)
    .await
}
