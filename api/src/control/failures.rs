//! Replicas that could not be loaded, kept beyond the target that they were in: the next acknowledgement of their agent
//! does not speak of them any more, and their operator still has to know why.

use super::reconcile::Placement;
use crate::store::{self, PgConnection, Time};
use apportion_protocol::v1::{self, replica_state::State};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// Most failures kept of one agent.
pub const FAILURES_MAX: usize = 32;
/// Longest reason kept, in characters.
const REASON_CHARS_MAX: usize = 1_024;

/// A replica that its agent could not load, or that died.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LoadFailure {
    /// Its number.
    pub replica: u64,
    /// Its pipeline; empty if the target did not have it any more.
    pub pipeline: String,
    /// Its task.
    pub task: String,
    /// Its variant.
    pub variant: String,
    /// On which device of the agent; null if the target did not have it any more.
    pub device: Option<u32>,
    /// Why, as the agent says it.
    pub error: String,
    /// The generation of the target that it was in.
    pub generation: u64,
    /// When the agent said so first.
    pub at: DateTime<Utc>,
}

/// Keeps what an acknowledgement says of failed replicas; each replica once.
///
/// # Errors
/// The database's.
pub async fn note(db: &mut PgConnection, session: Uuid, ack: &v1::Ack, at: Time) -> store::Result<()> {
    let failed: Vec<_> = ack.replicas.iter().filter(|r| r.state() == State::Failed).collect();
    if failed.is_empty() {
        return Ok(());
    }
    let Some(kept) = store::agents::load_failures(db, session).await? else { return Ok(()) };
    let mut kept: Vec<LoadFailure> = serde_json::from_value(kept).unwrap_or_default();
    let new: Vec<_> = failed.into_iter().filter(|r| kept.iter().all(|k| k.replica != r.replica)).collect();
    if new.is_empty() {
        return Ok(());
    }
    let placement = store::target::get(db).await?.placement;
    let placement: Placement = serde_json::from_value(placement).unwrap_or_default();
    let generation = ack.fence.map(|fence| fence.generation).unwrap_or_default();
    kept.extend(new.into_iter().map(|r| failure(r, &placement, generation, at)));
    let surplus = kept.len().saturating_sub(FAILURES_MAX);
    let kept = serde_json::to_value(&kept[surplus..]).expect("failures are JSON");
    store::agents::put_load_failures(db, session, &kept).await
}

fn failure(state: &v1::ReplicaState, placement: &Placement, generation: u64, at: Time) -> LoadFailure {
    let placed = placement.replicas.iter().find(|r| r.id == state.replica);
    let group = placed.and_then(|r| placement.group(r.group));
    let name = |of: fn(&super::reconcile::PlacedGroup) -> &String| group.map(of).cloned().unwrap_or_default();
    LoadFailure {
        replica: state.replica,
        pipeline: name(|g| &g.pipeline),
        task: name(|g| &g.task),
        variant: name(|g| &g.variant),
        device: placed.map(|r| r.device),
        // No column takes U+0000.
        error: state.error.replace('\0', "\u{fffd}").chars().take(REASON_CHARS_MAX).collect(),
        generation,
        at,
    }
}
