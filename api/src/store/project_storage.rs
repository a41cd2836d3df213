//! What have projects stored, and how much may they?

use super::connection::{PgConnection, Result};

/// What a project has stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, sqlx::FromRow)]
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
    sqlx::query_as(
        "select (select coalesce(sum(bytes), 0)::bigint from model_files where project = $1) as file_bytes,
         (select coalesce(sum(rows), 0)::bigint from traces where project = $1) as trace_rows",
    )
    .bind(project)
    .fetch_one(db)
    .await
}
