//! `/v1/audit`: who asked for which change, as a list and as a stream.

use super::access::Principal;
use super::follow::{
    ENTRIES_MAX, FollowedList, LastEventHeader, StreamPart, StreamRooms, StreamStart, last_number, stream_of,
};
use super::paging::{ListPage, PageQuery};
use super::refusal::HandlerResult;
use crate::app::App;
use crate::audit_entries::AuditEntry;
use crate::store::audit::{self as rows, AuditRow};
use crate::store::{self, PgConnection};
use actix_web::{HttpRequest, web};
use serde::Deserialize;
use utoipa::IntoParams;
use uuid::Uuid;

/// The name of an entry in the stream.
const ENTRY_KIND: &str = "audit";

/// The part of the audit that is asked for.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct AuditQuery {
    /// Only entries before this one, by `id`.
    pub before: Option<Uuid>,
    /// Only requests of clients with this name.
    pub who: Option<String>,
}

/// The entries that a stream has.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct AuditStreamQuery {
    /// Only requests of clients with this name.
    pub who: Option<String>,
}

/// The routes of this resource.
pub fn configure(config: &mut web::ServiceConfig) {
    config
        .service(web::resource("/v1/audit").route(web::get().to(list)))
        .service(web::resource("/v1/audit/stream").route(web::get().to(stream)));
}

/// Requests for changes, the newest first.
#[utoipa::path(get, path = "/v1/audit", tag = "access", operation_id = "list_audit",
    params(AuditQuery, PageQuery),
    responses((status = 200, description = "The entries.", body = [AuditEntry])))]
pub async fn list(app: web::Data<App>, page: ListPage<Uuid, AuditQuery>) -> HandlerResult {
    let before = page.filter.before.into_iter().chain(page.after).min();
    let who = page.filter.who.as_deref();
    let rows = rows::list(&mut *app.pool.acquire().await?, who, before, page.rows_max()).await?;
    Ok(page.answer(rows, |row| row.id, AuditEntry::from))
}

/// Requests for changes as they are answered, as Server-Sent Events: `id` is the number, `event` is `audit`, and `data` the
/// entry as in the list.
#[utoipa::path(get, path = "/v1/audit/stream", tag = "access", operation_id = "stream_audit",
    params(AuditStreamQuery, LastEventHeader),
    responses((status = 200, description = "Entries without end.", body = String, content_type = "text/event-stream")))]
pub async fn stream(
    app: web::Data<App>,
    rooms: web::Data<StreamRooms>,
    client: Principal,
    query: web::Query<AuditStreamQuery>,
    request: HttpRequest,
) -> HandlerResult {
    let known = match last_number::<AuditStreamQuery>(&request)? {
        Some(known) => known,
        None => rows::newest(&mut *app.pool.acquire().await?).await?,
    };
    let start = StreamStart { list: query.into_inner(), known, newest: app.newest_audit_entry.subscribe() };
    stream_of(&app, &rooms, &client, start)
}

impl FollowedList for AuditStreamQuery {
    const ENTRY: &'static str = "an entry of the audit";
    const ENTRIES: &'static str = "the audit";

    async fn after(&self, db: &mut PgConnection, known: i64) -> store::Result<Vec<StreamPart>> {
        let rows = rows::after(db, known, self.who.as_deref(), ENTRIES_MAX).await?;
        // The select has entries with numbers alone.
        let part = |row: AuditRow| StreamPart::new(row.number.unwrap_or_default(), ENTRY_KIND, &AuditEntry::from(row));
        Ok(rows.into_iter().map(part).collect())
    }
}
