//! The audit: who asked for which change, and with which result.

use super::connection::{PgConnection, Result, Time};
use serde_json::Value;
use uuid::Uuid;

/// One request for a change.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct AuditRow {
    /// Its identifier.
    pub id: Uuid,
    /// Its number, which the database gives. All entries and events with lower numbers were committed before it. `None`: it
    /// is not stored yet, or is from before there were numbers.
    pub number: Option<i64>,
    /// When it was answered.
    pub made_at: Time,
    /// The name of the client.
    pub who: String,
    /// The reason, as the client said it.
    pub why: Option<String>,
    /// Its token; `None`: no token of the table.
    pub token: Option<Uuid>,
    /// The method.
    pub method: String,
    /// The path.
    pub path: String,
    /// The status of the answer; 499 if the client left before it.
    pub status: i32,
    /// The form of the resource before the change.
    pub before: Option<Value>,
    /// Its form after the change.
    pub after: Option<Value>,
}

/// A kind of resource whose form is in the audit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditedKind {
    /// An agent, by its number.
    Agent,
    /// A hardware type, by its name.
    Hardware,
    /// A hold, by its pipeline; that of the fleet has an empty key.
    Hold,
    /// A pipeline, by its name.
    Pipeline,
    /// The measurements of a pipeline. Their form is their version.
    Profile,
    /// A project, by its name.
    Project,
    /// A schedule, by its name.
    Schedule,
    /// The target in force, whatever the key.
    Target,
    /// A token, by its identifier, without its digest.
    Token,
    /// A webhook, by its name, without its secret.
    Webhook,
}

/// Selects the form of a resource. A large one is its version and its digest.
macro_rules! form_of {
    ($select:literal) => {
        concat!(
            "select case when octet_length(form::text) <= 8192 then form else jsonb_build_object('version',
             form -> 'version', 'sha256', encode(sha256(convert_to(form::text, 'UTF8')), 'hex')) end from (",
            $select,
            ") found (form)"
        )
    };
}

/// The present form of a resource for the audit; `None` if there is none.
///
/// # Errors
/// The database's.
pub async fn form(db: &mut PgConnection, kind: AuditedKind, key: &str) -> Result<Option<Value>> {
    let select = match kind {
        AuditedKind::Agent => {
            form_of!("select jsonb_build_object('name', name, 'state', state) from agents where number::text = $1")
        }
        AuditedKind::Hardware => {
            form_of!("select to_jsonb(h) - 'expired_in_row' - 'retry_at' from hardware h where name = $1")
        }
        AuditedKind::Hold => form_of!("select to_jsonb(h) from holds h where pipeline = $1"),
        AuditedKind::Pipeline => {
            form_of!("select jsonb_build_object('version', version, 'spec', spec) from pipelines where name = $1")
        }
        AuditedKind::Profile => {
            form_of!("select jsonb_build_object('version', version) from profiles where pipeline = $1")
        }
        AuditedKind::Project => form_of!("select to_jsonb(p) from projects p where name = $1"),
        AuditedKind::Schedule => form_of!("select to_jsonb(s) - 'next_at' from schedules s where name = $1"),
        AuditedKind::Target => form_of!(
            "select jsonb_build_object('incarnation', incarnation, 'generation', generation, 'plans', to_jsonb(plans))
             from target where $1::text is not null"
        ),
        AuditedKind::Token => form_of!(
            "select jsonb_build_object('name', name, 'scope', scope, 'project', project, 'revoked_at', revoked_at)
             from tokens where id::text = lower($1)"
        ),
        AuditedKind::Webhook => form_of!(
            "select jsonb_build_object('version', version, 'url', url, 'kinds', to_jsonb(kinds), 'pipeline', pipeline,
             'enabled', enabled) from webhooks where name = $1"
        ),
    };
    sqlx::query_scalar(select).bind(key).fetch_optional(db).await
}

/// Stores an entry, unless it is there already.
///
/// # Errors
/// The database's.
pub async fn insert(db: &mut PgConnection, row: &AuditRow) -> Result<()> {
    sqlx::query(
        "insert into audit (id, made_at, who, token, method, path, status, why, before, after)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) on conflict (id) do nothing",
    )
    .bind(row.id)
    .bind(row.made_at)
    .bind(&row.who)
    .bind(row.token)
    .bind(&row.method)
    .bind(&row.path)
    .bind(row.status)
    .bind(&row.why)
    .bind(&row.before)
    .bind(&row.after)
    .execute(db)
    .await?;
    Ok(())
}

/// A select of [`AuditRow`]s with its condition.
macro_rules! columns {
    ($rest:literal) => {
        concat!("select id, number, made_at, who, token, method, path, status, why, before, after from audit ", $rest)
    };
}

/// At most `limit` entries before `before`, the newest first; `None`: the newest of all. With `who` only those of clients
/// with this name.
///
/// # Errors
/// The database's.
pub async fn list(db: &mut PgConnection, who: Option<&str>, before: Option<Uuid>, limit: i64) -> Result<Vec<AuditRow>> {
    sqlx::query_as(columns!(
        "where ($1::uuid is null or id < $1) and ($3::text is null or who = $3) order by id desc limit $2"
    ))
    .persistent(false)
    .bind(before)
    .bind(limit)
    .bind(who)
    .fetch_all(db)
    .await
}

/// The oldest entries with numbers after `after`, in their order, at most `limit`. With `who` only those of clients with
/// this name.
///
/// # Errors
/// The database's.
pub async fn after(db: &mut PgConnection, after: i64, who: Option<&str>, limit: i64) -> Result<Vec<AuditRow>> {
    let select = columns!("where number > $1 and ($2::text is null or who = $2) order by number limit $3");
    sqlx::query_as(select).bind(after).bind(who).bind(limit).fetch_all(db).await
}

/// The number of the newest entry; 0 before the first.
///
/// # Errors
/// The database's.
pub async fn newest(db: &mut PgConnection) -> Result<i64> {
    sqlx::query_scalar("select coalesce(max(number), 0) from audit").fetch_one(db).await
}
