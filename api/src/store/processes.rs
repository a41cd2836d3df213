//! The heartbeats of the service's processes.

use super::connection::{PgConnection, Result, Time};
use std::collections::BTreeMap;
use uuid::Uuid;

/// Counts one heartbeat of a process; returns the time of the database's clock.
///
/// # Errors
/// The database's.
pub async fn beat(db: &mut PgConnection, process: Uuid) -> Result<Time> {
    sqlx::query_scalar(
        "insert into processes (id, beat, seen_at) values ($1, 1, clock_timestamp())
         on conflict (id) do update set beat = processes.beat + 1, seen_at = excluded.seen_at returning clock_timestamp()",
    )
    .bind(process)
    .fetch_one(db)
    .await
}

/// The heartbeat counter of each process.
///
/// # Errors
/// The database's.
pub async fn beats(db: &mut PgConnection) -> Result<BTreeMap<Uuid, i64>> {
    let rows: Vec<(Uuid, i64)> = sqlx::query_as("select id, beat from processes order by id").fetch_all(db).await?;
    Ok(rows.into_iter().collect())
}

/// Forgets processes that ended long ago.
///
/// # Errors
/// The database's.
pub async fn forget(db: &mut PgConnection) -> Result<()> {
    sqlx::query("delete from processes where seen_at < clock_timestamp() - interval '1 day'").execute(db).await?;
    Ok(())
}
