//! Which load failures of an agent does its operator see?
//!
//! A failure outlives the target of its replica: the next acknowledgement does not name the replica any more, and the
//! operator still needs the reason.

use super::placement::{PlacedGroup, Placement};
use apportion_protocol::v1::{self, replica_state::State};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

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
    /// Its device of the agent; null if the target did not have it any more.
    pub device: Option<u32>,
    /// The reason, as the agent reports it.
    pub error: String,
    /// The generation of the target that it was in.
    pub generation: u64,
    /// When the agent reported it first.
    pub at: DateTime<Utc>,
}

/// The failed replicas of an acknowledgement that are not `known` yet.
#[must_use]
pub fn new_failures<'a>(known: &[LoadFailure], ack: &'a v1::Ack) -> Vec<&'a v1::ReplicaState> {
    let failed = ack.replicas.iter().filter(|r| r.state() == State::Failed);
    failed.filter(|r| known.iter().all(|k| k.replica != r.replica)).collect()
}

/// One failure with the names of its replica's group in the placement.
#[must_use]
pub fn load_failure(state: &v1::ReplicaState, placement: &Placement, generation: u64, at: DateTime<Utc>) -> LoadFailure {
    let placed = placement.replicas.iter().find(|r| r.id == state.replica);
    let group = placed.and_then(|r| placement.group(r.group));
    let name = |of: fn(&PlacedGroup) -> &String| group.map(of).cloned().unwrap_or_default();
    LoadFailure {
        replica: state.replica,
        pipeline: name(|g| &g.pipeline),
        task: name(|g| &g.task),
        variant: name(|g| &g.variant),
        device: placed.map(|r| r.device),
        // PostgreSQL's texts cannot hold U+0000.
        error: state.error.replace('\0', "\u{fffd}").chars().take(REASON_CHARS_MAX).collect(),
        generation,
        at,
    }
}
