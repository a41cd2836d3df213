//! Which request has used an idempotency key?

use super::connection::{PgConnection, Result, Time};
use super::jobs::JobQueue;
use uuid::Uuid;

/// What a request with a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyedRequest {
    /// A plan.
    Plan,
    /// An analysis.
    Analysis,
    /// A profile job.
    ProfileJob,
    /// A trace.
    Trace,
    /// A token.
    Token,
}

impl From<JobQueue> for KeyedRequest {
    fn from(queue: JobQueue) -> Self {
        match queue {
            JobQueue::Plans => Self::Plan,
            JobQueue::Analyses => Self::Analysis,
        }
    }
}

/// An idempotency key that was used already.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct KeyRow {
    /// The digest of its request.
    pub request: String,
    /// What its request made.
    pub id: Uuid,
}

/// The row of an idempotency key. The key is locked until the transaction ends.
///
/// # Errors
/// The database's.
pub async fn known_key(db: &mut PgConnection, asked: KeyedRequest, key: &str) -> Result<Option<KeyRow>> {
    sqlx::query("select pg_advisory_xact_lock(hashtext('key:' || $1))").bind(key).execute(&mut *db).await?;
    let select = match asked {
        KeyedRequest::Plan => "select request, plan as id from idempotency where key = $1",
        KeyedRequest::Analysis => "select request, analysis as id from analysis_idempotency where key = $1",
        KeyedRequest::ProfileJob => "select request, job as id from profile_job_idempotency where key = $1",
        KeyedRequest::Trace => "select request, trace as id from trace_idempotency where key = $1",
        KeyedRequest::Token => "select request, token as id from token_idempotency where key = $1",
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
    /// What the request made.
    pub id: Uuid,
}

/// Stores the idempotency key of a request.
///
/// # Errors
/// The database's.
pub async fn remember_key(db: &mut PgConnection, asked: KeyedRequest, used: UsedKey<'_>, at: Time) -> Result<()> {
    let insert = match asked {
        KeyedRequest::Plan => "insert into idempotency (key, request, plan, created_at) values ($1, $2, $3, $4)",
        KeyedRequest::Analysis => {
            "insert into analysis_idempotency (key, request, analysis, created_at) values ($1, $2, $3, $4)"
        }
        KeyedRequest::ProfileJob => {
            "insert into profile_job_idempotency (key, request, job, created_at) values ($1, $2, $3, $4)"
        }
        KeyedRequest::Trace => "insert into trace_idempotency (key, request, trace, created_at) values ($1, $2, $3, $4)",
        KeyedRequest::Token => "insert into token_idempotency (key, request, token, created_at) values ($1, $2, $3, $4)",
    };
    sqlx::query(insert).bind(used.key).bind(used.request).bind(used.id).bind(at).execute(db).await?;
    Ok(())
}
