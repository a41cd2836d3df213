//! What must change after a database was restored from a backup?
//!
//! Agents may have received later targets since the backup was made. The restored database does not know them, and agents
//! refuse earlier targets. A new incarnation is later than all of them. Replicas of the backup keep their numbers, so that
//! agents that still have them load nothing. New events have numbers above all that were given.

use crate::act::authorities;
use crate::database::{Database, DatabaseError};
use crate::decide::authorities::restored_authority;
use crate::decide::placement::Placement;
use crate::store::{self, target::TargetRow};
use apportion_certificates::IssueError;
use apportion_protocol::v1;
use prost::Message;
use std::path::{Path, PathBuf};

/// The result of a finished restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestoreResult {
    /// The incarnation before.
    pub before: i64,
    /// The new one.
    pub incarnation: i64,
    /// The generation of the target that agents are sent now; 0 if there is none.
    pub generation: i64,
}

/// Why nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// No database.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// A query failed.
    #[error("the database did not answer; nothing has changed")]
    Query(#[from] store::Error),
    /// There is nothing to finish.
    #[error(
        "{0} is no data directory of a service: it has no folder postgres; name the one that `apportion serve` uses, \
         or the database"
    )]
    NoData(PathBuf),
    /// A stored value cannot be read.
    #[error("the stored {what} cannot be read; nothing has changed")]
    Unreadable {
        /// The kind of value.
        what: &'static str,
        /// Why not.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The new authority for certificates of agents.
    #[error("the fleet's new authority cannot be made; nothing has changed")]
    Authority(#[from] IssueError),
    /// Another target came first.
    #[error("the target was replaced meanwhile; nothing has changed, run the command again")]
    Stale,
}

/// Gives the database at `url`, or the private one in `data_dir`, a new incarnation, and its target a new generation.
///
/// # Errors
/// If the database cannot be opened, or a stored document cannot be read. Then nothing has changed.
pub async fn finish_restore(url: Option<&str>, data_dir: &Path) -> Result<RestoreResult, RestoreError> {
    if url.is_none() && !data_dir.join("postgres").join("PG_VERSION").exists() {
        return Err(RestoreError::NoData(data_dir.to_owned()));
    }
    let database = Database::open(url, data_dir).await?;
    let done = finish(&database).await;
    database.close().await;
    done
}

async fn finish(database: &Database) -> Result<RestoreResult, RestoreError> {
    let mut tx = database.pool.begin().await?;
    let current = store::target::get(&mut tx).await?;
    let time = store::target::clock(&mut tx).await?;
    let incarnation = time.timestamp_millis().max(current.incarnation + 1);
    let next = renewed(&current, incarnation, time)?;
    let restored = RestoreResult { before: current.incarnation, incarnation, generation: next.generation };
    // A client that follows the events may have seen later ones than the backup has.
    store::events::number_above(&mut tx, incarnation).await?;
    if !store::target::reincarnate(&mut tx, &next, &current).await? {
        return Err(RestoreError::Stale);
    }
    // The backup may have been read by others. Agents with its key connect until they have the new one.
    store::link_keys::renew(&mut tx).await?;
    store::authorities::insert(&mut tx, &authorities::make(time, restored_authority(time))?).await?;
    tx.commit().await?;
    Ok(restored)
}

/// The same target in another incarnation. New numbers are above all numbers that were given since the backup.
fn renewed(current: &TargetRow, incarnation: i64, at: store::Time) -> Result<TargetRow, RestoreError> {
    let unreadable = |what| move |source| RestoreError::Unreadable { what, source };
    let placement = serde_json::from_value::<Placement>(current.placement.clone());
    let mut placement = placement.map_err(|error| unreadable("placement")(error.into()))?;
    placement.next_id = placement.next_id.max(incarnation as u64);
    let mut next = TargetRow {
        incarnation,
        placement: serde_json::to_value(&placement).expect("a placement is JSON"),
        ..current.clone()
    };
    if current.generation > 0 {
        let target = v1::Target::decode(current.composed.as_slice());
        let mut target = target.map_err(|error| unreadable("target")(error.into()))?;
        next.generation += 1;
        target.fence = Some(v1::Fence { incarnation: incarnation as u64, generation: next.generation as u64 });
        next.composed = target.encode_to_vec();
        next.reason = "the database was restored".into();
        next.committed_at = Some(at);
    }
    Ok(next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_restored_target_differs_only_in_its_fence() {
        let target = v1::Target {
            fence: Some(v1::Fence { incarnation: 5, generation: 7 }),
            agents: vec![v1::Peer { agent: 3, ..Default::default() }],
            ..Default::default()
        };
        let row = TargetRow {
            incarnation: 5,
            generation: 7,
            plans: vec![],
            placement: json!({"next_id": 12, "groups": [], "replicas": [{"id": 4, "group": 1, "agent": 3, "device": 0}]}),
            specs: json!({}),
            composed: target.encode_to_vec(),
            reason: "asked for".into(),
            committed_at: None,
        };
        let at = chrono::DateTime::UNIX_EPOCH;
        let next = renewed(&row, 1_000, at).expect("it can be read");
        let composed = v1::Target::decode(next.composed.as_slice()).expect("it can be read");
        assert_eq!(composed.fence, Some(v1::Fence { incarnation: 1_000, generation: 8 }));
        assert_eq!(composed.agents, target.agents);
        assert_eq!((&next.placement["next_id"], &next.placement["replicas"]), (&json!(1_000), &row.placement["replicas"]));
        let empty = TargetRow { generation: 0, composed: vec![], ..row.clone() };
        assert_eq!(renewed(&empty, 1_000, at).map(|next| next.generation).ok(), Some(0));
        let broken = TargetRow { composed: vec![255], ..row };
        assert!(renewed(&broken, 1_000, at).is_err_and(|e| e.to_string().contains("target")));
    }
}
