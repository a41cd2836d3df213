//! `/v1/pipelines`: registered pipelines and their live arrivals.

use super::body;
use super::refusal::{Answer, Refusal};
use crate::app::{App, now};
use crate::store::{arrivals, pipelines as rows};
use actix_web::http::header::{self, ETag, EntityTag};
use actix_web::{HttpResponse, web};
use apportion_wire::PipelineSpec;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// A pipeline in a list.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct PipelineSummary {
    /// Its name.
    pub name: String,
    /// Counts its replacements.
    pub version: i64,
    /// Whether profiles of it are registered.
    pub profiled: bool,
    /// How it is replanned: `off`, `advisory` or `apply`.
    pub replan: String,
}

/// Offered load and answers of one second.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ArrivalsSecond {
    /// Unix time.
    pub second: i64,
    /// Queries that arrived, shed ones included.
    pub offered: i64,
    /// Requests answered in time.
    pub ok: i64,
    /// Requests answered late.
    pub late: i64,
    /// Requests dropped.
    pub dropped: i64,
    /// Requests that failed.
    pub failed: i64,
}

/// Which seconds are asked for.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub struct ArrivalsQuery {
    /// How many seconds back, 1 to 86400; default 60.
    pub seconds: Option<i64>,
}

/// Longest stretch of arrivals in one answer.
const ARRIVALS_SECONDS_MAX: i64 = 86_400;

/// Routes of this resource.
pub fn configure(config: &mut web::ServiceConfig) {
    config
        .service(web::resource("/v1/pipelines").route(web::get().to(list)))
        .service(
            web::resource("/v1/pipelines/{name}")
                .route(web::get().to(get))
                .route(web::put().to(put))
                .route(web::delete().to(delete)),
        )
        .service(web::resource("/v1/pipelines/{name}/arrivals").route(web::get().to(live_arrivals)));
}

/// All pipelines.
#[utoipa::path(get, path = "/v1/pipelines", tag = "pipelines", responses((status = 200, body = [PipelineSummary])))]
pub async fn list(app: web::Data<App>) -> Answer {
    let rows = rows::list(&mut *app.pool.acquire().await?).await?;
    let summary = |row: rows::PipelineRow| PipelineSummary {
        profiled: row.profile.is_some(),
        replan: row.spec["replan"]["mode"].as_str().unwrap_or("off").to_string(),
        version: row.version,
        name: row.name,
    };
    Ok(HttpResponse::Ok().json(rows.into_iter().map(summary).collect::<Vec<_>>()))
}

/// One pipeline as it was registered.
#[utoipa::path(get, path = "/v1/pipelines/{name}", tag = "pipelines", params(("name" = String, Path)),
    responses((status = 200, body = PipelineSpec, headers(("ETag" = String))), (status = 404, body = Refusal)))]
pub async fn get(app: web::Data<App>, name: web::Path<String>) -> Answer {
    let row = rows::get(&mut *app.pool.acquire().await?, &name).await?;
    let row = row.ok_or_else(|| Refusal::not_found(format!("pipeline {name}")))?;
    Ok(HttpResponse::Ok().insert_header(tag(row.version)).json(row.spec))
}

fn tag(version: i64) -> ETag {
    ETag(EntityTag::new_strong(version.to_string()))
}

/// Registers a pipeline or replaces it. With `If-Match` only if it is still of that version.
#[utoipa::path(put, path = "/v1/pipelines/{name}", tag = "pipelines", params(("name" = String, Path)),
    request_body = PipelineSpec,
    responses((status = 200, body = PipelineSpec), (status = 201, body = PipelineSpec), (status = 400, body = Refusal),
        (status = 412, body = Refusal), (status = 422, body = Refusal)))]
pub async fn put(
    app: web::Data<App>,
    name: web::Path<String>,
    bytes: web::Bytes,
    expected: Option<web::Header<header::IfMatch>>,
) -> Answer {
    body::name(&name)?;
    let mut tree = body::tree(&bytes)?;
    if let Some(object) = tree.as_object_mut() {
        object.entry("name").or_insert_with(|| name.as_str().into());
    }
    let spec = apportion_wire::pipeline_spec_from_tree("pipeline", tree)?;
    if spec.name != *name {
        return Err(Refusal::value("/name", format!("{}: expected {name}, as in the path", spec.name)));
    }
    let document = serde_json::to_value(&spec).expect("a spec is JSON");
    let mut tx = app.pool.begin().await?;
    // Without the header the framework gives an empty list.
    if let Some(web::Header(header::IfMatch::Items(tags))) = expected
        && !tags.is_empty()
    {
        let have = rows::get(&mut tx, &name).await?.map(|row| EntityTag::new_strong(row.version.to_string()));
        if !have.is_some_and(|have| tags.iter().any(|tag| tag.strong_eq(&have))) {
            let status = actix_web::http::StatusCode::PRECONDITION_FAILED;
            return Err(Refusal::new(status, format!("pipeline {name} is of another version by now")));
        }
    }
    let version = rows::put(&mut tx, &name, &document, now()).await?;
    tx.commit().await?;
    let mut response = if version == 1 { HttpResponse::Created() } else { HttpResponse::Ok() };
    Ok(response.insert_header(tag(version)).json(document))
}

/// Forgets a pipeline and its profiles. What runs of it runs on until the target changes.
#[utoipa::path(delete, path = "/v1/pipelines/{name}", tag = "pipelines", params(("name" = String, Path)),
    responses((status = 204), (status = 404, body = Refusal)))]
pub async fn delete(app: web::Data<App>, name: web::Path<String>) -> Answer {
    match rows::delete(&mut *app.pool.acquire().await?, &name).await? {
        true => Ok(HttpResponse::NoContent().finish()),
        false => Err(Refusal::not_found(format!("pipeline {name}"))),
    }
}

/// Offered queries and answers per second, as agents reported them; seconds without any are left out.
#[utoipa::path(get, path = "/v1/pipelines/{name}/arrivals", tag = "pipelines", params(("name" = String, Path), ArrivalsQuery),
    responses((status = 200, body = [ArrivalsSecond]), (status = 404, body = Refusal)))]
pub async fn live_arrivals(app: web::Data<App>, name: web::Path<String>, query: web::Query<ArrivalsQuery>) -> Answer {
    let mut db = app.pool.acquire().await?;
    rows::get(&mut db, &name).await?.ok_or_else(|| Refusal::not_found(format!("pipeline {name}")))?;
    let seconds = query.seconds.unwrap_or(60).clamp(1, ARRIVALS_SECONDS_MAX);
    let to = now().timestamp() + 1;
    let rows = arrivals::between(&mut db, Some(&name), to - seconds, to).await?;
    let second = |r: arrivals::ArrivalsRow| ArrivalsSecond {
        second: r.second,
        offered: r.offered,
        ok: r.ok,
        late: r.late,
        dropped: r.dropped,
        failed: r.failed,
    };
    Ok(HttpResponse::Ok().json(rows.into_iter().map(second).collect::<Vec<_>>()))
}
