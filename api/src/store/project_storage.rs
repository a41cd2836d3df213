//! What have projects stored?

use super::connection::{PgConnection, Result};

/// What a project has stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProjectStorageRow {
    /// Bytes of the model files that its tokens have stored first.
    pub file_bytes: i64,
    /// Rows of the traces that its tokens have uploaded.
    pub trace_rows: i64,
}

/// Makes others that store for a project wait until the transaction ends. Later statements see what they have stored.
///
/// # Errors
/// The database's.
pub async fn lock(db: &mut PgConnection, project: &str) -> Result<()> {
    sqlx::query("select pg_advisory_xact_lock(hashtext('storage:' || $1))").bind(project).execute(db).await?;
    Ok(())
}

/// What a project has stored, with what this transaction stores.
///
/// # Errors
/// The database's.
pub async fn used(db: &mut PgConnection, project: &str) -> Result<ProjectStorageRow> {
    Ok(ProjectStorageRow { file_bytes: file_bytes(db, project).await?, trace_rows: trace_rows(db, project).await? })
}

/// [`ProjectStorageRow::file_bytes`] of a project, with what this transaction stores.
///
/// # Errors
/// The database's.
pub async fn file_bytes(db: &mut PgConnection, project: &str) -> Result<i64> {
    let select = "select coalesce(sum(bytes), 0)::bigint from model_files where project = $1";
    sqlx::query_scalar(select).bind(project).fetch_one(db).await
}

/// [`ProjectStorageRow::trace_rows`] of a project, with what this transaction stores.
///
/// # Errors
/// The database's.
pub async fn trace_rows(db: &mut PgConnection, project: &str) -> Result<i64> {
    let select = "select coalesce(sum(rows), 0)::bigint from traces where project = $1";
    sqlx::query_scalar(select).bind(project).fetch_one(db).await
}
