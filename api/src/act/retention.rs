//! How are old rows deleted?
//!
//! The leader deletes them beside its turns, by the policy of its process ([`crate::decide::retention`]). It goes through
//! the kinds in passes, and each batch is a short statement of its own. No batch asks for the lease: a row that is old
//! enough for one leader is old enough for the next one, and the row of the lease stays free for its renewal.

use crate::app::{App, now};
use crate::decide::drift::PERIOD_S;
use crate::decide::retention::{RetentionPolicy, RowKind, TARGETS_KEPT_MIN, partitions_from};
use crate::store::{self, PgConnection, PgPool, Time, retention as rows};
use sqlx::Connection;
use std::collections::BTreeMap;
use std::time::Duration;
use uuid::Uuid;

/// Pause between two passes.
const PASS_EVERY: Duration = Duration::from_secs(60);
/// Pause between two batches, so that others get their share of the database.
const BATCH_PAUSE: Duration = Duration::from_millis(20);

/// A leader that looks at the oldest rows. When it leads no longer, it does not know them.
struct OldestRows<'a>(&'a App);

impl Drop for OldestRows<'_> {
    fn drop(&mut self) {
        self.0.retention.set_oldest(BTreeMap::new());
    }
}

/// Deletes old rows as long as this process leads.
pub(super) async fn delete_while_leading(app: &App) {
    let _leads = OldestRows(app);
    loop {
        let count = |kind, deleted| app.retention.count(kind, deleted);
        if let Err(error) = delete_old_rows(&app.pool, &app.retention.policy, now(), count).await {
            tracing::warn!(%error, "old rows could not be deleted; the next pass tries again");
        }
        match oldest_rows(&app.pool).await {
            Ok(oldest) => app.retention.set_oldest(oldest),
            Err(error) => tracing::debug!(%error, "the database does not say which rows are the oldest"),
        }
        tokio::time::sleep(PASS_EVERY).await;
    }
}

/// One pass: makes the partitions that arrivals need at the moment `at`, and deletes the rows of all kinds that are too old
/// then. `count` hears of each batch: its kind, and how many rows it deleted.
///
/// # Errors
/// The database's. What was deleted stays deleted.
pub async fn delete_old_rows(
    pool: &PgPool,
    policy: &RetentionPolicy,
    at: Time,
    mut count: impl FnMut(RowKind, u64),
) -> store::Result<()> {
    let mut db = pool.acquire().await?;
    for span in partitions_from(at.timestamp()) {
        rows::add_partition(&mut db, span.begins, span.ends).await?;
    }
    store::processes::forget(&mut db).await?;
    store::holds::forget(&mut db, at).await?;
    drop(db);
    for kind in RowKind::ALL {
        let before = at - policy.kept(kind);
        let mut after = Some(Uuid::nil());
        while let Some(from) = after {
            let batch = delete_batch(&mut *pool.acquire().await?, kind, before, from).await?;
            count(kind, batch.deleted);
            after = batch.next;
            if after.is_some() {
                tokio::time::sleep(BATCH_PAUSE).await;
            }
        }
    }
    Ok(())
}

/// The result of one batch.
struct DeletedBatch {
    deleted: u64,
    /// Where the next batch begins; `None`: this was the last one.
    next: Option<Uuid>,
}

/// Deletes rows of one kind. Plans are looked at in the order of their identifiers, because those that stay would be looked
/// at again and again. For the other kinds `from` says nothing.
async fn delete_batch(db: &mut PgConnection, kind: RowKind, before: Time, from: Uuid) -> store::Result<DeletedBatch> {
    let deleted = match kind {
        RowKind::Plans => {
            let mut tx = db.begin().await?;
            let swept = rows::sweep_plans(&mut tx, before, from).await?;
            tx.commit().await?;
            return Ok(DeletedBatch { deleted: swept.deleted, next: swept.last });
        }
        RowKind::Arrivals => match rows::drop_partition(db, before.timestamp()).await? {
            // An empty partition is no reason to stop.
            Some(about) => return Ok(DeletedBatch { deleted: about, next: Some(from) }),
            None => rows::delete_arrivals(db, before.timestamp()).await?,
        },
        RowKind::Sums => rows::delete_sums(db, before.timestamp().div_euclid(PERIOD_S)).await?,
        RowKind::Decisions => rows::delete_decisions(db, before).await?,
        RowKind::Events => rows::delete_events(db, before).await?,
        RowKind::Audit => rows::delete_audit(db, before).await?,
        RowKind::Targets => rows::delete_targets(db, before, TARGETS_KEPT_MIN).await?,
        RowKind::Analyses => rows::delete_analyses(db, before).await? + rows::delete_profile_jobs(db, before).await?,
        RowKind::Firings => rows::delete_firings(db, before).await?,
        RowKind::Machines => rows::delete_machines(db, before).await?,
        RowKind::Agents => rows::delete_agents(db, before).await?,
        RowKind::Tokens => rows::delete_tokens(db, before).await?,
    };
    Ok(DeletedBatch { deleted, next: (deleted > 0).then_some(from) })
}

/// The time of the oldest row of each kind that has one.
async fn oldest_rows(pool: &PgPool) -> store::Result<BTreeMap<RowKind, Time>> {
    let found = rows::oldest(&mut *pool.acquire().await?, PERIOD_S).await?;
    let kind_of = |name: &str| RowKind::ALL.into_iter().find(|kind| kind.name() == name);
    Ok(found.into_iter().filter_map(|(name, at)| Some((kind_of(&name)?, at?))).collect())
}
