//! How do clients follow a list as it grows? By Server-Sent Events.
//!
//! A client that lost its connection sends the number of its last entry in `Last-Event-ID`, as browsers do by themselves,
//! and misses nothing.

use super::access::Principal;
use super::refusal::{HandlerResult, Refusal};
use crate::app::{App, now};
use crate::store::{self, PgConnection, tokens};
use actix_web::http::StatusCode;
use actix_web::http::header::{CACHE_CONTROL, ContentType};
use actix_web::web::Bytes;
use actix_web::{HttpRequest, HttpResponse};
use serde::Serialize;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use utoipa::IntoParams;
use uuid::Uuid;

/// Most streams of one process, of all lists together.
pub const STREAMS_MAX: usize = 256;
/// Most entries that a stream reads at a time. An entry of the audit may have 16 KiB of forms, and each of [`STREAMS_MAX`]
/// slow clients may hold so many.
pub(super) const ENTRIES_MAX: i64 = 100;
/// A stream says this often that it lives, so that proxies keep it and a client that is gone is noticed.
const BEAT_EVERY: Duration = Duration::from_secs(10);

/// The header `Last-Event-ID`.
#[derive(Clone, Debug, IntoParams)]
#[into_params(parameter_in = Header)]
#[allow(dead_code)] // read by `last_number`
pub struct LastEventHeader {
    /// The number of the last entry that the client has: the stream goes on after it. Default: it begins now.
    #[param(rename = "Last-Event-ID", required = false, value_type = String, example = "17")]
    pub last_event_id: Option<String>,
}

/// Room for streams.
pub struct StreamRooms(Arc<Semaphore>);

impl Default for StreamRooms {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(STREAMS_MAX)))
    }
}

/// The number in `Last-Event-ID`.
///
/// # Errors
/// 400 if the header is no number of at least 0.
pub(super) fn last_number<L: FollowedList>(request: &HttpRequest) -> Result<Option<i64>, Refusal> {
    let Some(value) = request.headers().get("last-event-id") else { return Ok(None) };
    let number = value.to_str().ok().and_then(|text| text.trim().parse::<i64>().ok()).filter(|number| *number >= 0);
    let wrong = || format!("Last-Event-ID: {value:?}: expected the number of {}", L::ENTRY);
    number.map(Some).ok_or_else(|| Refusal::new(StatusCode::BAD_REQUEST, wrong()))
}

/// An entry on the wire.
pub(super) struct StreamPart {
    number: i64,
    bytes: Bytes,
}

impl StreamPart {
    /// An entry with its number and its kind.
    pub(super) fn new(number: i64, kind: &str, document: &impl Serialize) -> Self {
        let data = serde_json::to_string(document).expect("an entry is JSON");
        Self { number, bytes: Bytes::from(format!("id: {number}\nevent: {kind}\ndata: {data}\n\n")) }
    }
}

/// A list whose entries have numbers in the order of their commits.
pub(super) trait FollowedList: 'static {
    /// An entry, for people.
    const ENTRY: &'static str;
    /// The entries, for people.
    const ENTRIES: &'static str;

    /// The oldest entries after a number, in their order, at most [`ENTRIES_MAX`].
    async fn after(&self, db: &mut PgConnection, known: i64) -> store::Result<Vec<StreamPart>>;
}

/// Where a stream begins.
pub(super) struct StreamStart<L> {
    /// The list, with its filter.
    pub(super) list: L,
    /// The number of the last entry that the client has.
    pub(super) known: i64,
    /// The number of the newest entry of the list without its filter.
    pub(super) newest: watch::Receiver<i64>,
}

/// An answer that has each entry once it is committed.
///
/// # Errors
/// 503 if there are too many streams.
pub(super) fn stream_of<L: FollowedList>(
    app: &App,
    rooms: &StreamRooms,
    client: &Principal,
    start: StreamStart<L>,
) -> HandlerResult {
    let full = || Refusal::new(StatusCode::SERVICE_UNAVAILABLE, format!("{STREAMS_MAX} clients follow the lists already"));
    let room = rooms.0.clone().try_acquire_owned().map_err(|_| full())?;
    let follower = Follower {
        app: app.clone(),
        start,
        token: client.token,
        waiting: VecDeque::from([Bytes::from(": here\n\n")]),
        _room: room,
    };
    let parts = futures::stream::unfold(follower, |mut follower| async move {
        let part = follower.next().await?;
        Some((Ok::<_, actix_web::Error>(part), follower))
    });
    Ok(HttpResponse::Ok()
        .insert_header(ContentType("text/event-stream".parse().expect("a media type")))
        .insert_header((CACHE_CONTROL, "no-store"))
        .streaming(parts))
}

/// A client that follows a list.
struct Follower<L> {
    app: App,
    /// Where the rest of the stream begins.
    start: StreamStart<L>,
    /// The token of the client; `None`: it has none of the table.
    token: Option<Uuid>,
    /// Parts of the stream that are not sent.
    waiting: VecDeque<Bytes>,
    _room: OwnedSemaphorePermit,
}

impl<L: FollowedList> Follower<L> {
    /// The next part of the stream; `None` once the service stops or the client's token counts no more, or if the database
    /// does not answer.
    async fn next(&mut self) -> Option<Bytes> {
        let told = |error: &store::Error| tracing::warn!(%error, "a stream of {} ends", L::ENTRIES);
        loop {
            if let Some(part) = self.waiting.pop_front() {
                return Some(part);
            }
            if self.app.is_stopping() {
                return None;
            }
            if *self.start.newest.borrow_and_update() > self.start.known {
                self.check_token().await?;
                self.read().await.inspect_err(told).ok()?;
                continue;
            }
            tokio::select! {
                () = self.app.stopped() => return None,
                changed = self.start.newest.changed() => changed.ok()?,
                () = tokio::time::sleep(BEAT_EVERY) => {
                    self.check_token().await?;
                    return Some(Bytes::from(": beat\n\n"));
                }
            }
        }
    }

    /// `None` if the client's token counts no more, or if the database does not answer.
    async fn check_token(&self) -> Option<()> {
        let Some(token) = self.token else { return Some(()) };
        let valid = async { tokens::is_valid(&mut *self.app.pool.acquire().await?, token, now()).await };
        let valid = valid.await.inspect_err(|error| tracing::warn!(%error, "a stream of {} ends", L::ENTRIES)).ok()?;
        valid.then_some(())
    }

    async fn read(&mut self) -> store::Result<()> {
        let start = &mut self.start;
        let newest = *start.newest.borrow();
        let parts = start.list.after(&mut *self.app.pool.acquire().await?, start.known).await?;
        let is_whole = (parts.len() as i64) < ENTRIES_MAX;
        start.known = parts.last().map_or(start.known, |part| part.number);
        if is_whole {
            // The filter left out the others.
            start.known = start.known.max(newest);
        }
        self.waiting.extend(parts.into_iter().map(|part| part.bytes));
        Ok(())
    }
}
