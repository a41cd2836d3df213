//! Leases: which process may do the work that only one process may do?
//!
//! No function relies on the session of its connection, so leases work behind poolers too.

use super::connection::{PgConnection, Result};
use uuid::Uuid;

/// A lease that a process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldLease {
    /// Its name.
    pub name: &'static str,
    /// The process.
    pub holder: Uuid,
    /// Its number: each change of the holder increases it.
    pub epoch: i64,
}

/// Takes a lease for so many seconds, if nobody holds it or it has expired; `None` if another process holds it.
///
/// # Errors
/// The database's.
pub async fn take(db: &mut PgConnection, name: &'static str, holder: Uuid, seconds: f64) -> Result<Option<HeldLease>> {
    let epoch: Option<i64> = sqlx::query_scalar(
        "insert into leases as l (name, holder, epoch, expires_at)
         values ($1, $2, 1, clock_timestamp() + make_interval(secs => $3))
         on conflict (name) do update set holder = $2, epoch = l.epoch + 1, expires_at = excluded.expires_at
         where l.expires_at <= clock_timestamp() returning epoch",
    )
    .bind(name)
    .bind(holder)
    .bind(seconds)
    .fetch_optional(db)
    .await?;
    Ok(epoch.map(|epoch| HeldLease { name, holder, epoch }))
}

/// Extends a lease to so many seconds from now. Returns whether the process still has it.
///
/// # Errors
/// The database's.
pub async fn renew(db: &mut PgConnection, held: HeldLease, seconds: f64) -> Result<bool> {
    let result = sqlx::query(
        "update leases set expires_at = clock_timestamp() + make_interval(secs => $4)
         where name = $1 and holder = $2 and epoch = $3",
    )
    .bind(held.name)
    .bind(held.holder)
    .bind(held.epoch)
    .bind(seconds)
    .execute(db)
    .await?;
    Ok(result.rows_affected() == 1)
}

/// Ends a lease at once, if the process still has it.
///
/// # Errors
/// The database's.
pub async fn release(db: &mut PgConnection, held: HeldLease) -> Result<()> {
    sqlx::query("update leases set expires_at = clock_timestamp() where name = $1 and holder = $2 and epoch = $3")
        .bind(held.name)
        .bind(held.holder)
        .bind(held.epoch)
        .execute(db)
        .await?;
    Ok(())
}

/// How long a fenced transaction may wait for its process: as long as the leader's lease. Then the database ends the
/// session, because a process that is stopped within a transaction would keep the lease's row from its successor.
const IDLE_MAX: &str = "4s";

/// Whether the process still has the lease. Nobody else can take it before the transaction ends, or has waited for
/// four seconds.
///
/// # Errors
/// The database's.
pub async fn fence(tx: &mut PgConnection, held: HeldLease) -> Result<bool> {
    let row = sqlx::query(
        "select set_config('idle_in_transaction_session_timeout', $4, true)
         from leases where name = $1 and holder = $2 and epoch = $3 for share",
    );
    let row = row.bind(held.name).bind(held.holder).bind(held.epoch).bind(IDLE_MAX).fetch_optional(tx).await?;
    Ok(row.is_some())
}
