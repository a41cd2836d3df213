//! Stores the load failures that acknowledgements name.

use crate::decide::load_failures::{FAILURES_MAX, LoadFailure, load_failure, new_failures};
use crate::decide::placement::Placement;
use crate::store::{self, PgConnection, Time};
use apportion_protocol::v1::{self, replica_state::State};
use uuid::Uuid;

/// Stores the failed replicas of an acknowledgement; each replica once.
///
/// # Errors
/// The database's.
pub(super) async fn store_failures(db: &mut PgConnection, session: Uuid, ack: &v1::Ack, at: Time) -> store::Result<()> {
    if ack.replicas.iter().all(|r| r.state() != State::Failed) {
        return Ok(());
    }
    let Some(known) = store::agents::load_failures(db, session).await? else { return Ok(()) };
    let mut failures: Vec<LoadFailure> = serde_json::from_value(known).unwrap_or_default();
    let new = new_failures(&failures, ack);
    if new.is_empty() {
        return Ok(());
    }
    let placement = store::target::get(db).await?.placement;
    let placement: Placement = serde_json::from_value(placement).unwrap_or_default();
    let generation = ack.fence.map(|fence| fence.generation).unwrap_or_default();
    failures.extend(new.into_iter().map(|state| load_failure(state, &placement, generation, at)));
    let surplus = failures.len().saturating_sub(FAILURES_MAX);
    let kept = serde_json::to_value(&failures[surplus..]).expect("failures are JSON");
    store::agents::put_load_failures(db, session, &kept).await
}
