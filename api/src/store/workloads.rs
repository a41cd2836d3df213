//! What the service did with workloads on Kubernetes.

use super::connection::{PgConnection, Result, Time};

/// What was done with one workload.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct WorkloadRow {
    /// Its pipeline.
    pub pipeline: String,
    /// The version of the pipeline.
    pub version: i64,
    /// The kind of the workload.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The replicas that were written last, or found at first.
    pub applied: i64,
    /// Those before, until the API shows the new ones.
    pub before: Option<i64>,
    /// When they were written.
    pub applied_at: Time,
    /// The last number that were all ready.
    pub ready: i64,
    /// The number that was rolled back.
    pub failed: Option<i64>,
}

/// Writes a row, in the place of the one before.
///
/// # Errors
/// The database's.
pub async fn put(db: &mut PgConnection, row: &WorkloadRow) -> Result<()> {
    sqlx::query(
        "insert into workloads (pipeline, version, kind, namespace, name, applied, before, applied_at, ready, failed)
         select p.name, $2, $3, $4, $5, $6, $7, $8, $9, $10 from pipelines p where p.name = $1
         on conflict (pipeline, kind, namespace, name) do update
         set version = $2, applied = $6, before = $7, applied_at = $8, ready = $9, failed = $10",
    )
    .bind(&row.pipeline)
    .bind(row.version)
    .bind(&row.kind)
    .bind(&row.namespace)
    .bind(&row.name)
    .bind(row.applied)
    .bind(row.before)
    .bind(row.applied_at)
    .bind(row.ready)
    .bind(row.failed)
    .execute(db)
    .await?;
    Ok(())
}

/// The rows of a pipeline's version.
///
/// # Errors
/// The database's.
pub async fn list(db: &mut PgConnection, pipeline: &str, version: i64) -> Result<Vec<WorkloadRow>> {
    sqlx::query_as(
        "select pipeline, version, kind, namespace, name, applied, before, applied_at, ready, failed
         from workloads where pipeline = $1 and version = $2",
    )
    .bind(pipeline)
    .bind(version)
    .fetch_all(db)
    .await
}

/// Counts a change for the budget, and forgets those before `since`.
///
/// # Errors
/// The database's.
pub async fn count_change(db: &mut PgConnection, pipeline: &str, at: Time, since: Time) -> Result<()> {
    sqlx::query("delete from workload_changes where pipeline = $1 and made_at < $2")
        .bind(pipeline)
        .bind(since)
        .execute(&mut *db)
        .await?;
    sqlx::query("insert into workload_changes (pipeline, made_at) select name, $2 from pipelines where name = $1")
        .bind(pipeline)
        .bind(at)
        .execute(db)
        .await?;
    Ok(())
}

/// The number of changes since a moment.
///
/// # Errors
/// The database's.
pub async fn changes_since(db: &mut PgConnection, pipeline: &str, since: Time) -> Result<i64> {
    sqlx::query_scalar("select count(*) from workload_changes where pipeline = $1 and made_at >= $2")
        .bind(pipeline)
        .bind(since)
        .fetch_one(db)
        .await
}
