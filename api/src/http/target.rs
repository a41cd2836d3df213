//! `/v1/target`: what the whole fleet is to do.

use super::body;
use super::refusal::{Answer, Refusal};
use crate::app::App;
use crate::control::apply::{Proposal, Specs, apply};
use crate::store::target::{self as rows, TargetRow};
use actix_web::http::StatusCode;
use actix_web::http::header::{ETag, EntityTag, IfMatch};
use actix_web::{HttpResponse, web};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

/// Most plans of one target.
const PLANS_MAX: usize = 1_024;

/// The fleet's target.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct TargetDocument {
    /// Changes when a database is restored.
    pub incarnation: i64,
    /// Counts targets; 0 before the first.
    pub generation: i64,
    /// The plans that it is made of.
    pub plans: Vec<Uuid>,
    /// Groups, and which replica of them stands on which device: `{next_id, groups, replicas}`.
    pub placement: Value,
    /// Why it was made.
    pub reason: String,
    /// When it was made.
    pub committed_at: Option<DateTime<Utc>>,
}

impl From<TargetRow> for TargetDocument {
    fn from(row: TargetRow) -> Self {
        Self {
            incarnation: row.incarnation,
            generation: row.generation,
            plans: row.plans,
            placement: row.placement,
            reason: row.reason,
            committed_at: row.committed_at,
        }
    }
}

/// A former target.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct FormerTarget {
    /// Its generation.
    pub generation: i64,
    /// The plans that it was made of.
    pub plans: Vec<Uuid>,
    /// Who stood where.
    pub placement: Value,
    /// Why it was made.
    pub reason: String,
    /// When it was made.
    pub committed_at: DateTime<Utc>,
}

/// What the target is to be made of.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TargetRequest {
    /// Plans that have succeeded, no two with the same pipeline; empty: the fleet is to do nothing.
    pub plans: Vec<Uuid>,
}

/// Routes of this resource.
pub fn configure(config: &mut web::ServiceConfig) {
    config
        .service(web::resource("/v1/target").route(web::get().to(get)).route(web::put().to(put)))
        .service(web::resource("/v1/target/history").route(web::get().to(history)));
}

/// The target in force.
#[utoipa::path(get, path = "/v1/target", tag = "fleet",
    responses((status = 200, body = TargetDocument, headers(("ETag" = String, description = "its generation")))))]
pub async fn get(app: web::Data<App>) -> Answer {
    let row = rows::get(&mut *app.pool.acquire().await?).await?;
    Ok(answer(row))
}

fn answer(row: TargetRow) -> HttpResponse {
    let tag = ETag(EntityTag::new_strong(row.generation.to_string()));
    HttpResponse::Ok().insert_header(tag).json(TargetDocument::from(row))
}

/// Former targets and the one in force, the newest first.
#[utoipa::path(get, path = "/v1/target/history", tag = "fleet", responses((status = 200, body = [FormerTarget])))]
pub async fn history(app: web::Data<App>) -> Answer {
    let rows = rows::history(&mut *app.pool.acquire().await?).await?;
    let former = |r: rows::HistoryRow| FormerTarget {
        generation: r.generation,
        plans: r.plans,
        placement: r.placement,
        reason: r.reason,
        committed_at: r.committed_at,
    };
    Ok(HttpResponse::Ok().json(rows.into_iter().map(former).collect::<Vec<_>>()))
}

/// Replaces the target by compare-and-set: `If-Match` names the generation that is replaced.
#[utoipa::path(put, path = "/v1/target", tag = "fleet", request_body = TargetRequest,
    params(("If-Match" = String, Header, description = "generation of the target that is replaced, in quotes")),
    responses((status = 200, body = TargetDocument), (status = 400, body = Refusal), (status = 412, body = Refusal),
        (status = 422, body = Refusal), (status = 428, body = Refusal)))]
pub async fn put(app: web::Data<App>, expected: Option<web::Header<IfMatch>>, bytes: web::Bytes) -> Answer {
    let generation = match expected {
        // Without the header the framework gives an empty list.
        Some(web::Header(IfMatch::Items(tags))) if tags.len() == 1 => tags[0].tag().parse::<i64>().ok(),
        Some(web::Header(IfMatch::Items(tags))) if !tags.is_empty() => None,
        _ => {
            let detail =
                "the header If-Match with the generation that is replaced is required, for example If-Match: \"0\"";
            return Err(Refusal::new(StatusCode::PRECONDITION_REQUIRED, detail));
        }
    };
    let generation = generation
        .ok_or_else(|| Refusal::new(StatusCode::PRECONDITION_FAILED, "If-Match: expected one generation in quotes"))?;
    let asked: TargetRequest = body::value(body::tree(&bytes)?)?;
    if asked.plans.len() > PLANS_MAX {
        return Err(Refusal::value("/plans", format!("{} plans: expected at most {PLANS_MAX}", asked.plans.len())));
    }
    let proposal = Proposal {
        plans: asked.plans,
        last_wins: false,
        replaces: Some(generation),
        partial: false,
        specs: Specs::Registered,
        reason: "asked for".into(),
    };
    apply(&app, &proposal).await?;
    get(app).await
}
