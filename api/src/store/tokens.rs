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
    /// The project that it is bound to; `None`: all.
    pub project: Option<String>,
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
const COLUMNS: &str = "id, name, scope, project, digest, created_by, created_at, expires_at, revoked_at";

/// Stores a token.
///
/// # Errors
/// The database's.
pub async fn insert(db: &mut PgConnection, row: &TokenRow) -> Result<()> {
    sqlx::query(
        "insert into tokens (id, name, scope, digest, created_by, created_at, expires_at, project)
         values ($1, $2, $3, $4, $5, $6, $7, $8)",
    )
    .bind(row.id)
    .bind(&row.name)
    .bind(row.scope.name())
    .bind(&row.digest)
    .bind(&row.created_by)
    .bind(row.created_at)
    .bind(row.expires_at)
    .bind(&row.project)
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

/// The filter of a reader.
#[derive(Clone, Debug, Default)]
pub struct TokenFilter {
    /// Only tokens with this name.
    pub name: Option<String>,
    /// Only tokens that are bound to this project.
    pub project: Option<String>,
}

/// At most `limit` tokens before this one, the newest first; `None`: the newest of all.
///
/// # Errors
/// The database's.
pub async fn list(db: &mut PgConnection, filter: &TokenFilter, before: Option<Uuid>, limit: i64) -> Result<Vec<TokenRow>> {
    let text = format!(
        "select {COLUMNS} from tokens where ($1::uuid is null or id < $1) and ($3::text is null or name = $3)
         and ($4::text is null or project = $4) order by id desc limit $2"
    );
    let select = sqlx::query_as(sqlx::AssertSqlSafe(text)).persistent(false).bind(before).bind(limit);
    select.bind(&filter.name).bind(&filter.project).fetch_all(db).await
}

/// Asks whether a token with this condition counts at the moment `$1`.
macro_rules! has_valid {
    ($condition:literal) => {
        concat!(
            "select exists (select from tokens where revoked_at is null and (expires_at is null or expires_at > $1) and ",
            $condition,
            ")"
        )
    };
}

/// Whether a token counts at this moment.
///
/// # Errors
/// The database's.
pub async fn is_valid(db: &mut PgConnection, id: Uuid, at: Time) -> Result<bool> {
    sqlx::query_scalar(has_valid!("id = $2")).bind(at).bind(id).fetch_one(db).await
}

/// Whether a token counts at this moment that is bound to this project.
///
/// # Errors
/// The database's.
pub async fn has_bound(db: &mut PgConnection, project: &str, at: Time) -> Result<bool> {
    sqlx::query_scalar(has_valid!("project = $2")).bind(at).bind(project).fetch_one(db).await
}

/// Whether a token counts at this moment that allows everything.
///
/// # Errors
/// The database's.
pub async fn has_admin(db: &mut PgConnection, at: Time) -> Result<bool> {
    sqlx::query_scalar(has_valid!("scope = 'admin' and project is null")).bind(at).fetch_one(db).await
}

/// Revokes a token; returns whether there is one, bound to this project if it is named. A revoked one keeps its moment.
///
/// # Errors
/// The database's.
pub async fn revoke(db: &mut PgConnection, id: Uuid, project: Option<&str>, at: Time) -> Result<bool> {
    let update = "update tokens set revoked_at = coalesce(revoked_at, $2) where id = $1
                  and ($3::text is null or project = $3)";
    let done = sqlx::query(update).bind(id).bind(at).bind(project).execute(db).await?;
    Ok(done.rows_affected() == 1)
}
