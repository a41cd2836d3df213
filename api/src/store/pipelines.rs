//! Registered pipelines and their profiles.

use super::{PgConnection, Result, Time};
use serde_json::Value;

/// A registered pipeline.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct PipelineRow {
    /// Its name.
    pub name: String,
    /// The spec as the wire crate writes it.
    pub spec: Value,
    /// Counts its replacements.
    pub version: i64,
    /// What was measured, if it was.
    pub profile: Option<Value>,
}

const SELECT: &str =
    "select p.name, p.spec, p.version, f.profile from pipelines p left join profiles f on f.pipeline = p.name
     where $1::text is null or p.name = $1 order by p.name";

/// Creates or replaces; answers its new version, 1 if it was created.
///
/// # Errors
/// The database's.
pub async fn put(db: &mut PgConnection, name: &str, spec: &Value, at: Time) -> Result<i64> {
    sqlx::query_scalar(
        "insert into pipelines (name, spec, updated_at) values ($1, $2, $3)
         on conflict (name) do update set spec = $2, updated_at = $3, version = pipelines.version + 1 returning version",
    )
    .bind(name)
    .bind(spec)
    .bind(at)
    .fetch_one(db)
    .await
}

/// The pipeline with this name.
///
/// # Errors
/// The database's.
pub async fn get(db: &mut PgConnection, name: &str) -> Result<Option<PipelineRow>> {
    sqlx::query_as(SELECT).bind(Some(name)).fetch_optional(db).await
}

/// All pipelines by name.
///
/// # Errors
/// The database's.
pub async fn list(db: &mut PgConnection) -> Result<Vec<PipelineRow>> {
    sqlx::query_as(SELECT).bind(None::<String>).fetch_all(db).await
}

/// Whether there was one to delete.
///
/// # Errors
/// The database's.
pub async fn delete(db: &mut PgConnection, name: &str) -> Result<bool> {
    let done = sqlx::query("delete from pipelines where name = $1").bind(name).execute(db).await?;
    Ok(done.rows_affected() == 1)
}

/// Stores what was measured. The pipeline must exist.
///
/// # Errors
/// The database's.
pub async fn put_profile(db: &mut PgConnection, name: &str, profile: &Value, at: Time) -> Result<()> {
    sqlx::query(
        "insert into profiles (pipeline, profile, updated_at) values ($1, $2, $3)
         on conflict (pipeline) do update set profile = $2, updated_at = $3",
    )
    .bind(name)
    .bind(profile)
    .bind(at)
    .execute(db)
    .await?;
    Ok(())
}
