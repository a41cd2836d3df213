//! `/v1/traces`: uploaded loads.

use super::access::Principal;
use super::body::{self, Body, off_loop};
use super::idempotency::{IdempotencyHeader, IdempotencyKey};
use super::paging::{ListPage, PageQuery};
use super::project_storage::{StorageClaim, check_room, claim};
use super::refusal::{HandlerResult, Refusal, RefusalReply};
use crate::app::{App, now};
use crate::decide::project_storage::StorageKind;
use crate::store::idempotency::KeyedRequest;
use crate::store::traces::{self as rows, TraceRow};
use actix_web::http::{StatusCode, header};
use actix_web::{HttpRequest, HttpResponse, web};
use apportion_domain::ArrivalTrace;
use apportion_wire::TraceKind;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

/// Most plans and analyses that a refusal names.
const USES_SHOWN_MAX: i64 = 10;

/// An uploaded trace.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct TraceDocument {
    /// Its identifier.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// The kind of its rows.
    pub kind: TraceKind,
    /// The number of its rows.
    pub rows: i64,
    /// When it was uploaded.
    pub created_at: DateTime<Utc>,
    /// The project that it is for; null: that of no bound token.
    pub project: Option<String>,
}

/// The path of a trace.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub struct TracePath {
    /// Its identifier.
    pub id: Uuid,
}

impl From<TraceRow> for TraceDocument {
    fn from(row: TraceRow) -> Self {
        Self {
            id: row.id,
            name: row.name,
            kind: row.kind,
            rows: row.rows,
            created_at: row.created_at,
            project: row.project,
        }
    }
}

/// The name of a new trace.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct TraceQuery {
    /// Its name, 1 to 128 characters without control characters; default `trace`.
    #[param(min_length = 1, max_length = 128, pattern = r"^[^\x00-\x1F\x7F-\x9F]+$")]
    pub name: Option<String>,
}

/// The traces that are asked for.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct TraceListQuery {
    /// Only traces with this name.
    pub name: Option<String>,
    /// Only traces of this project.
    pub project: Option<String>,
}

/// The routes of this resource.
pub fn configure(config: &mut web::ServiceConfig) {
    config
        .service(web::resource("/v1/traces").route(web::get().to(list)).route(web::post().to(post)))
        .service(web::resource("/v1/traces/{id}").route(web::get().to(get)).route(web::delete().to(delete)));
}

/// All traces, the newest first.
#[utoipa::path(get, path = "/v1/traces", tag = "traces", operation_id = "list_traces",
    params(TraceListQuery, PageQuery),
    responses((status = 200, description = "The traces, without their rows.", body = [TraceDocument]), RefusalReply<404>))]
pub async fn list(app: web::Data<App>, client: Principal, page: ListPage<Uuid, TraceListQuery>) -> HandlerResult {
    let project = client.listed_project(page.filter.project.clone())?;
    let filter = rows::TraceFilter { name: page.filter.name.as_deref(), project: project.as_deref() };
    let rows = rows::list(&mut *app.pool.acquire().await?, filter, page.after, page.rows_max()).await?;
    Ok(page.answer(rows, |row| row.id, TraceDocument::from))
}

/// Uploads a trace: CSV `arrival_ms` or `second,qps`.
#[utoipa::path(post, path = "/v1/traces", tag = "traces", operation_id = "post_trace",
    params(TraceQuery, IdempotencyHeader),
    request_body(content = String, content_type = "text/csv", description = "The rows."),
    responses((status = 201, description = "It is stored.", body = TraceDocument,
        headers(("Location" = String, description = "Where it is."))), RefusalReply<409>))]
pub async fn post(
    app: web::Data<App>,
    request: HttpRequest,
    client: Principal,
    query: web::Query<TraceQuery>,
    body: Body<{ body::TRACE_BYTES_MAX }>,
) -> HandlerResult {
    let name = query.into_inner().name.unwrap_or_else(|| "trace".into());
    body::name(&name)?;
    let read = move || {
        let trace = apportion_wire::read_trace(&name, body::text(&body.bytes)?.as_bytes(), None)?;
        let digest = Sha256::digest(&body.bytes).to_vec();
        Ok::<_, Refusal>((name, trace, body, digest))
    };
    let (name, trace, body, digest) = off_loop(read).await??;
    // A name has no line feed.
    let key = IdempotencyKey::read(&request, KeyedRequest::Trace, &format!("{name}\n"), &digest)?;
    let (kind, count) = match trace {
        ArrivalTrace::Arrivals(moments) => (TraceKind::Arrivals, moments.len()),
        ArrivalTrace::Rates(rows) => (TraceKind::Rates, rows.len()),
    };
    let mut tx = app.pool.begin().await?;
    if let Some(key) = &key
        && let Some(id) = key.already_asked(&mut tx).await?
        && let Some(known) = rows::get(&mut tx, id).await?
    {
        return Ok(stored(known));
    }
    client.keep_project(&mut tx).await?;
    let asked = StorageClaim { kind: StorageKind::TraceRows, asked: count as u64 };
    check_room(&mut tx, &client, asked).await?;
    let project = client.project.clone();
    let row = TraceRow { id: Uuid::now_v7(), name, kind, rows: count as i64, created_at: now(), project };
    rows::insert(&mut tx, &row, body::text(&body.bytes)?).await?;
    claim(&mut tx, &client, asked).await?;
    if let Some(key) = key {
        key.remember(&mut tx, row.id, row.created_at).await?;
    }
    tx.commit().await?;
    Ok(stored(row))
}

/// The answer to a client that has uploaded a trace.
fn stored(row: TraceRow) -> HttpResponse {
    let location = (header::LOCATION, format!("/v1/traces/{}", row.id));
    HttpResponse::Created().insert_header(location).json(TraceDocument::from(row))
}

/// One trace, without its rows.
#[utoipa::path(get, path = "/v1/traces/{id}", tag = "traces", operation_id = "get_trace", params(TracePath),
    responses((status = 200, description = "The trace.", body = TraceDocument), RefusalReply<404>))]
pub async fn get(app: web::Data<App>, path: web::Path<TracePath>) -> HandlerResult {
    let TracePath { id } = path.into_inner();
    let row = rows::get(&mut *app.pool.acquire().await?, id).await?;
    let row = row.ok_or_else(|| Refusal::not_found(format!("trace {id}")))?;
    Ok(HttpResponse::Ok().json(TraceDocument::from(row)))
}

/// Deletes a trace. It stays while a plan or an analysis that is not over needs it. A plan that was made with it stays.
#[utoipa::path(delete, path = "/v1/traces/{id}", tag = "traces", operation_id = "delete_trace", params(TracePath),
    responses((status = 204, description = "It is gone."), RefusalReply<404>, RefusalReply<409>))]
pub async fn delete(app: web::Data<App>, path: web::Path<TracePath>) -> HandlerResult {
    let TracePath { id } = path.into_inner();
    let mut tx = app.pool.begin().await?;
    if !rows::lock(&mut tx, id).await? {
        return Err(Refusal::not_found(format!("trace {id}")));
    }
    let uses = rows::uses(&mut tx, id, USES_SHOWN_MAX).await?;
    if !uses.is_empty() {
        let named: Vec<String> = uses.iter().map(|used| format!("{} {}", used.kind, used.id)).collect();
        let detail = format!("trace {id} is needed by {}: wait for the end, or cancel first", named.join(", "));
        return Err(Refusal::new(StatusCode::CONFLICT, detail));
    }
    rows::delete(&mut tx, id).await?;
    tx.commit().await?;
    Ok(HttpResponse::NoContent().finish())
}
