//! Which agents are heard of: noted in memory by this process' monotonic clock, and brought to the database for all streams
//! together. Only the process that holds a stream says that its agent is silent; a stalled database keeps it from saying so.

use super::liveness::{Patience, Streams};
use crate::app::App;
use crate::clock;
use crate::parts::Part;
use crate::store::{self, PgConnection};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use uuid::Uuid;

/// How often the notes are brought to the database; well below the silence after which an agent is lost.
const BRING_EVERY: Duration = Duration::from_millis(250);
/// A database that has not answered for so long has lost the connection: another one is made.
const BRING_MAX: Duration = Duration::from_secs(10);

/// Why a stream is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// A newer stream of its agent has replaced it.
    Replaced,
    /// Its agent was silent for too long.
    Silent,
}

/// The notes of one service process.
#[derive(Debug)]
pub struct Heard {
    /// The process' number.
    pub process: Uuid,
    notes: Mutex<Notes>,
    /// Woken when streams are over.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Notes {
    streams: Streams,
    over: BTreeMap<Uuid, Over>,
}

impl Default for Heard {
    fn default() -> Self {
        Self { process: Uuid::now_v7(), notes: Mutex::default(), changed: Notify::new() }
    }
}

impl Heard {
    fn with<T>(&self, of: impl FnOnce(&mut Notes) -> T) -> T {
        of(&mut self.notes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A stream has begun.
    pub fn begin(&self, session: Uuid) {
        self.with(|notes| notes.streams.begin(session, Instant::now()));
    }

    /// A stream was heard of.
    pub fn note(&self, session: Uuid) {
        self.with(|notes| notes.streams.heard(session, Instant::now()));
    }

    /// A stream broke off: its agent may come back.
    pub fn break_off(&self, session: Uuid) {
        self.with(|notes| {
            notes.over.remove(&session);
            notes.streams.break_off(session, Instant::now());
        });
    }

    /// Whether a stream of this process broke off, and its agent is not lost yet.
    pub fn is_broken(&self, session: Uuid) -> bool {
        self.with(|notes| notes.streams.is_broken(session))
    }

    /// A stream has ended for good.
    pub fn forget(&self, session: Uuid) {
        self.with(|notes| {
            notes.streams.forget(session);
            notes.over.remove(&session);
        });
    }

    /// Waits until a stream is over.
    pub async fn over(&self, session: Uuid) -> Over {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // From here on no change is missed.
            changed.as_mut().enable();
            if let Some(over) = self.with(|notes| notes.over.get(&session).copied()) {
                return over;
            }
            changed.await;
        }
    }

    fn end(&self, sessions: &[Uuid], why: Over) {
        self.with(|notes| {
            for session in sessions {
                if !notes.streams.is_broken(*session) {
                    notes.over.insert(*session, why);
                }
                notes.streams.forget(*session);
            }
        });
        self.changed.notify_waiters();
    }

    /// What was brought: of these streams, the `known` ones are their agents' newest.
    fn brought(&self, sessions: &[Uuid], known: &BTreeSet<Uuid>) {
        let replaced: Vec<Uuid> = sessions.iter().copied().filter(|session| !known.contains(session)).collect();
        if !replaced.is_empty() {
            self.end(&replaced, Over::Replaced);
        }
    }
}

/// Brings the notes to the database and finds who is silent, until the service stops.
pub async fn run(app: App) {
    let mut patience = Patience::none(Instant::now());
    // Its own: all others may wait for the database, this one must be first when it answers again.
    let mut connection = None;
    while !app.is_stopping() {
        tokio::select! {
            () = app.stopped() => return,
            () = tokio::time::sleep(BRING_EVERY) => {}
        }
        let at = Instant::now();
        let may_judge = !patience.look(at);
        if patience.is_gap() {
            tracing::warn!("this process was not awake, or its database stalled: no agent counts as lost for a while");
        }
        let brought = tokio::time::timeout(BRING_MAX, bring(&app, &mut connection, at, may_judge)).await;
        match brought.unwrap_or(Err(store::Error::PoolTimedOut)) {
            Ok(()) => app.parts.sign(Part::Heard),
            Err(error) => {
                tracing::warn!(%error, "which agents were heard of could not be recorded");
                connection = None;
            }
        }
    }
}

async fn bring(app: &App, connection: &mut Option<PgConnection>, at: Instant, may_judge: bool) -> store::Result<()> {
    let db = match connection.take() {
        Some(db) => db,
        None => app.pool.acquire().await?.detach(),
    };
    let db = connection.insert(db);
    let asked = Instant::now();
    let time = store::processes::beat(db, app.heard.process).await?;
    clock::heard(asked, Instant::now(), time);
    let news = app.heard.with(|notes| notes.streams.news(at));
    if !news.is_empty() {
        let (sessions, ages): (Vec<Uuid>, Vec<i64>) = news.iter().map(|(s, age)| (*s, age.as_millis() as i64)).unzip();
        let known = store::agents::seen_all(db, &sessions, &ages).await?;
        app.heard.brought(&sessions, &known.into_iter().collect());
    }
    let silent = if may_judge { app.heard.with(|notes| notes.streams.silent(at)) } else { Vec::new() };
    if !silent.is_empty() {
        for name in store::agents::lose(db, &silent).await? {
            tracing::warn!(agent = name, "agent is silent and counts as lost");
        }
        app.heard.end(&silent, Over::Silent);
        app.fleet_changed.notify_one();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[tokio::test]
    async fn a_stream_hears_that_it_is_replaced_and_one_that_has_ended_is_forgotten() {
        let (heard, [old, new]) = (Heard::default(), [1, 2].map(Uuid::from_u128));
        [old, new].into_iter().for_each(|session| {
            heard.begin(session);
            heard.note(session);
        });
        let mut waiting = std::pin::pin!(heard.over(old));
        assert!(waiting.as_mut().now_or_never().is_none(), "nothing was brought yet");
        heard.brought(&[old, new], &[new].into());
        assert_eq!(waiting.await, Over::Replaced);
        assert!(heard.over(new).now_or_never().is_none());
        heard.forget(old);
        let left = heard.with(|notes| (notes.streams.news(Instant::now()).len(), notes.over.len()));
        assert_eq!(left, (1, 0));
    }

    #[test]
    fn nobody_is_told_that_a_broken_stream_is_over() {
        let (heard, session) = (Heard::default(), Uuid::from_u128(1));
        heard.begin(session);
        heard.break_off(session);
        assert!(heard.is_broken(session));
        heard.end(&[session], Over::Silent);
        assert!(!heard.is_broken(session));
        assert!(heard.with(|notes| notes.over.is_empty()));
    }
}
