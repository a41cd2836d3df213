//! Tokens of the HTTP interface, with the digests of their secrets.

use super::connection::{PgConnection, Result, Time};
use apportion_wire::Scope;
use uuid::Uuid;

/// A token.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct TokenRow {
    /// Its identifier.
    pub id: Uuid,
    /// Its name, for people.
    pub name: String,
    /// What it allows.
    #[sqlx(try_from = "String")]
    pub scope: Scope,
    /// SHA-256 of its secret.
    pub digest: Vec<u8>,
    /// Who made it.
    pub created_by: String,
    /// When it was made.
    pub created_at: Time,
    /// When it ends; `None`: never.
    pub expires_at: Option<Time>,
    /// When it was revoked; `None`: it counts.
    pub revoked_at: Option<Time>,
}

/// The columns of a row, in its order.
const COLUMNS: &str = "id, name, scope, digest, created_by, created_at, expires_at, revoked_at";

/// Stores a token.
///
/// # Errors
/// The database's.
pub async fn insert(db: &mut PgConnection, row: &TokenRow) -> Result<()> {
    sqlx::query(
        "insert into tokens (id, name, scope, digest, created_by, created_at, expires_at)
         values ($1, $2, $3, $4, $5, $6, $7)",
    )
    .bind(row.id)
    .bind(&row.name)
    .bind(row.scope.name())
    .bind(&row.digest)
    .bind(&row.created_by)
    .bind(row.created_at)
    .bind(row.expires_at)
    .execute(db)
    .await?;
    Ok(())
}

/// One token.
///
/// # Errors
/// The database's.
pub async fn get(db: &mut PgConnection, id: Uuid) -> Result<Option<TokenRow>> {
    let text = format!("select {COLUMNS} from tokens where id = $1");
    sqlx::query_as(sqlx::AssertSqlSafe(text)).bind(id).fetch_optional(db).await
}

/// At most `limit` tokens before this one, the newest first; `None`: the newest of all.
///
/// # Errors
/// The database's.
pub async fn list(db: &mut PgConnection, before: Option<Uuid>, limit: i64) -> Result<Vec<TokenRow>> {
    let text = format!("select {COLUMNS} from tokens where $1::uuid is null or id < $1 order by id desc limit $2");
    sqlx::query_as(sqlx::AssertSqlSafe(text)).persistent(false).bind(before).bind(limit).fetch_all(db).await
}

/// Whether a token counts at this moment that allows everything.
///
/// # Errors
/// The database's.
pub async fn has_admin(db: &mut PgConnection, at: Time) -> Result<bool> {
    sqlx::query_scalar(
        "select exists (select from tokens where scope = 'admin' and revoked_at is null
         and (expires_at is null or expires_at > $1))",
    )
    .bind(at)
    .fetch_one(db)
    .await
}

/// Revokes a token; returns whether there is one. A revoked one keeps its moment.
///
/// # Errors
/// The database's.
pub async fn revoke(db: &mut PgConnection, id: Uuid, at: Time) -> Result<bool> {
    let done = sqlx::query("update tokens set revoked_at = coalesce(revoked_at, $2) where id = $1")
        .bind(id)
        .bind(at)
        .execute(db)
        .await?;
    Ok(done.rows_affected() == 1)
}
