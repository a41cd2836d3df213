//! Tells the readers of this process that there are new events, and new entries of the audit.

use crate::app::App;
use crate::app::parts::ServicePart;
use crate::store;
use sqlx::postgres::PgListener;
use std::time::Duration;

/// Pause between two looks without an announcement: an announcement can be lost with its connection.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Pause after a broken connection.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// Reads the numbers of the newest event and of the newest entry of the audit whenever one of them is announced, until the
/// service stops.
pub async fn run(app: App) {
    loop {
        tokio::select! {
            () = app.stopped() => return,
            result = follow(&app) => {
                if let Err(error) = result {
                    tracing::warn!(%error, "the connection for announcements of events broke; listening again");
                }
            }
        }
        tokio::time::sleep(RETRY_AFTER).await;
    }
}

async fn follow(app: &App) -> store::Result<()> {
    let mut listener = PgListener::connect_with(&app.pool).await?;
    listener.listen(store::events::CHANNEL).await?;
    loop {
        let mut db = app.pool.acquire().await?;
        let newest = [store::events::newest(&mut db).await?, store::audit::newest(&mut db).await?];
        drop(db);
        for (readers, newest) in [&app.newest_event, &app.newest_audit_entry].into_iter().zip(newest) {
            readers.send_if_modified(|known| std::mem::replace(known, newest) != newest);
        }
        app.parts.note_alive(ServicePart::Events);
        let _elapsed = tokio::time::timeout(LOOK_EVERY, listener.recv()).await;
    }
}
