//! Uploaded traces.

use super::connection::{PgConnection, Result, Time};
use apportion_wire::{AnalysisState, PlanState, TraceKind};
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
    /// The project of the client that uploaded it; `None`: that client had all.
    pub project: Option<String>,
}

/// Stores a trace.
///
/// # Errors
/// The database's.
pub async fn insert(db: &mut PgConnection, row: &TraceRow, csv: &str) -> Result<()> {
    sqlx::query("insert into traces (id, name, kind, rows, csv, created_at, project) values ($1, $2, $3, $4, $5, $6, $7)")
        .bind(row.id)
        .bind(&row.name)
        .bind(row.kind.name())
        .bind(row.rows)
        .bind(csv)
        .bind(row.created_at)
        .bind(&row.project)
        .execute(db)
        .await?;
    Ok(())
}

/// The trace with this identifier.
///
/// # Errors
/// The database's.
pub async fn get(db: &mut PgConnection, id: Uuid) -> Result<Option<TraceRow>> {
    sqlx::query_as("select id, name, kind, rows, created_at, project from traces where id = $1")
        .bind(id)
        .fetch_optional(db)
        .await
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
    let newest = "select id, name, kind, rows, created_at, project from traces where name = $1 order by id desc limit 1";
    sqlx::query_as(newest).bind(name).fetch_optional(db).await
}

/// Its rows as they were uploaded.
///
/// # Errors
/// The database's.
pub async fn csv(db: &mut PgConnection, id: Uuid) -> Result<Option<String>> {
    sqlx::query_scalar("select csv from traces where id = $1").bind(id).fetch_optional(db).await
}

/// The filter of a reader.
#[derive(Clone, Copy, Debug, Default)]
pub struct TraceFilter<'a> {
    /// Only traces with this name.
    pub name: Option<&'a str>,
    /// Only traces of this project.
    pub project: Option<&'a str>,
}

/// At most `limit` traces before this one, the newest first; `None`: the newest of all.
///
/// # Errors
/// The database's.
pub async fn list(
    db: &mut PgConnection,
    filter: TraceFilter<'_>,
    before: Option<Uuid>,
    limit: i64,
) -> Result<Vec<TraceRow>> {
    sqlx::query_as(
        "select id, name, kind, rows, created_at, project from traces
         where ($1::uuid is null or id < $1) and ($3::text is null or name = $3)
         and ($4::text is null or project = $4) order by id desc limit $2",
    )
    .persistent(false)
    .bind(before)
    .bind(limit)
    .bind(filter.name)
    .bind(filter.project)
    .fetch_all(db)
    .await
}

/// A plan or an analysis that is not over and needs a trace.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct TraceUseRow {
    /// `plan`, or the kind of the analysis.
    pub kind: String,
    /// Its identifier.
    pub id: Uuid,
}

/// Locks a trace until the transaction ends, so that nobody begins to use it; returns whether it is there.
///
/// # Errors
/// The database's.
pub async fn lock(db: &mut PgConnection, id: Uuid) -> Result<bool> {
    let found = sqlx::query("select 1 from traces where id = $1 for update").bind(id).fetch_optional(db).await?;
    Ok(found.is_some())
}

/// At most `limit` open plans and analyses that need a trace, the oldest first.
///
/// # Errors
/// The database's.
pub async fn uses(db: &mut PgConnection, id: Uuid, limit: i64) -> Result<Vec<TraceUseRow>> {
    let open_plans: Vec<&str> = PlanState::OPEN.map(PlanState::name).into();
    let open_analyses: Vec<&str> = AnalysisState::OPEN.map(AnalysisState::name).into();
    sqlx::query_as(
        "select 'plan' as kind, id from plans where state = any($2) and options ->> 'trace' = $1
         union all
         select kind, id from analyses where state = any($3) and (request ->> 'trace' = $1
         or jsonb_path_exists(request, '$.traces.* ? (@ == $trace)', jsonb_build_object('trace', $1::text))
         or jsonb_path_exists(request, '$.samples.* ? (@ == $trace)', jsonb_build_object('trace', $1::text)))
         order by id limit $4",
    )
    .bind(id.to_string())
    .bind(open_plans)
    .bind(open_analyses)
    .bind(limit)
    .fetch_all(db)
    .await
}

/// Deletes a trace.
///
/// # Errors
/// The database's.
pub async fn delete(db: &mut PgConnection, id: Uuid) -> Result<()> {
    sqlx::query("delete from traces where id = $1").bind(id).execute(db).await?;
    Ok(())
}
