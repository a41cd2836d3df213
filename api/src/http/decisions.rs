//! `/v1/decisions`: the decisions of the replanning loop.

use super::paging::{ListPage, PageQuery};
use super::refusal::HandlerResult;
use crate::app::App;
use crate::decide::replacement::Costs;
use crate::decide::shares::AlternativePlan;
use crate::store::decisions::{self as rows, DecisionFilter, DecisionRow};
use actix_web::web;
use apportion_wire::DecisionKind;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

/// One decision.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct DecisionDocument {
    /// Its identifier.
    pub id: Uuid,
    /// The pipeline.
    pub pipeline: String,
    /// The decision.
    pub decision: DecisionKind,
    /// The reason.
    pub reason: String,
    /// The planned demand.
    pub demand_qps: f64,
    /// The new plan, if there is one.
    pub plan: Option<Uuid>,
    /// The costs, if a plan for `min_cost` was compared with the one in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub costs: Option<Costs>,
    /// The plan that the pipeline would have with all devices of the round to itself, if several pipelines took part. It
    /// follows when the plans of the round are deployed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alternative: Option<AlternativePlan>,
    /// When it was made.
    pub made_at: DateTime<Utc>,
}

/// The decisions that a client asks for.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DecisionsQuery {
    /// Only decisions about this pipeline.
    pub pipeline: Option<String>,
    /// Only decisions of this kind.
    #[param(required = false, value_type = DecisionKind)]
    pub decision: Option<DecisionKind>,
}

/// The routes of this resource.
pub fn configure(config: &mut web::ServiceConfig) {
    config.service(web::resource("/v1/decisions").route(web::get().to(list)));
}

/// The newest decisions first.
#[utoipa::path(get, path = "/v1/decisions", tag = "fleet", operation_id = "list_decisions",
    params(DecisionsQuery, PageQuery),
    responses((status = 200, description = "The decisions.", body = [DecisionDocument])))]
pub async fn list(app: web::Data<App>, page: ListPage<Uuid, DecisionsQuery>) -> HandlerResult {
    let filter = DecisionFilter { pipeline: page.filter.pipeline.clone(), decision: page.filter.decision };
    let rows = rows::list(&mut *app.pool.acquire().await?, &filter, page.after, page.rows_max()).await?;
    let document = |row: DecisionRow| DecisionDocument {
        id: row.id,
        pipeline: row.pipeline,
        decision: row.decision,
        reason: row.reason,
        demand_qps: row.demand_qps,
        plan: row.plan,
        costs: row.costs.and_then(|costs| serde_json::from_value(costs).ok()),
        alternative: row.alternative.and_then(|alternative| serde_json::from_value(alternative).ok()),
        made_at: row.made_at,
    };
    Ok(page.answer(rows, |row| row.id, document))
}
