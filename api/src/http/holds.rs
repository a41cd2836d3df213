//! `/v1/holds`: holds, under which rounds of replanning deploy nothing.
//!
//! Under a hold, rounds go on and say what they would deploy (decision `advised`). A person may deploy a plan all the same
//! (`PUT /v1/target`). The replicas of lost agents find other devices as ever.

use super::access::Principal;
use super::body::{self, Document, Name};
use super::paging::{ListPage, PageQuery};
use super::refusal::{HandlerResult, Refusal, RefusalReply};
use crate::app::{App, now};
use crate::store::holds::{self as rows, FLEET, HoldFilter, HoldRow};
use crate::store::pipelines;
use actix_web::{HttpResponse, web};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Longest hold with an end, in seconds: a year.
pub const HOLD_S_MAX: u32 = 365 * 86_400;
/// Longest reason of a hold.
pub const REASON_CHARS_MAX: usize = 500;

/// A hold in force.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct HoldDocument {
    /// Its pipeline; null: the whole fleet.
    pub pipeline: Option<String>,
    /// The reason for it.
    pub reason: String,
    /// When it ends; null: when it is released.
    pub until: Option<DateTime<Utc>>,
    /// Who made it.
    pub made_by: String,
    /// When it was made.
    pub made_at: DateTime<Utc>,
}

/// A request for a hold.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HoldRequest {
    /// The reason: 1 to 500 characters.
    #[schema(min_length = 1, max_length = 500)]
    pub reason: String,
    /// Seconds that it lasts, 1 to 31536000; default: until it is released.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 31_536_000)]
    pub for_s: Option<u32>,
}

/// The holds that a client asks for.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct HoldsQuery {
    /// Only the holds that this pipeline has: its own, and that of the fleet.
    pub pipeline: Option<String>,
    /// Only holds of this client.
    pub who: Option<String>,
}

impl From<HoldRow> for HoldDocument {
    fn from(row: HoldRow) -> Self {
        let HoldRow { pipeline, reason, until, made_by, made_at } = row;
        Self { pipeline: Some(pipeline).filter(|name| name != FLEET), reason, until, made_by, made_at }
    }
}

/// The routes of this resource.
pub fn configure(config: &mut web::ServiceConfig) {
    config
        .service(web::resource("/v1/holds").route(web::get().to(list)))
        .service(
            web::resource("/v1/hold")
                .route(web::get().to(get_fleet))
                .route(web::put().to(put_fleet))
                .route(web::delete().to(delete_fleet)),
        )
        .service(
            web::resource("/v1/pipelines/{name}/hold")
                .route(web::get().to(get_pipeline))
                .route(web::put().to(put_pipeline))
                .route(web::delete().to(delete_pipeline)),
        );
}

/// The holds in force.
#[utoipa::path(get, path = "/v1/holds", tag = "fleet", operation_id = "list_holds",
    params(HoldsQuery, PageQuery),
    responses((status = 200, description = "That of the fleet first, then by pipeline.", body = [HoldDocument])))]
pub async fn list(app: web::Data<App>, page: ListPage<String, HoldsQuery>) -> HandlerResult {
    let filter = HoldFilter { pipeline: page.filter.pipeline.as_deref(), who: page.filter.who.as_deref() };
    let (after, limit) = (page.after.as_deref(), page.rows_max());
    let rows = rows::page(&mut *app.pool.acquire().await?, filter, now(), after, limit).await?;
    Ok(page.answer(rows, |row| row.pipeline.clone(), HoldDocument::from))
}

/// The hold on the whole fleet.
#[utoipa::path(get, path = "/v1/hold", tag = "fleet", operation_id = "get_fleet_hold",
    responses((status = 200, description = "The hold.", body = HoldDocument), RefusalReply<404>))]
pub async fn get_fleet(app: web::Data<App>) -> HandlerResult {
    get(&app, FLEET, "hold on the fleet").await
}

/// The hold on one pipeline. One on the fleet counts for it too, and is not shown here.
#[utoipa::path(get, path = "/v1/pipelines/{name}/hold", tag = "fleet", operation_id = "get_pipeline_hold", params(Name),
    responses((status = 200, description = "The hold.", body = HoldDocument), RefusalReply<404>))]
pub async fn get_pipeline(app: web::Data<App>, name: Name) -> HandlerResult {
    get(&app, &name.name, &format!("hold on pipeline {}", name.name)).await
}

async fn get(app: &App, pipeline: &str, what: &str) -> HandlerResult {
    let row = rows::get(&mut *app.pool.acquire().await?, pipeline, now()).await?;
    Ok(HttpResponse::Ok().json(HoldDocument::from(row.ok_or_else(|| Refusal::not_found(what))?)))
}

/// Holds the whole fleet: rounds of replanning deploy nothing.
#[utoipa::path(put, path = "/v1/hold", tag = "fleet", operation_id = "put_fleet_hold",
    request_body(content = HoldRequest, description = "The hold."),
    responses((status = 200, description = "The hold.", body = HoldDocument)))]
pub async fn put_fleet(app: web::Data<App>, client: Principal, document: Document) -> HandlerResult {
    put(&app, FLEET, client, document).await
}

/// Holds one pipeline: rounds of replanning deploy nothing for it.
#[utoipa::path(put, path = "/v1/pipelines/{name}/hold", tag = "fleet", operation_id = "put_pipeline_hold", params(Name),
    request_body(content = HoldRequest, description = "The hold."),
    responses((status = 200, description = "The hold.", body = HoldDocument), RefusalReply<404>))]
pub async fn put_pipeline(app: web::Data<App>, name: Name, client: Principal, document: Document) -> HandlerResult {
    let known = pipelines::get(&mut *app.pool.acquire().await?, &name.name).await?;
    known.ok_or_else(|| Refusal::not_found(format!("pipeline {}", name.name)))?;
    put(&app, &name.name, client, document).await
}

async fn put(app: &App, pipeline: &str, client: Principal, document: Document) -> HandlerResult {
    let asked: HoldRequest = body::value(document.tree)?;
    let at = now();
    check_reason("/reason", &asked.reason)?;
    let until = asked.for_s.map(|seconds| end("/for_s", at, seconds, HOLD_S_MAX)).transpose()?;
    let row = HoldRow { pipeline: pipeline.to_owned(), reason: asked.reason, until, made_by: client.name, made_at: at };
    rows::put(&mut *app.pool.acquire().await?, &row).await?;
    Ok(HttpResponse::Ok().json(HoldDocument::from(row)))
}

/// The moment so many seconds after `at`.
///
/// # Errors
/// 422 if the number is 0 or above `seconds_max`.
pub fn end(pointer: &str, at: DateTime<Utc>, seconds: u32, seconds_max: u32) -> Result<DateTime<Utc>, Refusal> {
    if (1..=seconds_max).contains(&seconds) {
        return Ok(at + chrono::Duration::seconds(i64::from(seconds)));
    }
    Err(Refusal::value(pointer, format!("{seconds}: expected 1 to {seconds_max}")))
}

/// Refuses a reason that is empty or too long.
///
/// # Errors
/// 422 if it is refused.
pub fn check_reason(pointer: &str, reason: &str) -> Result<(), Refusal> {
    match reason.chars().count() {
        1..=REASON_CHARS_MAX => Ok(()),
        count => Err(Refusal::value(pointer, format!("{count} characters: expected 1 to {REASON_CHARS_MAX}"))),
    }
}

/// Releases the hold on the whole fleet. Holds on pipelines stay.
#[utoipa::path(delete, path = "/v1/hold", tag = "fleet", operation_id = "delete_fleet_hold",
    responses((status = 204, description = "It is released."), RefusalReply<404>))]
pub async fn delete_fleet(app: web::Data<App>) -> HandlerResult {
    release(&app, FLEET, "hold on the fleet").await
}

/// Releases the hold on one pipeline.
#[utoipa::path(delete, path = "/v1/pipelines/{name}/hold", tag = "fleet", operation_id = "delete_pipeline_hold",
    params(Name), responses((status = 204, description = "It is released."), RefusalReply<404>))]
pub async fn delete_pipeline(app: web::Data<App>, name: Name) -> HandlerResult {
    release(&app, &name.name, &format!("hold on pipeline {}", name.name)).await
}

async fn release(app: &App, pipeline: &str, what: &str) -> HandlerResult {
    match rows::release(&mut *app.pool.acquire().await?, pipeline, now()).await? {
        true => Ok(HttpResponse::NoContent().finish()),
        false => Err(Refusal::not_found(what)),
    }
}
