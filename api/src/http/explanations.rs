//! `/v1/plans/{id}/explanation`: why is a plan as it is, or why is there none?

use super::body::off_loop;
use super::plans::PlanPath;
use super::refusal::{HandlerResult, Refusal, RefusalReply};
use crate::app::App;
use crate::jobs::{FullExplanation, PlanOptions, PlanToExplain, explain_in_full, leaves_searches_out};
use crate::store::{self, plans as rows, plans::PlanRow};
use actix_web::http::StatusCode;
use actix_web::{HttpResponse, web};
use apportion_wire::PlanState;
use apportion_wire::explanation::ExplanationFile;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

/// Most plans that one process explains in full at a time. Each takes the time of all processors.
pub const EXPLANATIONS_MAX: usize = 2;

/// The explanation of a plan.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct PlanExplanation {
    /// The plan.
    pub plan: Uuid,
    /// Its state: `succeeded`, or another one with a plan file. For an `infeasible` plan `shortfalls` says why.
    pub state: PlanState,
    /// The explanation.
    #[schema(value_type = ExplanationFile)]
    pub explanation: Value,
}

/// How far a plan is explained.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ExplanationQuery {
    /// `false`: only the explanation that was stored with the plan, at once. By default, prices and alternatives that it
    /// leaves out are searched for, for at most 60 s.
    pub full: Option<bool>,
}

/// Room for full explanations.
pub struct ExplanationRooms(Arc<Semaphore>);

impl Default for ExplanationRooms {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(EXPLANATIONS_MAX)))
    }
}

impl ExplanationRooms {
    fn take(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        self.0.clone().try_acquire_owned().map_err(|_| {
            let detail = format!(
                "{EXPLANATIONS_MAX} plans are being explained in full already: try again in a minute, or ask for full=false"
            );
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, detail)
        })
    }
}

/// The routes of this resource.
pub fn configure(config: &mut web::ServiceConfig) {
    config.service(web::resource("/v1/plans/{id}/explanation").route(web::get().to(get)));
}

/// Why a plan is as it is, or why there is none. Prices and alternatives that the stored explanation leaves out are
/// searched for. A client that leaves stops the search.
#[utoipa::path(get, path = "/v1/plans/{id}/explanation", tag = "plans", operation_id = "get_plan_explanation",
    params(PlanPath, ExplanationQuery),
    responses((status = 200, description = "The explanation.", body = PlanExplanation),
        RefusalReply<404>, RefusalReply<409>))]
pub async fn get(
    app: web::Data<App>,
    rooms: web::Data<ExplanationRooms>,
    path: web::Path<PlanPath>,
    query: web::Query<ExplanationQuery>,
) -> HandlerResult {
    let PlanPath { id } = path.into_inner();
    let row = rows::get(&mut *app.pool.acquire().await?, id).await?;
    let row = row.ok_or_else(|| Refusal::not_found(format!("plan {id}")))?;
    let state = row.state;
    let Some(plan) = &row.plan else {
        let detail = format!("plan {id} is {state}: expected one that has succeeded or is infeasible");
        return Err(Refusal::new(StatusCode::CONFLICT, detail));
    };
    let mut explanation = match &plan["explanation"] {
        Value::Null => serde_json::to_value(ExplanationFile::default()).expect("an explanation is JSON"),
        stored => stored.clone(),
    };
    if query.full.unwrap_or(true) && leaves_searches_out(&row) {
        let room = rooms.take()?;
        match search(&app, row, room).await? {
            FullExplanation::Explained(full) => explanation = full,
            FullExplanation::LeftOut(why) => leave_out(&mut explanation, why),
        }
    }
    Ok(HttpResponse::Ok().json(PlanExplanation { plan: id, state, explanation }))
}

/// Adds a part that was not computed.
fn leave_out(explanation: &mut Value, why: &str) {
    match explanation["left_out"].as_array_mut() {
        Some(left_out) => left_out.push(json!(why)),
        None => explanation["left_out"] = json!([why]),
    }
}

/// Plans again with time for all searches.
async fn search(app: &App, row: PlanRow, room: OwnedSemaphorePermit) -> Result<FullExplanation, Refusal> {
    let id = row.id;
    let trace = serde_json::from_value(row.options.clone()).ok().and_then(|options: PlanOptions| options.trace);
    let csv = match trace {
        Some(trace) => match store::traces::csv(&mut *app.pool.acquire().await?, trace).await? {
            Some(csv) => Some(csv),
            None => return Ok(FullExplanation::LeftOut("a full explanation: the plan's trace was deleted")),
        },
        None => None,
    };
    let read = match off_loop(move || PlanToExplain::read(row, csv.as_deref())).await? {
        Ok(read) => read,
        Err(error) => {
            tracing::warn!(plan = %id, %error, "a stored plan cannot be planned again");
            return Ok(FullExplanation::LeftOut("a full explanation: a document of the plan cannot be read"));
        }
    };
    explain_in_full(read, room).await.map_err(|error| {
        tracing::error!(plan = %id, %error, "a plan could not be explained");
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "the planner broke down; the service's log says why")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_plans_are_explained_at_a_time() {
        let rooms = ExplanationRooms::default();
        let held: Vec<_> = (0..EXPLANATIONS_MAX).map(|_| rooms.take()).collect();
        assert!(held.iter().all(Result::is_ok));
        assert_eq!(rooms.take().err().map(|refusal| refusal.status), Some(503));
        drop(held);
        assert!(rooms.take().is_ok());
    }

    #[test]
    fn a_part_that_is_left_out_is_listed() {
        let mut explanation = json!({"left_out": ["a"]});
        leave_out(&mut explanation, "b");
        assert_eq!(explanation["left_out"], json!(["a", "b"]));
        let mut bare = json!({});
        leave_out(&mut bare, "b");
        assert_eq!(bare["left_out"], json!(["b"]));
    }
}
