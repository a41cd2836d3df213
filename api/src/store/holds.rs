//! Holds: while one is in force, rounds of replanning deploy nothing for its pipeline.

use super::connection::{PgConnection, Result, Time};

/// The name of the hold on the whole fleet.
pub const FLEET: &str = "";

/// A hold.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct HoldRow {
    /// Its pipeline, or [`FLEET`].
    pub pipeline: String,
    /// The reason for it.
    pub reason: String,
    /// When it ends; `None`: when it is released.
    pub until: Option<Time>,
    /// Who made it.
    pub made_by: String,
    /// When it was made.
    pub made_at: Time,
}

/// Writes a hold, in the place of the one before.
///
/// # Errors
/// The database's.
pub async fn put(db: &mut PgConnection, row: &HoldRow) -> Result<()> {
    sqlx::query(
        "insert into holds (pipeline, reason, until, made_by, made_at) values ($1, $2, $3, $4, $5)
         on conflict (pipeline) do update set reason = $2, until = $3, made_by = $4, made_at = $5",
    )
    .bind(&row.pipeline)
    .bind(&row.reason)
    .bind(row.until)
    .bind(&row.made_by)
    .bind(row.made_at)
    .execute(db)
    .await?;
    Ok(())
}

/// Writes a hold, unless the one before lasts longer.
///
/// # Errors
/// The database's.
pub async fn extend(db: &mut PgConnection, row: &HoldRow) -> Result<()> {
    let lasts: Option<bool> =
        sqlx::query_scalar("select until is null or until >= $2 from holds where pipeline = $1 for update")
            .bind(&row.pipeline)
            .bind(row.until)
            .fetch_optional(&mut *db)
            .await?
            .flatten();
    if lasts != Some(true) {
        put(db, row).await?;
    }
    Ok(())
}

/// The holds in force at this moment, by pipeline.
///
/// # Errors
/// The database's.
pub async fn in_force(db: &mut PgConnection, at: Time) -> Result<Vec<HoldRow>> {
    sqlx::query_as(
        "select pipeline, reason, until, made_by, made_at from holds where until is null or until > $1 order by pipeline",
    )
    .bind(at)
    .fetch_all(db)
    .await
}

/// The hold of this pipeline, or of [`FLEET`], if it is in force at this moment.
///
/// # Errors
/// The database's.
pub async fn get(db: &mut PgConnection, pipeline: &str, at: Time) -> Result<Option<HoldRow>> {
    let select = "select pipeline, reason, until, made_by, made_at from holds
                  where pipeline = $1 and (until is null or until > $2)";
    sqlx::query_as(select).bind(pipeline).bind(at).fetch_optional(db).await
}

/// The filter of a reader.
#[derive(Clone, Copy, Debug, Default)]
pub struct HoldFilter<'a> {
    /// Only the holds that a pipeline has: its own, and that of the fleet.
    pub pipeline: Option<&'a str>,
    /// Only holds of this client.
    pub who: Option<&'a str>,
}

/// At most `limit` holds in force at this moment after that of this pipeline, by pipeline; `None`: the first ones.
///
/// # Errors
/// The database's.
pub async fn page(
    db: &mut PgConnection,
    filter: HoldFilter<'_>,
    at: Time,
    after: Option<&str>,
    limit: i64,
) -> Result<Vec<HoldRow>> {
    sqlx::query_as(
        "select pipeline, reason, until, made_by, made_at from holds where (until is null or until > $1)
         and ($2::text is null or pipeline > $2) and ($4::text is null or pipeline in ($4, ''))
         and ($5::text is null or made_by = $5) order by pipeline limit $3",
    )
    .persistent(false)
    .bind(at)
    .bind(after)
    .bind(limit)
    .bind(filter.pipeline)
    .bind(filter.who)
    .fetch_all(db)
    .await
}

/// Makes writers of holds wait for the end of the transaction. So no hold begins between a look and what follows from it.
///
/// # Errors
/// The database's.
pub async fn lock(db: &mut PgConnection) -> Result<()> {
    sqlx::query("lock table holds in share mode").execute(db).await?;
    Ok(())
}

/// Releases a hold; returns whether there was one in force.
///
/// # Errors
/// The database's.
pub async fn release(db: &mut PgConnection, pipeline: &str, at: Time) -> Result<bool> {
    let was_in_force: Option<bool> =
        sqlx::query_scalar("delete from holds where pipeline = $1 returning until is null or until > $2")
            .bind(pipeline)
            .bind(at)
            .fetch_optional(db)
            .await?;
    Ok(was_in_force.unwrap_or(false))
}

/// Deletes holds that ended before this time.
///
/// # Errors
/// The database's.
pub async fn forget(db: &mut PgConnection, before: Time) -> Result<()> {
    sqlx::query("delete from holds where until < $1").bind(before).execute(db).await?;
    Ok(())
}
