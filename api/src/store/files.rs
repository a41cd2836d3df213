//! Model files, where they came from, and their bytes where processes share them.

use super::connection::{PgConnection, Result, Time};

/// A stored file.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct FileRow {
    /// Its digest.
    pub sha256: String,
    /// Its size in bytes.
    pub bytes: i64,
    /// Where it came from, as the client said that stored it first and said so.
    pub source: Option<String>,
    /// That client; else the first one that stored it. `None` if an earlier release has stored it.
    pub stored_by: Option<String>,
    /// When it was stored.
    pub created_at: Time,
    /// The project whose token stored it first; `None`: no project's alone.
    pub project: Option<String>,
}

/// Registers a complete and verified file; returns whether it is new. A file that is there without a source gets the source
/// and the client of this row.
///
/// # Errors
/// The database's.
pub async fn put(db: &mut PgConnection, file: &FileRow) -> Result<bool> {
    let done = sqlx::query(
        "insert into model_files (sha256, bytes, source, stored_by, created_at, project) values ($1, $2, $3, $4, $5, $6)
         on conflict do nothing",
    )
    .bind(&file.sha256)
    .bind(file.bytes)
    .bind(&file.source)
    .bind(&file.stored_by)
    .bind(file.created_at)
    .bind(&file.project)
    .execute(&mut *db)
    .await?;
    if done.rows_affected() == 1 {
        return Ok(true);
    }
    sqlx::query(
        "update model_files set source = $2, stored_by = $3 where sha256 = $1 and source is null and $2 is not null",
    )
    .bind(&file.sha256)
    .bind(&file.source)
    .bind(&file.stored_by)
    .execute(db)
    .await?;
    Ok(false)
}

/// At most `limit` files after this digest, by digest; only those whose digests begin with `prefix`.
///
/// # Errors
/// The database's.
pub async fn page(db: &mut PgConnection, prefix: Option<&str>, after: Option<&str>, limit: i64) -> Result<Vec<FileRow>> {
    const PAGE: &str = "select sha256, bytes, source, stored_by, created_at, project from model_files
                        where ($1::text is null or sha256 > $1) and ($3::text is null or starts_with(sha256, $3))
                        order by sha256 limit $2";
    sqlx::query_as(PAGE).persistent(false).bind(after).bind(limit).bind(prefix).fetch_all(db).await
}

/// Bytes of a part of a file in the database; the last one may have fewer.
pub const PART_BYTES: usize = 1024 * 1024;

/// Whether the database has the bytes of a file too.
///
/// # Errors
/// The database's.
pub async fn has_parts(db: &mut PgConnection, sha256: &str) -> Result<bool> {
    const HAS: &str = "select exists (select from model_file_parts where sha256 = $1)";
    sqlx::query_scalar(HAS).bind(sha256).fetch_one(db).await
}

/// Stores a part of a registered file.
///
/// # Errors
/// The database's.
pub async fn put_part(db: &mut PgConnection, sha256: &str, part: i32, content: &[u8]) -> Result<()> {
    sqlx::query("insert into model_file_parts (sha256, part, content) values ($1, $2, $3)")
        .bind(sha256)
        .bind(part)
        .bind(content)
        .execute(db)
        .await?;
    Ok(())
}

/// A part of a file, if the database has it.
///
/// # Errors
/// The database's.
pub async fn part(db: &mut PgConnection, sha256: &str, part: i32) -> Result<Option<Vec<u8>>> {
    const PART: &str = "select content from model_file_parts where sha256 = $1 and part = $2";
    sqlx::query_scalar(PART).bind(sha256).bind(part).fetch_optional(db).await
}

/// Size of the file in bytes, if it is there.
///
/// # Errors
/// The database's.
pub async fn size(db: &mut PgConnection, sha256: &str) -> Result<Option<i64>> {
    sqlx::query_scalar("select bytes from model_files where sha256 = $1").bind(sha256).fetch_optional(db).await
}

/// Locks this file until the transaction ends, for storing or deleting it; returns `false` if another one has it.
///
/// # Errors
/// The database's.
pub async fn try_lock(db: &mut PgConnection, sha256: &str) -> Result<bool> {
    const LOCK: &str = "select pg_try_advisory_xact_lock(hashtext('file:' || $1))";
    sqlx::query_scalar(LOCK).bind(sha256).fetch_one(db).await
}

/// The pipelines whose variants have a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileNeeds {
    /// Pipelines as they are registered, by name.
    pub registered: Vec<String>,
    /// Pipelines of the target in force, by name.
    pub deployed: Vec<String>,
}

/// The condition that a spec has a variant with the file `$1`.
macro_rules! has_file {
    ($select:literal) => {
        concat!(
            $select,
            " where exists (select from jsonb_path_query(spec, '$.tasks[*].variants[*].model_digest') as found (digest)
             where lower(digest #>> '{}') = $1) order by name"
        )
    };
}

/// Who needs a file. Until the transaction ends, no pipeline is written, and the target is not replaced.
///
/// # Errors
/// The database's.
pub async fn needs(db: &mut PgConnection, sha256: &str) -> Result<FileNeeds> {
    sqlx::query("lock table pipelines in share mode").execute(&mut *db).await?;
    sqlx::query("select 1 from target for share").execute(&mut *db).await?;
    let registered = sqlx::query_scalar(has_file!("select name from pipelines"));
    let registered = registered.bind(sha256).fetch_all(&mut *db).await?;
    let deployed = sqlx::query_scalar(has_file!("select name from target, jsonb_each(specs) as part (name, spec)"));
    Ok(FileNeeds { registered, deployed: deployed.bind(sha256).fetch_all(db).await? })
}

/// Parts of a file that one statement deletes: a large file takes longer than a statement may.
const DELETED_PARTS_MAX: i64 = 64;

/// Deletes the bytes of a file that has no row from the database.
///
/// # Errors
/// The database's.
pub async fn delete_parts(db: &mut PgConnection, sha256: &str) -> Result<()> {
    const DELETE: &str = "delete from model_file_parts where sha256 = $1 and part in (
                          select part from model_file_parts where sha256 = $1 order by part limit $2)";
    loop {
        let done = sqlx::query(DELETE).bind(sha256).bind(DELETED_PARTS_MAX).execute(&mut *db).await?;
        if done.rows_affected() == 0 {
            return Ok(());
        }
    }
}

/// Forgets a file. Its bytes stay, in folders and in the database.
///
/// # Errors
/// The database's.
pub async fn delete(db: &mut PgConnection, sha256: &str) -> Result<()> {
    sqlx::query("delete from model_files where sha256 = $1").bind(sha256).execute(db).await?;
    Ok(())
}
