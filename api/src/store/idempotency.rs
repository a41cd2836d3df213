//! Which request has used an idempotency key?

use super::connection::{PgConnection, Result, Time};
use super::jobs::JobQueue;
use uuid::Uuid;

/// An idempotency key that was used already.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct KeyRow {
    /// The digest of its request.
    pub request: String,
    /// The plan or the analysis of its request.
    pub id: Uuid,
}

/// The row of an idempotency key. The key is locked until the transaction ends.
///
/// # Errors
/// The database's.
pub async fn known_key(db: &mut PgConnection, queue: JobQueue, key: &str) -> Result<Option<KeyRow>> {
    sqlx::query("select pg_advisory_xact_lock(hashtext('key:' || $1))").bind(key).execute(&mut *db).await?;
    let select = match queue {
        JobQueue::Plans => "select request, plan as id from idempotency where key = $1",
        JobQueue::Analyses => "select request, analysis as id from analysis_idempotency where key = $1",
    };
    sqlx::query_as(select).bind(key).fetch_optional(db).await
}

/// A request that may be sent again under its key.
#[derive(Clone, Copy, Debug)]
pub struct UsedKey<'a> {
    /// The key.
    pub key: &'a str,
    /// The digest of the request.
    pub request: &'a str,
    /// The plan or the analysis of the request.
    pub id: Uuid,
}

/// Stores the idempotency key of a request.
///
/// # Errors
/// The database's.
pub async fn remember_key(db: &mut PgConnection, queue: JobQueue, used: UsedKey<'_>, at: Time) -> Result<()> {
    let insert = match queue {
        JobQueue::Plans => "insert into idempotency (key, request, plan, created_at) values ($1, $2, $3, $4)",
        JobQueue::Analyses => {
            "insert into analysis_idempotency (key, request, analysis, created_at) values ($1, $2, $3, $4)"
        }
    };
    sqlx::query(insert).bind(used.key).bind(used.request).bind(used.id).bind(at).execute(db).await?;
    Ok(())
}
