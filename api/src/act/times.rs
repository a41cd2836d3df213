//! Reads and stores the times that agents measured, and makes events where they differ from a pipeline's file.

use super::apply::{ApplyError, fence};
use crate::decide::measured::{
    AgentTimes, ComparedTime, FleetTimes, ReplicaLoadTime, compare_times, differing_times, with_loads,
};
use crate::documents;
use crate::store::agents::{self as rows, AgentRow};
use crate::store::{self, PgConnection, leases::HeldLease};
use apportion_wire::AgentState;
use serde_json::{Value, json};
use sqlx::Connection;
use std::collections::BTreeSet;
use uuid::Uuid;

/// The kind of an event about times that differ.
pub const TIMES_EVENT: &str = "times";

/// Adds loads to those of the stream's agent.
///
/// # Errors
/// The database's.
pub(super) async fn store_loads(db: &mut PgConnection, session: Uuid, new: &[ReplicaLoadTime]) -> store::Result<()> {
    let Some(known) = rows::load_times(db, session).await? else { return Ok(()) };
    let known = serde_json::from_value(known).unwrap_or_default();
    let kept = serde_json::to_value(with_loads(known, new)).expect("times are JSON");
    rows::put_load_times(db, session, &kept).await
}

/// The times in an agent's row. If another release wrote them in another form, they count as absent.
fn agent_times(row: AgentRow) -> AgentTimes {
    AgentTimes {
        number: row.number as u64,
        is_live: row.state == AgentState::Live,
        hops: row.hops.and_then(|hops| serde_json::from_value(hops).ok()).unwrap_or_default(),
        loads: serde_json::from_value(row.load_times).unwrap_or_default(),
    }
}

/// The times in the rows of all agents.
#[must_use]
pub fn fleet_times(agents: Vec<AgentRow>) -> FleetTimes {
    FleetTimes::of(agents.into_iter().map(agent_times).collect())
}

/// What all agents measured.
///
/// # Errors
/// The database's.
pub async fn read(db: &mut PgConnection) -> store::Result<FleetTimes> {
    Ok(fleet_times(rows::list(db).await?))
}

/// Makes an event for each pipeline whose file has other times than agents measured, once for each set of such times, and
/// one when they agree again.
pub(super) async fn note_differences(db: &mut PgConnection, lease: HeldLease) -> Result<(), ApplyError> {
    let times = read(db).await?;
    if times.is_empty() {
        return Ok(());
    }
    let last = store::events::last_by_pipeline(db, TIMES_EVENT).await?;
    for spec in documents::measured_fitting(store::pipelines::list(db).await?).await {
        let names = last.get(&spec.name).and_then(|facts| facts["differ"].as_array()).into_iter().flatten();
        let known: BTreeSet<String> = names.filter_map(|one| one["time"].as_str().map(str::to_owned)).collect();
        let compared = compare_times(&spec, &times);
        let differing = differing_times(&compared, &known);
        if differing == known {
            continue;
        }
        let facts: Vec<Value> =
            compared.iter().filter(|time| differing.contains(&time.of.to_string())).map(difference).collect();
        tracing::info!(pipeline = spec.name, ?differing, "times of the file differ from those that agents measured");
        let mut tx = db.begin().await?;
        fence(&mut tx, lease).await?;
        store::events::insert(&mut tx, TIMES_EVENT, &spec.name, &json!({ "differ": facts })).await?;
        tx.commit().await?;
    }
    Ok(())
}

fn difference(time: &ComparedTime) -> Value {
    let measured = time.measured.as_ref();
    json!({
        "time": time.of.to_string(), "given_ms": time.given_ms, "measured_ms": measured.map(|m| m.median_ms),
        "count": measured.map(|m| m.count),
    })
}
