//! Stores the messages of agents in the database.

use super::load_failures;
use super::messages::ack_json;
use super::times;
use crate::app::agent_records::UnsavedRecords;
use crate::app::parts::ServicePart;
use crate::app::{App, now};
use crate::store;
use apportion_protocol::v1;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;
use uuid::Uuid;

/// Pause after a failure, and longest pause between two signs of life.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Stores new records, until the service stops.
pub async fn run(app: App) {
    while !app.is_stopping() {
        tokio::select! {
            () = app.stopped() => return,
            () = app.records.added() => {}
            () = tokio::time::sleep(RETRY_AFTER) => {}
        }
        let unsaved = app.records.take();
        if unsaved.dropped > 0 {
            tracing::warn!(
                rows = unsaved.dropped,
                "arrivals and sums of groups were dropped: the database stored none for too long"
            );
        }
        match store_all(&app, &unsaved).await {
            Ok(()) => app.parts.note_alive(ServicePart::Records),
            // The database refuses one record; the others must not wait for it.
            Err(error) if refuses_record(&error) => {
                tracing::warn!(%error, "records of agents are stored one by one");
                store_each(&app, unsaved).await;
            }
            Err(error) => {
                tracing::warn!(%error, "records of agents could not be stored; the service tries again");
                app.records.put_back(unsaved);
                tokio::select! {
                    () = app.stopped() => return,
                    () = tokio::time::sleep(RETRY_AFTER) => {}
                }
            }
        }
    }
}

/// Whether a record is wrong. A database that is read-only, full or away refuses every record, and stores them later.
fn refuses_record(error: &store::Error) -> bool {
    matches!(error, store::Error::Database(_)) && !store::is_unavailable(error)
}

async fn store_all(app: &App, unsaved: &UnsavedRecords) -> store::Result<()> {
    if unsaved.is_empty() {
        return Ok(());
    }
    let mut tx = app.pool.begin().await?;
    for row in unsaved.arrivals.values() {
        store::arrivals::add(&mut tx, row).await?;
    }
    for (session, acks) in &unsaved.acks {
        for ack in acks {
            load_failures::store_failures(&mut tx, *session, ack, now()).await?;
        }
    }
    store::agents::write_acknowledgements(&mut tx, &newest(&unsaved.acks)).await?;
    store::agents::write_device_use(&mut tx, &unsaved.devices).await?;
    store::agents::write_hops(&mut tx, &unsaved.hops).await?;
    for (session, loads) in &unsaved.loads {
        times::store_loads(&mut tx, *session, loads).await?;
    }
    store::drifts::add_sums(&mut tx, &unsaved.groups.values().collect::<Vec<_>>()).await?;
    store::wants::add(&mut tx, unsaved.wants.values()).await?;
    tx.commit().await
}

/// The newest acknowledgement of each stream, as JSON.
fn newest(acks: &BTreeMap<Uuid, Vec<v1::Ack>>) -> BTreeMap<Uuid, Value> {
    acks.iter().filter_map(|(session, acks)| Some((*session, ack_json(acks.last()?)))).collect()
}

/// Stores each record by itself. A record that the database refuses is dropped.
async fn store_each(app: &App, unsaved: UnsavedRecords) {
    let UnsavedRecords { acks, devices, hops, loads, arrivals, groups, .. } = unsaved;
    let acks = acks.into_iter().map(|ack| UnsavedRecords { acks: [ack].into(), ..UnsavedRecords::default() });
    let devices = devices.into_iter().map(|one| UnsavedRecords { devices: [one].into(), ..UnsavedRecords::default() });
    let arrivals = arrivals.into_iter().map(|row| UnsavedRecords { arrivals: [row].into(), ..UnsavedRecords::default() });
    let hops = hops.into_iter().map(|one| UnsavedRecords { hops: [one].into(), ..UnsavedRecords::default() });
    let loads = loads.into_iter().map(|one| UnsavedRecords { loads: [one].into(), ..UnsavedRecords::default() });
    let groups = groups.into_iter().map(|row| UnsavedRecords { groups: [row].into(), ..UnsavedRecords::default() });
    for record in acks.chain(devices).chain(hops).chain(loads).chain(arrivals).chain(groups) {
        match store_all(app, &record).await {
            Ok(()) => {}
            Err(error) if refuses_record(&error) => {
                tracing::error!(%error, ?record, "the database refuses a record of an agent");
            }
            Err(_) => app.records.put_back(record),
        }
    }
}
