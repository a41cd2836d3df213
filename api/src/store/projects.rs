//! Registered projects, and the projects that pipelines name.

use super::connection::{Condition, Deletion, PgConnection, Result, delete_row};
use serde_json::Value;
use uuid::Uuid;

/// The project of pipelines that name none. It need not be registered.
const DEFAULT: &str = "default";

/// A registered project.
#[derive(Clone, Debug, Default, PartialEq, sqlx::FromRow)]
pub struct ProjectRow {
    /// Its name.
    pub name: String,
    /// Projects with a higher number have devices first.
    pub priority: i64,
    /// Its limits.
    pub quota: Value,
    /// The limits of what it stores; `None` if it names none.
    pub storage: Option<Value>,
    /// Counts its replacements; a write does not read it.
    pub version: i64,
}

/// A pipeline with the project that it names.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct PipelineProjectRow {
    /// The pipeline.
    pub pipeline: String,
    /// Its project; `None` for the default one.
    pub project: Option<String>,
}

/// Creates or replaces; returns the row, with version 1 if it was created, or `None` if the condition does not hold.
///
/// # Errors
/// The database's.
pub async fn put(db: &mut PgConnection, row: &ProjectRow, condition: &Condition) -> Result<Option<ProjectRow>> {
    let statement = match condition.needs_row() {
        true => {
            "update projects set priority = $2, quota = $3, storage = $5, version = version + 1
             where name = $1 and ($4::bigint[] is null or version = any($4))
             returning name, priority, quota, storage, version"
        }
        false => {
            "insert into projects (name, priority, quota, storage) select $1, $2, $3, $5
             where $4::bigint[] is null or 0 = any($4)
             on conflict (name) do update set priority = $2, quota = $3, storage = $5, version = projects.version + 1
             where $4 is null returning name, priority, quota, storage, version"
        }
    };
    sqlx::query_as(statement)
        .bind(&row.name)
        .bind(row.priority)
        .bind(&row.quota)
        .bind(condition.versions())
        .bind(&row.storage)
        .fetch_optional(db)
        .await
}

/// The project with this name.
///
/// # Errors
/// The database's.
pub async fn get(db: &mut PgConnection, name: &str) -> Result<Option<ProjectRow>> {
    sqlx::query_as("select name, priority, quota, storage, version from projects where name = $1")
        .bind(name)
        .fetch_optional(db)
        .await
}

/// All projects by name.
///
/// # Errors
/// The database's.
pub async fn list(db: &mut PgConnection) -> Result<Vec<ProjectRow>> {
    sqlx::query_as("select name, priority, quota, storage, version from projects order by name").fetch_all(db).await
}

/// At most `limit` projects after this name, by name; `None`: the first ones. With `prefix` only those whose names begin
/// with it.
///
/// # Errors
/// The database's.
pub async fn page(db: &mut PgConnection, prefix: Option<&str>, after: Option<&str>, limit: i64) -> Result<Vec<ProjectRow>> {
    sqlx::query_as(
        "select name, priority, quota, storage, version from projects where ($1::text is null or name > $1)
         and ($3::text is null or starts_with(name, $3)) order by name limit $2",
    )
    .persistent(false)
    .bind(after)
    .bind(limit)
    .bind(prefix)
    .fetch_all(db)
    .await
}

/// Keeps a project until the end of the transaction, so that a pipeline may name it; returns whether it exists.
///
/// # Errors
/// The database's.
pub async fn share(db: &mut PgConnection, name: &str) -> Result<bool> {
    let found = sqlx::query("select 1 from projects where name = $1 for share").bind(name).fetch_optional(db).await?;
    Ok(found.is_some())
}

/// Keeps a project until the end of the transaction, so that a plan or a trace may be of it; returns whether it exists. The
/// default project always does.
///
/// # Errors
/// The database's.
pub async fn keep(db: &mut PgConnection, name: &str) -> Result<bool> {
    Ok(name == DEFAULT || share(db, name).await?)
}

/// Locks a project until the end of the transaction: no pipeline can begin to name it. Returns whether it exists.
///
/// # Errors
/// The database's.
pub async fn lock(db: &mut PgConnection, name: &str) -> Result<bool> {
    let found = sqlx::query("select 1 from projects where name = $1 for update").bind(name).fetch_optional(db).await?;
    Ok(found.is_some())
}

/// The first pipeline that names this project; `None` if there is none.
///
/// # Errors
/// The database's.
pub async fn first_pipeline(db: &mut PgConnection, name: &str) -> Result<Option<String>> {
    sqlx::query_scalar("select name from pipelines where spec -> 'replan' ->> 'project' = $1 order by name limit 1")
        .bind(name)
        .fetch_optional(db)
        .await
}

/// The projects of these pipelines. Those that are not registered are left out.
///
/// # Errors
/// The database's.
pub async fn of_pipelines(db: &mut PgConnection, pipelines: &[String]) -> Result<Vec<PipelineProjectRow>> {
    sqlx::query_as("select name as pipeline, spec -> 'replan' ->> 'project' as project from pipelines where name = any($1)")
        .bind(pipelines)
        .fetch_all(db)
        .await
}

/// Deletes the project if its version is allowed.
///
/// # Errors
/// The database's.
pub async fn delete(db: &mut PgConnection, name: &str, condition: &Condition) -> Result<Deletion> {
    let statement = "delete from projects where name = $1 and ($2::bigint[] is null or version = any($2))";
    if delete_row(db, statement, name, condition).await? {
        return Ok(Deletion::Done);
    }
    Ok(if get(db, name).await?.is_some() { Deletion::OtherVersion } else { Deletion::Missing })
}

/// Most plans, and traces, that one statement releases.
const RELEASED_MAX: i64 = 1_000;

/// Makes the plans, traces and model files of a deleted project no project's alone, and forgets the idempotency keys of its
/// clients. So a new project with its name has nothing of it. Those of the default project stay.
///
/// # Errors
/// The database's.
pub async fn release(db: &mut PgConnection, name: &str) -> Result<()> {
    const OWNED: [&str; 2] = [
        "update plans set project = null where id in
         (select id from plans where project = $1 and id > $2 order by id limit $3) returning id",
        "update traces set project = null where id in
         (select id from traces where project = $1 and id > $2 order by id limit $3) returning id",
    ];
    /// A key of a bound client begins with its project and a line feed.
    const KEYS: [&str; 3] = [
        "delete from idempotency where starts_with(key, $1 || chr(10))",
        "delete from trace_idempotency where starts_with(key, $1 || chr(10))",
        "delete from token_idempotency where starts_with(key, $1 || chr(10))",
    ];
    if name == DEFAULT {
        return Ok(());
    }
    // Jobs are locked before their plans, as everywhere.
    sqlx::query("update jobs set project = null where project = $1").bind(name).execute(&mut *db).await?;
    for statement in OWNED {
        let mut last = Some(Uuid::nil());
        while let Some(after) = last {
            let released = sqlx::query_scalar(statement).bind(name).bind(after).bind(RELEASED_MAX);
            let released: Vec<Uuid> = released.fetch_all(&mut *db).await?;
            last = released.into_iter().max();
        }
    }
    sqlx::query("update model_files set project = null where project = $1").bind(name).execute(&mut *db).await?;
    for statement in KEYS {
        sqlx::query(statement).bind(name).execute(&mut *db).await?;
    }
    Ok(())
}
