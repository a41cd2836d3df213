//! Which agents were heard of: noted in memory and brought to the database for all streams together, so that the reports of a large
//! fleet cost a statement each half second and not a transaction each.

use crate::app::App;
use crate::store::{self, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use uuid::Uuid;

/// How often the notes are brought to the database; well below the silence after which an agent is lost.
const BRING_EVERY: Duration = Duration::from_millis(500);

/// The notes of one service process.
#[derive(Debug, Default)]
pub struct Heard {
    notes: Mutex<Notes>,
    /// Held while notes are brought, so that they cannot call to life again a stream that ends meanwhile.
    bringing: tokio::sync::Mutex<()>,
    /// Woken when streams were found replaced.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Notes {
    heard: BTreeMap<Uuid, Time>,
    /// Streams of this process that are not their agents' newest any more.
    replaced: BTreeSet<Uuid>,
}

impl Heard {
    fn with<T>(&self, of: impl FnOnce(&mut Notes) -> T) -> T {
        of(&mut self.notes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A stream was heard of.
    pub fn note(&self, session: Uuid, at: Time) {
        self.with(|notes| notes.heard.insert(session, at));
    }

    /// Waits until a stream is found not to be its agent's newest any more.
    pub async fn replaced(&self, session: Uuid) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // From here on no change is missed.
            changed.as_mut().enable();
            if self.with(|notes| notes.replaced.contains(&session)) {
                return;
            }
            changed.await;
        }
    }

    /// What was brought: of these streams, the `known` ones are their agents' newest.
    fn brought(&self, sessions: Vec<Uuid>, known: &BTreeSet<Uuid>) {
        let replaced: Vec<Uuid> = sessions.into_iter().filter(|s| !known.contains(s)).collect();
        if !replaced.is_empty() {
            self.with(|notes| notes.replaced.extend(replaced));
            self.changed.notify_waiters();
        }
    }

    /// A stream has ended: nothing of it is brought after this.
    pub async fn forget(&self, session: Uuid) {
        self.with(|notes| {
            notes.heard.remove(&session);
            notes.replaced.remove(&session);
        });
        let _brought = self.bringing.lock().await;
        // What was being brought just now may have found it replaced.
        self.with(|notes| notes.replaced.remove(&session));
    }
}

/// Brings the notes to the database, until the service stops.
pub async fn run(app: App) {
    while !app.is_stopping() {
        tokio::select! {
            () = app.stopped() => return,
            () = tokio::time::sleep(BRING_EVERY) => {}
        }
        if let Err(error) = bring(&app).await {
            tracing::warn!(%error, "which agents were heard of could not be recorded");
        }
    }
}

async fn bring(app: &App) -> store::Result<()> {
    let _bringing = app.heard.bringing.lock().await;
    let heard = app.heard.with(|notes| std::mem::take(&mut notes.heard));
    if heard.is_empty() {
        return Ok(());
    }
    let (sessions, times): (Vec<Uuid>, Vec<Time>) = heard.into_iter().unzip();
    let known = store::agents::seen_all(&mut *app.pool.acquire().await?, &sessions, &times).await?;
    app.heard.brought(sessions, &known.into_iter().collect());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[tokio::test]
    async fn a_stream_hears_that_it_is_replaced_and_one_that_has_ended_is_forgotten() {
        let (heard, [old, new]) = (Heard::default(), [1, 2].map(Uuid::from_u128));
        [old, new].into_iter().for_each(|session| heard.note(session, crate::app::now()));
        let mut waiting = std::pin::pin!(heard.replaced(old));
        assert!(waiting.as_mut().now_or_never().is_none(), "nothing was brought yet");
        heard.brought(vec![old, new], &[new].into());
        waiting.await;
        assert!(heard.replaced(new).now_or_never().is_none());
        heard.forget(old).await;
        let left = heard.with(|notes| (notes.heard.keys().copied().collect::<Vec<_>>(), notes.replaced.len()));
        assert_eq!(left, (vec![new], 0));
    }
}
