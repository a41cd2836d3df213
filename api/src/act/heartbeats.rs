//! Writes heartbeats to the database and finds silent agents.
//!
//! Heartbeats of all streams are written together. Only the process that holds a stream decides that its agent is silent.
//! It decides nothing while its own database stalls.

use crate::app::heartbeats::StreamEnd;
use crate::app::parts::ServicePart;
use crate::app::{App, clock};
use crate::decide::heartbeat::{GracePeriod, LossJudgement};
use crate::store::{self, PgConnection};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// Pause between two writes: well below the silence after which an agent is lost.
const WRITE_EVERY: Duration = Duration::from_millis(250);
/// Longest time of one write. After it the connection counts as lost and is replaced.
const WRITE_MAX: Duration = Duration::from_secs(10);

/// Writes heartbeats and ends silent streams, until the service stops.
pub async fn run(app: App) {
    let mut grace = GracePeriod::none(Instant::now());
    // This task has a connection of its own: it must be the first to reach the database after a stall.
    let mut connection = None;
    while !app.is_stopping() {
        tokio::select! {
            () = app.stopped() => return,
            () = tokio::time::sleep(WRITE_EVERY) => {}
        }
        let at = Instant::now();
        let judgement = grace.observe(at);
        if grace.has_gap() {
            tracing::warn!("this process was suspended, or its database stalled: no agent counts as lost for a while");
        }
        let written = tokio::time::timeout(WRITE_MAX, write_heartbeats(&app, &mut connection, at, judgement)).await;
        match written.unwrap_or(Err(store::Error::PoolTimedOut)) {
            Ok(()) => app.parts.note_alive(ServicePart::Heartbeats),
            Err(error) => {
                tracing::warn!(%error, "heartbeats could not be written");
                connection = None;
            }
        }
    }
}

async fn write_heartbeats(
    app: &App,
    connection: &mut Option<PgConnection>,
    at: Instant,
    judgement: LossJudgement,
) -> store::Result<()> {
    let db = match connection.take() {
        Some(db) => db,
        None => app.pool.acquire().await?.detach(),
    };
    let db = connection.insert(db);
    let asked = Instant::now();
    let time = store::processes::beat(db, app.heartbeats.process).await?;
    clock::correct(asked, Instant::now(), time);
    let recent = app.heartbeats.take_recent(at);
    if !recent.is_empty() {
        let (sessions, ages): (Vec<Uuid>, Vec<i64>) = recent.iter().map(|(s, age)| (*s, age.as_millis() as i64)).unzip();
        let newest = store::agents::write_heartbeats(db, &sessions, &ages).await?;
        app.heartbeats.end_replaced(&sessions, &newest.into_iter().collect());
    }
    let silent = match judgement {
        LossJudgement::Allowed => app.heartbeats.silent(at),
        LossJudgement::Withheld => Vec::new(),
    };
    if !silent.is_empty() {
        for name in store::agents::mark_lost(db, &silent).await? {
            tracing::warn!(agent = name, "agent is silent and counts as lost");
        }
        app.heartbeats.end_streams(&silent, StreamEnd::Silent);
        app.fleet_changed.notify_one();
    }
    Ok(())
}
