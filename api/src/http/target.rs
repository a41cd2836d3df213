//! `/v1/target`: the target of the whole fleet.

use super::body::{self, Document};
use super::refusal::{HandlerResult, Refusal, RefusalReply};
use crate::act::apply::{ApplyError, DuplicatePipelines, MissingDevices, Proposal, SpecSource, apply};
use crate::app::App;
use crate::decide::placement::Placement;
use crate::store::Condition;
use crate::store::target::{self as rows, TargetRow};
use actix_web::http::StatusCode;
use actix_web::http::header::{ETag, EntityTag};
use actix_web::{HttpResponse, web};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

/// Most plans of one target.
const PLANS_MAX: usize = 1_024;

/// The fleet's target.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct TargetDocument {
    /// Its incarnation: it changes when a database is restored.
    pub incarnation: i64,
    /// Its generation: the number of targets so far; 0 before the first.
    pub generation: i64,
    /// Its plans.
    pub plans: Vec<Uuid>,
    /// Groups, and the device of each replica.
    #[schema(value_type = Placement)]
    pub placement: Value,
    /// The reason for it.
    pub reason: String,
    /// When it was committed.
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
    /// Its plans.
    pub plans: Vec<Uuid>,
    /// Groups, and the device of each replica.
    #[schema(value_type = Placement)]
    pub placement: Value,
    /// The reason for it.
    pub reason: String,
    /// When it was committed.
    pub committed_at: DateTime<Utc>,
}

/// A request for a target.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TargetRequest {
    /// Plans that have succeeded, no two with the same pipeline; empty: the fleet serves nothing.
    pub plans: Vec<Uuid>,
}

/// The header `If-Match`, which a target needs.
#[derive(Clone, Debug, IntoParams)]
#[into_params(parameter_in = Header)]
#[allow(dead_code)] // read by `Condition`
pub struct GenerationMatch {
    /// The generation of the target that is replaced, as an entity tag: `"0"` before the first.
    #[param(rename = "If-Match", required = true, example = "\"0\"")]
    pub if_match: String,
}

/// The routes of this resource.
pub fn configure(config: &mut web::ServiceConfig) {
    config
        .service(web::resource("/v1/target").route(web::get().to(get)).route(web::put().to(put)))
        .service(web::resource("/v1/target/history").route(web::get().to(history)));
}

/// The target in force.
#[utoipa::path(get, path = "/v1/target", tag = "fleet", operation_id = "get_target",
    responses((status = 200, description = "The target.", body = TargetDocument,
        headers(("ETag" = String, description = "Its generation.")))))]
pub async fn get(app: web::Data<App>) -> HandlerResult {
    let row = rows::get(&mut *app.pool.acquire().await?).await?;
    Ok(answer(row))
}

fn answer(row: TargetRow) -> HttpResponse {
    let tag = ETag(EntityTag::new_strong(row.generation.to_string()));
    HttpResponse::Ok().insert_header(tag).json(TargetDocument::from(row))
}

/// Former targets and the one in force, the newest first.
#[utoipa::path(get, path = "/v1/target/history", tag = "fleet", operation_id = "list_targets",
    responses((status = 200, description = "The newest thousand.", body = [FormerTarget])))]
pub async fn history(app: web::Data<App>) -> HandlerResult {
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
#[utoipa::path(put, path = "/v1/target", tag = "fleet", operation_id = "put_target", params(GenerationMatch),
    request_body(content = TargetRequest, description = "The plans."),
    responses((status = 200, description = "The target in force now.", body = TargetDocument,
        headers(("ETag" = String, description = "Its generation."))), RefusalReply<412>, RefusalReply<428>))]
pub async fn put(app: web::Data<App>, condition: Condition, document: Document) -> HandlerResult {
    let asked: TargetRequest = body::value(document.tree)?;
    let generation = match condition {
        Condition::Any => {
            let detail =
                "the header If-Match with the generation that is replaced is required, for example If-Match: \"0\"";
            return Err(Refusal::new(StatusCode::PRECONDITION_REQUIRED, detail));
        }
        Condition::Versions(versions) if versions.len() == 1 => versions[0],
        _ => {
            let detail = "If-Match: expected one generation in quotes";
            return Err(Refusal::new(StatusCode::PRECONDITION_FAILED, detail));
        }
    };
    if asked.plans.len() > PLANS_MAX {
        return Err(Refusal::value("/plans", format!("{} plans: expected at most {PLANS_MAX}", asked.plans.len())));
    }
    let proposal = Proposal {
        plans: asked.plans,
        duplicates: DuplicatePipelines::Refused,
        replaces: Some(generation),
        missing_devices: MissingDevices::Refused,
        specs: SpecSource::Registered,
        reason: "asked for".into(),
    };
    let applied = apply(&app, &proposal).await?;
    let row = rows::get(&mut *app.pool.acquire().await?).await?;
    if !applied.changed && row.generation != applied.generation {
        // Nothing was written, and the target in force was replaced meanwhile.
        return Err(ApplyError::Stale(row.generation).into());
    }
    Ok(answer(row))
}
