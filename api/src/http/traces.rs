//! `/v1/traces`: uploaded loads.

use super::body;
use super::refusal::{Answer, Refusal};
use crate::app::{App, now};
use crate::store::traces::{self as rows, TraceRow};
use actix_web::http::header;
use actix_web::{HttpResponse, web};
use apportion_domain::Trace;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

/// An uploaded trace.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct TraceDocument {
    /// Its identifier.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// `arrivals` or `rates`.
    pub kind: String,
    /// How many rows.
    pub rows: i64,
    /// When it was uploaded.
    pub created_at: DateTime<Utc>,
}

impl From<TraceRow> for TraceDocument {
    fn from(row: TraceRow) -> Self {
        Self { id: row.id, name: row.name, kind: row.kind, rows: row.rows, created_at: row.created_at }
    }
}

/// How a trace is to be called.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub struct TraceQuery {
    /// Its name; default `trace`.
    pub name: Option<String>,
}

/// Routes of this resource.
pub fn configure(config: &mut web::ServiceConfig) {
    config
        .service(
            web::resource("/v1/traces")
                .app_data(web::PayloadConfig::new(body::TRACE_BYTES_MAX))
                .route(web::get().to(list))
                .route(web::post().to(post)),
        )
        .service(web::resource("/v1/traces/{id}").route(web::get().to(get)));
}

/// All traces, the newest first.
#[utoipa::path(get, path = "/v1/traces", tag = "traces", responses((status = 200, body = [TraceDocument])))]
pub async fn list(app: web::Data<App>) -> Answer {
    let rows = rows::list(&mut *app.pool.acquire().await?).await?;
    Ok(HttpResponse::Ok().json(rows.into_iter().map(TraceDocument::from).collect::<Vec<_>>()))
}

/// Uploads a trace: CSV `arrival_ms` or `second,qps`.
#[utoipa::path(post, path = "/v1/traces", tag = "traces", params(TraceQuery),
    request_body(content = String, content_type = "text/csv"),
    responses((status = 201, body = TraceDocument, headers(("Location" = String))), (status = 413, body = Refusal),
        (status = 422, body = Refusal)))]
pub async fn post(app: web::Data<App>, query: web::Query<TraceQuery>, bytes: web::Bytes) -> Answer {
    let name = query.into_inner().name.unwrap_or_else(|| "trace".into());
    body::name(&name)?;
    let csv = body::text(&bytes)?;
    let (kind, count) = match apportion_wire::read_trace(&name, csv.as_bytes(), None)? {
        Trace::Arrivals(moments) => ("arrivals", moments.len()),
        Trace::Rates(rows) => ("rates", rows.len()),
    };
    let row = TraceRow { id: Uuid::now_v7(), name, kind: kind.into(), rows: count as i64, created_at: now() };
    rows::insert(&mut *app.pool.acquire().await?, &row, csv).await?;
    let location = (header::LOCATION, format!("/v1/traces/{}", row.id));
    Ok(HttpResponse::Created().insert_header(location).json(TraceDocument::from(row)))
}

/// One trace, without its rows.
#[utoipa::path(get, path = "/v1/traces/{id}", tag = "traces", params(("id" = Uuid, Path)),
    responses((status = 200, body = TraceDocument), (status = 404, body = Refusal)))]
pub async fn get(app: web::Data<App>, id: web::Path<Uuid>) -> Answer {
    let row = rows::get(&mut *app.pool.acquire().await?, *id).await?;
    let row = row.ok_or_else(|| Refusal::not_found(format!("trace {id}")))?;
    Ok(HttpResponse::Ok().json(TraceDocument::from(row)))
}
