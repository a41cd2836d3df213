//! `/v1/events`: what has happened, as a list and as a stream.
//!
//! The stream is made of Server-Sent Events. A client that lost its connection sends the number of its last event in
//! `Last-Event-ID`, as browsers do by themselves, and misses nothing.

use super::access::Principal;
use super::paging::{ListPage, PageQuery};
use super::refusal::{HandlerResult, Refusal, RefusalReply};
use crate::app::{App, now};
use crate::store::events::{self as rows, EventFilter, EventRow};
use crate::store::tokens;
use actix_web::http::StatusCode;
use actix_web::http::header::{CACHE_CONTROL, ContentType};
use actix_web::web::Bytes;
use actix_web::{HttpRequest, HttpResponse, web};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

/// Most streams of one process.
pub const STREAMS_MAX: usize = 256;
/// A stream says this often that it lives, so that proxies keep it and a client that is gone is noticed.
const BEAT_EVERY: Duration = Duration::from_secs(10);
/// The kinds of events.
pub const KINDS: [&str; 20] = [
    "target",
    "decision",
    "plan",
    "analysis",
    "agent",
    "hold",
    "release",
    "budget",
    "schedule",
    "workload",
    "machine-asked",
    "machine-came",
    "machine-lost",
    "machine-returned",
    "wish-expired",
    "machines",
    "times",
    "drift",
    "on-demand",
    "profile-job",
];

/// An event.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct EventDocument {
    /// Its number. All events with lower numbers were committed before it.
    pub id: i64,
    /// When it was made.
    pub made_at: DateTime<Utc>,
    /// `target` (a new one), `decision` (of a round), `plan` and `analysis` (it is over), `agent` (another state), `hold`,
    /// `release`, `budget` (another alert about missed requests). Also `schedule` (a firing, and its end) and `workload`
    /// (one on Kubernetes was scaled, or may not be). Of machines: `machine-asked`, `machine-came`, `machine-lost`,
    /// `machine-returned`, `wish-expired` (it does not come) and `machines` (what hinders them). `times`: other times of a
    /// file are far from those that agents measured. `drift`: a figure of a profile begins to differ from the measured one,
    /// differs by another factor, or is as before. `on-demand`: requests want a variant loaded, or one that was loaded for
    /// them is unloaded.
    pub kind: String,
    /// Its pipeline; null if it concerns no single one.
    pub pipeline: Option<String>,
    /// Its facts, by kind.
    pub detail: Value,
}

/// The part of the events that is asked for.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct EventsQuery {
    /// Only events before this one, by `id`.
    pub before: Option<i64>,
    /// Only events of this kind.
    pub kind: Option<String>,
    /// Only events of this pipeline.
    pub pipeline: Option<String>,
}

/// The path of an event.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub struct EventPath {
    /// Its number.
    pub id: i64,
}

/// The events that a stream has.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct StreamQuery {
    /// Only events of this kind.
    pub kind: Option<String>,
    /// Only events of this pipeline.
    pub pipeline: Option<String>,
}

/// The header `Last-Event-ID`.
#[derive(Clone, Debug, IntoParams)]
#[into_params(parameter_in = Header)]
#[allow(dead_code)] // read by `last_event`
pub struct LastEventHeader {
    /// The number of the last event that the client has: the stream goes on after it. Default: it begins now.
    #[param(rename = "Last-Event-ID", required = false, value_type = String, example = "17")]
    pub last_event_id: Option<String>,
}

impl From<EventRow> for EventDocument {
    fn from(row: EventRow) -> Self {
        let EventRow { id, made_at, kind, pipeline, detail } = row;
        Self { id, made_at, kind, pipeline, detail }
    }
}

/// Room for streams.
pub struct StreamRooms(Arc<Semaphore>);

impl Default for StreamRooms {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(STREAMS_MAX)))
    }
}

/// The routes of this resource.
pub fn configure(config: &mut web::ServiceConfig) {
    config
        .service(web::resource("/v1/events").route(web::get().to(list)))
        .service(web::resource("/v1/events/stream").route(web::get().to(stream)))
        .service(web::resource("/v1/events/{id}").route(web::get().to(get)));
}

/// What has happened, the newest first.
#[utoipa::path(get, path = "/v1/events", tag = "fleet", operation_id = "list_events",
    params(EventsQuery, PageQuery),
    responses((status = 200, description = "The events.", body = [EventDocument])))]
pub async fn list(app: web::Data<App>, page: ListPage<i64, EventsQuery>) -> HandlerResult {
    let EventsQuery { before, kind, pipeline } = page.filter.clone();
    let filter = filter(kind, pipeline)?;
    let before = before.into_iter().chain(page.after).min();
    let rows = rows::before(&mut *app.pool.acquire().await?, before, &filter, page.rows_max()).await?;
    Ok(page.answer(rows, |row| row.id, EventDocument::from))
}

/// One event.
#[utoipa::path(get, path = "/v1/events/{id}", tag = "fleet", operation_id = "get_event", params(EventPath),
    responses((status = 200, description = "The event.", body = EventDocument), RefusalReply<404>))]
pub async fn get(app: web::Data<App>, path: web::Path<EventPath>) -> HandlerResult {
    let EventPath { id } = path.into_inner();
    let row = rows::get(&mut *app.pool.acquire().await?, id).await?;
    let row = row.ok_or_else(|| Refusal::not_found(format!("event {id}")))?;
    Ok(HttpResponse::Ok().json(EventDocument::from(row)))
}

/// What happens, as Server-Sent Events: `id` is the number, `event` the kind, and `data` the event as in the list.
#[utoipa::path(get, path = "/v1/events/stream", tag = "fleet", operation_id = "stream_events",
    params(StreamQuery, LastEventHeader),
    responses((status = 200, description = "Events without end.", body = String, content_type = "text/event-stream")))]
pub async fn stream(
    app: web::Data<App>,
    rooms: web::Data<StreamRooms>,
    client: Principal,
    query: web::Query<StreamQuery>,
    request: HttpRequest,
) -> HandlerResult {
    let StreamQuery { kind, pipeline } = query.into_inner();
    let filter = filter(kind, pipeline)?;
    let known = match last_event(&request)? {
        Some(known) => known,
        None => rows::newest(&mut *app.pool.acquire().await?).await?,
    };
    let full = || Refusal::new(StatusCode::SERVICE_UNAVAILABLE, format!("{STREAMS_MAX} clients follow the events already"));
    let room = rooms.0.clone().try_acquire_owned().map_err(|_| full())?;
    let newest = app.newest_event.subscribe();
    let follower = Follower {
        app: (**app).clone(),
        newest,
        filter,
        known,
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

fn filter(kind: Option<String>, pipeline: Option<String>) -> Result<EventFilter, Refusal> {
    match kind.as_deref().filter(|kind| !KINDS.contains(kind)) {
        Some(kind) => Err(Refusal::value("kind", format!("{kind:?}: expected one of {}", KINDS.join(", ")))),
        None => Ok(EventFilter { kind, pipeline }),
    }
}

/// The number in `Last-Event-ID`.
fn last_event(request: &HttpRequest) -> Result<Option<i64>, Refusal> {
    let Some(value) = request.headers().get("last-event-id") else { return Ok(None) };
    let number = value.to_str().ok().and_then(|text| text.trim().parse::<i64>().ok()).filter(|number| *number >= 0);
    let wrong =
        || Refusal::new(StatusCode::BAD_REQUEST, format!("Last-Event-ID: {value:?}: expected the number of an event"));
    number.map(Some).ok_or_else(wrong)
}

/// A client that follows the events.
struct Follower {
    app: App,
    newest: watch::Receiver<i64>,
    filter: EventFilter,
    /// The number of the last event that was read for it.
    known: i64,
    /// The token of the client; `None`: it has none of the table.
    token: Option<Uuid>,
    /// Parts of the stream that are not sent.
    waiting: VecDeque<Bytes>,
    _room: OwnedSemaphorePermit,
}

impl Follower {
    /// The next part of the stream; `None` once the service stops or the client's token counts no more, or if the database
    /// does not answer.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(part) = self.waiting.pop_front() {
                return Some(part);
            }
            if self.app.is_stopping() {
                return None;
            }
            if *self.newest.borrow_and_update() > self.known {
                self.check_token().await?;
                self.read().await.inspect_err(|error| tracing::warn!(%error, "a stream of events ends")).ok()?;
                continue;
            }
            tokio::select! {
                () = self.app.stopped() => return None,
                changed = self.newest.changed() => changed.ok()?,
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
        let valid = valid.await.inspect_err(|error| tracing::warn!(%error, "a stream of events ends")).ok()?;
        valid.then_some(())
    }

    async fn read(&mut self) -> crate::store::Result<()> {
        let newest = *self.newest.borrow();
        let rows = rows::after(&mut *self.app.pool.acquire().await?, self.known, &self.filter).await?;
        let is_whole = (rows.len() as i64) < rows::EVENTS_MAX;
        self.known = rows.last().map_or(self.known, |row| row.id);
        if is_whole {
            // The filter left out the others.
            self.known = self.known.max(newest);
        }
        self.waiting.extend(rows.into_iter().map(part));
        Ok(())
    }
}

/// One event on the wire.
fn part(row: EventRow) -> Bytes {
    let document = EventDocument::from(row);
    let data = serde_json::to_string(&document).expect("an event is JSON");
    Bytes::from(format!("id: {}\nevent: {}\ndata: {data}\n\n", document.id, document.kind))
}
