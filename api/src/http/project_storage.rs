//! Does what a client uploads fit into the storage of its project?
//!
//! A client without a project stores for nobody's limit.

use super::access::Principal;
use super::refusal::Refusal;
use crate::decide::project_storage::{StorageKind, StorageQuota};
use crate::store::project_storage as rows;
use crate::store::{self, PgConnection, files, projects};
use actix_web::http::StatusCode;
use std::path::Path;

/// An upload for a project.
#[derive(Clone, Copy, Debug)]
pub(super) struct StorageClaim {
    /// Its kind.
    pub(super) kind: StorageKind,
    /// How much it is.
    pub(super) asked: u64,
}

/// Whether the rows of an upload are in the transaction already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClaimStage {
    /// They are not: they follow.
    Before,
    /// They are.
    After,
}

/// Refuses an upload that does not fit now, before its rows are written. It holds nobody up: [`claim`] decides later.
///
/// # Errors
/// 409 with the limit, the amount that is stored, and the amount of the upload.
pub(super) async fn check_room(db: &mut PgConnection, client: &Principal, asked: StorageClaim) -> Result<(), Refusal> {
    let Some(project) = &client.project else { return Ok(()) };
    check(db, project, asked, ClaimStage::Before).await
}

/// Refuses an upload that does not fit and whose rows this transaction has written. Until the transaction ends, nobody else
/// claims room of the project, so two uploads never take the same room. Long writes come before this, and the commit
/// follows at once.
///
/// # Errors
/// As [`check_room`].
pub(super) async fn claim(tx: &mut PgConnection, client: &Principal, asked: StorageClaim) -> Result<(), Refusal> {
    let Some(project) = &client.project else { return Ok(()) };
    rows::lock(tx, project).await?;
    check(tx, project, asked, ClaimStage::After).await
}

/// Refuses a new model file that does not fit now, before its bytes take room. It holds nobody up: [`claim_file_room`]
/// decides later. A file that is there already needs no room.
///
/// # Errors
/// As [`check_room`].
pub(super) async fn check_file_room(
    db: &mut PgConnection,
    client: &Principal,
    sha256: &str,
    bytes: u64,
) -> Result<(), Refusal> {
    if client.project.is_none() || files::size(db, sha256).await?.is_some() {
        return Ok(());
    }
    check_room(db, client, StorageClaim { kind: StorageKind::FileBytes, asked: bytes }).await
}

/// Refuses a model file whose row is new in this transaction and does not fit. Then its bytes at `path` are removed: the
/// transaction alone may store this file, and nobody has a row of it.
///
/// # Errors
/// As [`check_room`]; 409 too if the project was deleted.
pub(super) async fn claim_file_room(
    tx: &mut PgConnection,
    client: &Principal,
    bytes: u64,
    path: &Path,
) -> Result<(), Refusal> {
    let claimed = match client.keep_project(tx).await {
        Ok(()) => claim(tx, client, StorageClaim { kind: StorageKind::FileBytes, asked: bytes }).await,
        Err(refusal) => Err(refusal),
    };
    if claimed.is_err()
        && let Err(error) = tokio::fs::remove_file(path).await
    {
        tracing::error!(%error, path = %path.display(), "the bytes of a refused file stay");
    }
    claimed
}

async fn check(db: &mut PgConnection, project: &str, claim: StorageClaim, stage: ClaimStage) -> Result<(), Refusal> {
    let StorageClaim { kind, asked } = claim;
    let stored = match kind {
        StorageKind::FileBytes => rows::file_bytes(db, project).await?,
        StorageKind::TraceRows => rows::trace_rows(db, project).await?,
    };
    let stored = u64::try_from(stored).unwrap_or(0);
    let used = if stage == ClaimStage::After { stored.saturating_sub(asked) } else { stored };
    match quota_of(db, project).await?.breach(project, kind, used, asked) {
        Some(breach) => Err(Refusal::new(StatusCode::CONFLICT, breach.to_string())),
        None => Ok(()),
    }
}

/// The limits of a project. Limits that this release cannot read count as absent, so the default ones hold.
async fn quota_of(db: &mut PgConnection, project: &str) -> store::Result<StorageQuota> {
    let stored = projects::get(db, project).await?.and_then(|row| row.storage);
    Ok(stored.map_or_else(StorageQuota::default, |stored| {
        serde_json::from_value(stored).unwrap_or_else(|error| {
            tracing::error!(project, %error, "the stored limits of the storage cannot be read; the default ones hold");
            StorageQuota::default()
        })
    }))
}
