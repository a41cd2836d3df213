//! `/v1/events`: what has happened, as a list and as a stream.

use super::access::Principal;
use super::follow::{
    ENTRIES_MAX, FollowedList, LastEventHeader, StreamPart, StreamRooms, StreamStart, last_number, stream_of,
};
use super::paging::{ListPage, PageQuery};
use super::refusal::{HandlerResult, Refusal, RefusalReply};
use crate::app::App;
use crate::store::events::{self as rows, EventFilter, EventRow};
use crate::store::{self, PgConnection};
use actix_web::{HttpRequest, HttpResponse, web};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

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

impl From<EventRow> for EventDocument {
    fn from(row: EventRow) -> Self {
        let EventRow { id, made_at, kind, pipeline, detail } = row;
        Self { id, made_at, kind, pipeline, detail }
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
    let known = match last_number::<EventFilter>(&request)? {
        Some(known) => known,
        None => rows::newest(&mut *app.pool.acquire().await?).await?,
    };
    stream_of(&app, &rooms, &client, StreamStart { list: filter, known, newest: app.newest_event.subscribe() })
}

impl FollowedList for EventFilter {
    const ENTRY: &'static str = "an event";
    const ENTRIES: &'static str = "events";

    async fn after(&self, db: &mut PgConnection, known: i64) -> store::Result<Vec<StreamPart>> {
        let rows = rows::after(db, known, self, ENTRIES_MAX).await?;
        let part = |event: EventDocument| StreamPart::new(event.id, &event.kind, &event);
        Ok(rows.into_iter().map(EventDocument::from).map(part).collect())
    }
}

fn filter(kind: Option<String>, pipeline: Option<String>) -> Result<EventFilter, Refusal> {
    match kind.as_deref().filter(|kind| !KINDS.contains(kind)) {
        Some(kind) => Err(Refusal::value("kind", format!("{kind:?}: expected one of {}", KINDS.join(", ")))),
        None => Ok(EventFilter { kind, pipeline }),
    }
}
