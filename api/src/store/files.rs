//! Model files that are complete in the data directory.

use super::connection::{PgConnection, Result, Time};

/// Registers a complete and verified file; returns whether it is new.
///
/// # Errors
/// The database's.
pub async fn put(db: &mut PgConnection, sha256: &str, bytes: i64, at: Time) -> Result<bool> {
    let done =
        sqlx::query("insert into model_files (sha256, bytes, created_at) values ($1, $2, $3) on conflict do nothing")
            .bind(sha256)
            .bind(bytes)
            .bind(at)
            .execute(db)
            .await?;
    Ok(done.rows_affected() == 1)
}

/// Size of the file in bytes, if it is there.
///
/// # Errors
/// The database's.
pub async fn size(db: &mut PgConnection, sha256: &str) -> Result<Option<i64>> {
    sqlx::query_scalar("select bytes from model_files where sha256 = $1").bind(sha256).fetch_optional(db).await
}
