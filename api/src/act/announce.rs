//! Tells the readers of this process that there are new events.

use crate::app::App;
use crate::app::parts::ServicePart;
use crate::store;
use sqlx::postgres::PgListener;
use std::time::Duration;

/// Pause between two looks without an announcement: an announcement can be lost with its connection.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Pause after a broken connection.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// Reads the number of the newest event whenever one is announced, until the service stops.
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
        let newest = store::events::newest(&mut *app.pool.acquire().await?).await?;
        app.newest_event.send_if_modified(|known| std::mem::replace(known, newest) != newest);
        app.parts.note_alive(ServicePart::Events);
        let _elapsed = tokio::time::timeout(LOOK_EVERY, listener.recv()).await;
    }
}
