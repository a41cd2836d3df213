//! Variants that requests wait for at agents.

use super::connection::{PgConnection, Result};

/// Channel on which new wants are announced when their transaction commits.
pub const CHANNEL: &str = "apportion_wants";
/// Most wants that are kept for the leader.
pub const WANTS_MAX: i64 = 1_024;
/// A want that has waited longer for a leader is forgotten, in seconds. Agents say it again each second while requests
/// wait.
pub const WANT_AGE_S_MAX: f64 = 10.0;

/// Groups that requests of a pipeline wait for.
#[derive(Clone, Debug, PartialEq, sqlx::FromRow)]
pub struct VariantWantRow {
    /// The pipeline.
    pub pipeline: String,
    /// Numbers of offered groups of the target.
    pub groups: Vec<i64>,
    /// What the first request asks for; 0: any.
    pub accuracy_min: f64,
    /// The longest time that it accepts, in milliseconds; `None`: any.
    pub latency_ms_max: Option<f64>,
    /// Names of variants that it gives.
    pub variants: Vec<String>,
}

/// Adds wants, and announces them. A want that is there already stays as it is.
///
/// # Errors
/// The database's.
pub async fn add<'r>(db: &mut PgConnection, rows: impl Iterator<Item = &'r VariantWantRow>) -> Result<()> {
    let mut is_any = false;
    for row in rows {
        is_any = true;
        sqlx::query(
            "insert into variant_wants (pipeline, groups, accuracy_min, latency_ms_max, variants)
             select $1, $2, $3, $4, $5 where (select count(*) from variant_wants) < $6 on conflict do nothing",
        )
        .bind(&row.pipeline)
        .bind(&row.groups)
        .bind(row.accuracy_min)
        .bind(row.latency_ms_max)
        .bind(&row.variants)
        .bind(WANTS_MAX)
        .execute(&mut *db)
        .await?;
    }
    if is_any {
        sqlx::query("select pg_notify($1, '')").bind(CHANNEL).execute(db).await?;
    }
    Ok(())
}

/// Whether there are wants.
///
/// # Errors
/// The database's.
pub async fn is_any(db: &mut PgConnection) -> Result<bool> {
    sqlx::query_scalar("select exists (select from variant_wants)").fetch_one(db).await
}

/// Takes all wants out. Returns those that are not older than [`WANT_AGE_S_MAX`].
///
/// # Errors
/// The database's.
pub async fn take(db: &mut PgConnection) -> Result<Vec<VariantWantRow>> {
    sqlx::query_as(
        "with taken as (delete from variant_wants returning *)
         select pipeline, groups, accuracy_min, latency_ms_max, variants from taken
         where wanted_at >= now() - make_interval(secs => $1)",
    )
    .bind(WANT_AGE_S_MAX)
    .fetch_all(db)
    .await
}
