//! When did each agent of this process last send a message?
//!
//! Moments are noted in memory, by the monotonic clock of this process. `act::heartbeats` writes them to the database.

use crate::decide::heartbeat::StreamHeartbeats;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use uuid::Uuid;

/// Why this process ends a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEnd {
    /// A newer stream of the same agent has replaced it.
    Replaced,
    /// Its agent was silent for too long.
    Silent,
}

/// The heartbeats of all streams of one service process.
#[derive(Debug)]
pub struct Heartbeats {
    /// The identifier of this process.
    pub process: Uuid,
    notes: Mutex<Notes>,
    /// Woken when this process ends streams.
    ended: Notify,
}

#[derive(Debug, Default)]
struct Notes {
    streams: StreamHeartbeats,
    ended: BTreeMap<Uuid, StreamEnd>,
}

impl Default for Heartbeats {
    fn default() -> Self {
        Self { process: Uuid::now_v7(), notes: Mutex::default(), ended: Notify::new() }
    }
}

impl Heartbeats {
    fn with_notes<T>(&self, change: impl FnOnce(&mut Notes) -> T) -> T {
        change(&mut self.notes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Starts to follow a new stream.
    pub fn open_stream(&self, session: Uuid) {
        self.with_notes(|notes| notes.streams.open(session, Instant::now()));
    }

    /// Notes that a message came on a stream.
    pub fn record(&self, session: Uuid) {
        self.with_notes(|notes| notes.streams.record(session, Instant::now()));
    }

    /// Notes that a connection was lost. Its agent may come back.
    pub fn disconnect(&self, session: Uuid) {
        self.with_notes(|notes| {
            notes.ended.remove(&session);
            notes.streams.disconnect(session, Instant::now());
        });
    }

    /// Whether the connection of a stream was lost and its agent does not count as lost yet.
    pub fn is_disconnected(&self, session: Uuid) -> bool {
        self.with_notes(|notes| notes.streams.is_disconnected(session))
    }

    /// Removes a stream that has ended for good.
    pub fn forget(&self, session: Uuid) {
        self.with_notes(|notes| {
            notes.streams.forget(session);
            notes.ended.remove(&session);
        });
    }

    /// Waits until this process ends the stream.
    pub async fn wait_for_end(&self, session: Uuid) -> StreamEnd {
        loop {
            let mut ended = std::pin::pin!(self.ended.notified());
            // No change is missed from here on.
            ended.as_mut().enable();
            if let Some(end) = self.with_notes(|notes| notes.ended.get(&session).copied()) {
                return end;
            }
            ended.await;
        }
    }

    /// The streams that had messages since the last call, each with the age of its last message.
    pub fn take_recent(&self, at: Instant) -> BTreeMap<Uuid, Duration> {
        self.with_notes(|notes| notes.streams.take_recent(at))
    }

    /// The streams whose agents were silent for too long.
    pub fn silent(&self, at: Instant) -> Vec<Uuid> {
        self.with_notes(|notes| notes.streams.silent(at))
    }

    /// Ends these streams. One that has ended by itself meanwhile is left out: nobody waits for its end.
    pub fn end_streams(&self, sessions: &[Uuid], why: StreamEnd) {
        self.with_notes(|notes| {
            for session in sessions {
                if notes.streams.is_connected(*session) {
                    notes.ended.insert(*session, why);
                }
                notes.streams.forget(*session);
            }
        });
        self.ended.notify_waiters();
    }

    /// Ends those of `sessions` that are not `newest`: a newer stream of their agent has replaced them.
    pub fn end_replaced(&self, sessions: &[Uuid], newest: &BTreeSet<Uuid>) {
        let replaced: Vec<Uuid> = sessions.iter().copied().filter(|session| !newest.contains(session)).collect();
        if !replaced.is_empty() {
            self.end_streams(&replaced, StreamEnd::Replaced);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[tokio::test]
    async fn a_replaced_stream_ends_and_a_forgotten_one_leaves_nothing() {
        let (heartbeats, [old, new]) = (Heartbeats::default(), [1, 2].map(Uuid::from_u128));
        [old, new].into_iter().for_each(|session| {
            heartbeats.open_stream(session);
            heartbeats.record(session);
        });
        let mut waiting = std::pin::pin!(heartbeats.wait_for_end(old));
        assert!(waiting.as_mut().now_or_never().is_none(), "nothing was written yet");
        heartbeats.end_replaced(&[old, new], &[new].into());
        assert_eq!(waiting.await, StreamEnd::Replaced);
        assert!(heartbeats.wait_for_end(new).now_or_never().is_none());
        heartbeats.forget(old);
        let left = heartbeats.with_notes(|notes| (notes.streams.take_recent(Instant::now()).len(), notes.ended.len()));
        assert_eq!(left, (1, 0));
    }

    #[test]
    fn ending_a_stream_that_is_over_leaves_nothing() {
        let (heartbeats, session) = (Heartbeats::default(), Uuid::from_u128(1));
        heartbeats.open_stream(session);
        // It leaves while somebody has just found it silent.
        heartbeats.forget(session);
        heartbeats.end_streams(&[session], StreamEnd::Silent);
        assert!(heartbeats.with_notes(|notes| notes.ended.is_empty()));
    }

    #[test]
    fn a_disconnected_stream_is_not_ended_again() {
        let (heartbeats, session) = (Heartbeats::default(), Uuid::from_u128(1));
        heartbeats.open_stream(session);
        heartbeats.disconnect(session);
        assert!(heartbeats.is_disconnected(session));
        heartbeats.end_streams(&[session], StreamEnd::Silent);
        assert!(!heartbeats.is_disconnected(session));
        assert!(heartbeats.with_notes(|notes| notes.ended.is_empty()));
    }
}
