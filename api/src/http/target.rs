//! `/v1/target`: the target of the whole fleet.

use super::access::Principal;
use super::body::{self, Document};
use super::holds::{HOLD_S_MAX, end};
use super::paging::{ListPage, PageQuery};
use super::refusal::{HandlerResult, Refusal, RefusalReply};
use crate::act::apply::{ApplyError, DuplicatePipelines, MissingDevices, Proposal, SpecSource, apply};
use crate::act::preview::{self, TargetChange};
use crate::app::{App, now};
use crate::decide::on_demand::OnDemandChange;
use crate::decide::placement::Placement;
use crate::store::Condition;
use crate::store::holds::{FLEET, HoldRow};
use crate::store::target::{self as rows, HistoryRow, TargetRow};
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
/// Seconds of the hold that a rollback sets, if the request does not say it: an hour.
const HOLD_S: u32 = 3_600;

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

impl From<HistoryRow> for FormerTarget {
    fn from(row: HistoryRow) -> Self {
        let HistoryRow { generation, plans, placement, reason, committed_at } = row;
        Self { generation, plans, placement, reason, committed_at }
    }
}

/// A request for a target.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TargetRequest {
    /// Plans that have succeeded, no two with the same pipeline; empty: the fleet serves nothing.
    pub plans: Vec<Uuid>,
}

/// A request to go back to an earlier target.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RollbackRequest {
    /// The generation whose plans come back; default: the newest one with other plans than now.
    #[serde(default)]
    pub generation: Option<i64>,
    /// Seconds during which rounds of replanning deploy nothing, so that they do not undo it; default 3600, 0: none.
    #[serde(default)]
    #[schema(maximum = 31_536_000)]
    pub hold_s: Option<u32>,
}

/// Whether a request only asks.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct DryRunQuery {
    /// `true`: nothing is deployed. The answer says what would be loaded, kept and unloaded.
    pub dry_run: Option<bool>,
}

/// The former targets that a client asks for.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct TargetsQuery {
    /// Only targets that had this plan.
    pub plan: Option<Uuid>,
}

/// The two targets of a comparison.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct DiffQuery {
    /// The generation of the earlier target.
    pub from: i64,
    /// The generation of the later target; default: the one in force.
    pub to: Option<i64>,
}

/// The path of a former target.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub struct GenerationPath {
    /// Its generation.
    pub generation: i64,
}

/// The target in force, or with `dry_run` the change that would come.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(untagged)]
#[allow(dead_code, clippy::large_enum_variant)] // only for the description
pub enum TargetAnswer {
    /// The target in force now.
    InForce(TargetDocument),
    /// The change that would come.
    DryRun(TargetChange),
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
        .service(web::resource("/v1/target/history").route(web::get().to(history)))
        .service(web::resource("/v1/target/history/{generation}").route(web::get().to(former)))
        .service(web::resource("/v1/target/diff").route(web::get().to(diff)))
        .service(web::resource("/v1/target/rollback").route(web::post().to(rollback)));
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
    params(TargetsQuery, PageQuery),
    responses((status = 200, description = "The targets.", body = [FormerTarget])))]
pub async fn history(app: web::Data<App>, page: ListPage<i64, TargetsQuery>) -> HandlerResult {
    let rows = rows::history(&mut *app.pool.acquire().await?, page.filter.plan, page.after, page.rows_max()).await?;
    Ok(page.answer(rows, |row| row.generation, FormerTarget::from))
}

/// One former target, or the one in force.
#[utoipa::path(get, path = "/v1/target/history/{generation}", tag = "fleet", operation_id = "get_former_target",
    params(GenerationPath), responses((status = 200, description = "The target.", body = FormerTarget), RefusalReply<404>))]
pub async fn former(app: web::Data<App>, path: web::Path<GenerationPath>) -> HandlerResult {
    Ok(HttpResponse::Ok().json(FormerTarget::from(former_row(&app, path.generation).await?)))
}

async fn former_row(app: &App, generation: i64) -> Result<HistoryRow, Refusal> {
    let row = rows::former(&mut *app.pool.acquire().await?, generation).await?;
    row.ok_or_else(|| Refusal::not_found(format!("target {generation}")))
}

/// What one target changed against an earlier one. Capacities are those of the pipelines as they are registered now.
#[utoipa::path(get, path = "/v1/target/diff", tag = "fleet", operation_id = "diff_targets", params(DiffQuery),
    responses((status = 200, description = "The change.", body = TargetChange), RefusalReply<404>))]
pub async fn diff(app: web::Data<App>, query: web::Query<DiffQuery>) -> HandlerResult {
    let to = match query.to {
        Some(to) => to,
        None => rows::get(&mut *app.pool.acquire().await?).await?.generation,
    };
    let (from, to) = (former_row(&app, query.from).await?, former_row(&app, to).await?);
    Ok(HttpResponse::Ok().json(preview::compare(&app, &from, &to).await?))
}

/// Replaces the target by compare-and-set: `If-Match` names the generation that is replaced. A target that exceeds the
/// quota of a project is refused, in a dry run too.
#[utoipa::path(put, path = "/v1/target", tag = "fleet", operation_id = "put_target",
    params(GenerationMatch, DryRunQuery),
    request_body(content = TargetRequest, description = "The plans."),
    responses((status = 200, description = "The target in force now; with `dry_run` the change that would come.",
        body = TargetAnswer, headers(("ETag" = String, description = "Its generation."))),
        RefusalReply<409>, RefusalReply<412>, RefusalReply<428>))]
pub async fn put(
    app: web::Data<App>,
    condition: Condition,
    query: web::Query<DryRunQuery>,
    client: Principal,
    document: Document,
) -> HandlerResult {
    let asked: TargetRequest = body::value(document.tree)?;
    let generation = one_generation(&condition)?;
    if asked.plans.len() > PLANS_MAX {
        return Err(Refusal::value("/plans", format!("{} plans: expected at most {PLANS_MAX}", asked.plans.len())));
    }
    let proposal = proposal(asked.plans, generation, format!("asked for by {}", client.name));
    carry_out(&app, &proposal, &query).await
}

/// Goes back to the plans of an earlier target, with the pipelines as they are registered now. `If-Match` names the
/// generation that is replaced.
#[utoipa::path(post, path = "/v1/target/rollback", tag = "fleet", operation_id = "roll_back_target",
    params(GenerationMatch, DryRunQuery),
    request_body(content = RollbackRequest, description = "The earlier target."),
    responses((status = 200, description = "The target in force now; with `dry_run` the change that would come.",
        body = TargetAnswer, headers(("ETag" = String, description = "Its generation."))),
        RefusalReply<404>, RefusalReply<409>, RefusalReply<412>, RefusalReply<428>))]
pub async fn rollback(
    app: web::Data<App>,
    condition: Condition,
    query: web::Query<DryRunQuery>,
    client: Principal,
    document: Document,
) -> HandlerResult {
    let RollbackRequest { generation: wanted, hold_s } = body::value(document.tree)?;
    let replaced = one_generation(&condition)?;
    let hold_s = hold_s.unwrap_or(HOLD_S);
    let earlier = match wanted {
        Some(generation) => former_row(&app, generation).await?,
        None => {
            let row = rows::last_other(&mut *app.pool.acquire().await?).await?;
            row.ok_or_else(|| Refusal::not_found("earlier target with other plans"))?
        }
    };
    let reason = format!("{} went back to the plans of target {}", client.name, earlier.generation);
    let at = now();
    let until = if hold_s > 0 { Some(end("/hold_s", at, hold_s, HOLD_S_MAX)?) } else { None };
    let hold = until.map(|until| HoldRow {
        pipeline: FLEET.into(),
        reason: reason.clone(),
        until: Some(until),
        made_by: client.name,
        made_at: at,
    });
    let proposal = Proposal { hold, ..proposal(earlier.plans, replaced, reason) };
    carry_out(&app, &proposal, &query).await
}

/// The generation of `If-Match`.
fn one_generation(condition: &Condition) -> Result<i64, Refusal> {
    match condition {
        Condition::Any => {
            let detail =
                "the header If-Match with the generation that is replaced is required, for example If-Match: \"0\"";
            Err(Refusal::new(StatusCode::PRECONDITION_REQUIRED, detail))
        }
        Condition::Versions(versions) if versions.len() == 1 => Ok(versions[0]),
        _ => {
            let detail = "If-Match: expected one generation in quotes";
            Err(Refusal::new(StatusCode::PRECONDITION_FAILED, detail))
        }
    }
}

fn proposal(plans: Vec<Uuid>, replaced: i64, reason: String) -> Proposal {
    Proposal {
        plans,
        duplicates: DuplicatePipelines::Refused,
        replaces: Some(replaced),
        missing_devices: MissingDevices::Refused,
        specs: SpecSource::Registered,
        on_demand: OnDemandChange::None,
        reason,
        hold: None,
        heeds_holds_of: Vec::new(),
        lease: None,
    }
}

/// Deploys a proposal, or says what it would change.
async fn carry_out(app: &App, proposal: &Proposal, query: &DryRunQuery) -> HandlerResult {
    if query.dry_run == Some(true) {
        return Ok(HttpResponse::Ok().json(preview::preview(app, proposal).await?));
    }
    let applied = apply(app, proposal).await?;
    let row = rows::get(&mut *app.pool.acquire().await?).await?;
    if !applied.changed && row.generation != applied.generation {
        // Nothing was written, and the target in force was replaced meanwhile.
        return Err(ApplyError::Stale(row.generation).into());
    }
    Ok(answer(row))
}
