//! Pushes a committed target to every agent.
//!
//! Each process reads the target from the database and hands it to the streams that it holds.

use crate::app::App;
use crate::app::parts::ServicePart;
use crate::decide::link_keys::{FleetKey, FleetKeys, PushedTarget};
use crate::store;
use apportion_protocol::v1;
use prost::Message;
use sqlx::postgres::PgListener;
use std::sync::Arc;
use std::time::Duration;

/// Pause between two reads without an announcement: an announcement can be lost with its connection.
const POLL_EVERY: Duration = Duration::from_secs(2);

/// Reads the target whenever a new generation is announced, until the service stops.
pub async fn run(app: App) {
    loop {
        tokio::select! {
            () = app.stopped() => return,
            result = follow_announcements(&app) => {
                if let Err(error) = result {
                    tracing::warn!(%error, "the connection for announcements of targets broke; listening again");
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

async fn follow_announcements(app: &App) -> store::Result<()> {
    let mut listener = PgListener::connect_with(&app.pool).await?;
    listener.listen(store::target::CHANNEL).await?;
    loop {
        refresh(app).await?;
        app.parts.note_alive(ServicePart::Push);
        // The target is read again, with or without an announcement.
        let _elapsed = tokio::time::timeout(POLL_EVERY, listener.recv()).await;
    }
}

/// Reads the target and the fleet's keys, and hands them to the streams if one of them is new.
///
/// # Errors
/// The database's.
pub async fn refresh(app: &App) -> store::Result<()> {
    let mut db = app.pool.acquire().await?;
    let row = store::target::get(&mut db).await?;
    let keys = store::link_keys::newest(&mut db).await?;
    drop(db);
    if row.composed.is_empty() {
        return Ok(());
    }
    let target = match v1::Target::decode(row.composed.as_slice()) {
        Ok(target) => target,
        Err(error) => {
            tracing::error!(%error, generation = row.generation, "the stored target cannot be read; agents keep theirs");
            return Ok(());
        }
    };
    let keys = FleetKeys(keys.iter().map(|row| FleetKey::new(row.number, &row.key)).collect());
    let pushed = Arc::new(PushedTarget::new(target, keys));
    app.target.send_if_modified(|current| {
        let is_newer = current.as_ref().is_none_or(|current| current.order() < pushed.order());
        if is_newer {
            *current = Some(pushed);
        }
        is_newer
    });
    Ok(())
}
