//! `/v1/comparisons`: planners side by side on one load.

use super::analyses::{self, AnalysesQuery, AnalysisPath, AnalysisSummary, CheckedAnalysis};
use super::body::{self, Document};
use super::idempotency::IdempotencyHeader;
use super::paging::{ListPage, PageQuery};
use super::refusal::{HandlerResult, Refusal, RefusalReply};
use crate::analyses::comparison::ComparisonRequest;
use crate::app::App;
use crate::jobs::TIME_LIMIT_S_MAX;
use crate::store::PgConnection;
use actix_web::{HttpRequest, web};
use apportion_wire::{AnalysisKind, ComparedPlannerFile, ComparisonFile};
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

/// A comparison: its state, the planners that are ready, and its result.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ComparisonDocument {
    /// Its state, and its request.
    #[serde(flatten)]
    pub summary: AnalysisSummary,
    /// The planners that have ended, in their order; left out once there is a result. Their plans are not judged yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub points: Option<Vec<ComparedPlannerFile>>,
    /// The JSON of `apportion compare`; null before the end.
    pub result: Option<ComparisonFile>,
}

/// The routes of this resource.
pub fn configure(config: &mut web::ServiceConfig) {
    config
        .service(web::resource("/v1/comparisons").route(web::get().to(list)).route(web::post().to(post)))
        .service(web::resource("/v1/comparisons/{id}").route(web::get().to(get)).route(web::delete().to(delete)))
        .service(web::resource("/v1/comparisons/{id}/cancel").route(web::post().to(cancel)));
}

/// All comparisons, the newest first, without their planners.
#[utoipa::path(get, path = "/v1/comparisons", tag = "analyses", operation_id = "list_comparisons",
    params(AnalysesQuery, PageQuery),
    responses((status = 200, description = "The comparisons.", body = [AnalysisSummary])))]
pub async fn list(app: web::Data<App>, page: ListPage<Uuid, AnalysesQuery>) -> HandlerResult {
    analyses::list(&app, AnalysisKind::Comparison, page).await
}

/// Asks for a comparison: each planner plans for the same load, and all plans are judged on the same fresh samples of it.
#[utoipa::path(post, path = "/v1/comparisons", tag = "analyses", operation_id = "post_comparison",
    params(IdempotencyHeader),
    request_body(content = ComparisonRequest, description = "The problem, the load and the planners."),
    responses((status = 202, description = "It is queued.", body = ComparisonDocument,
        headers(("Location" = String, description = "Where it is."))), RefusalReply<409>))]
pub async fn post(app: web::Data<App>, request: HttpRequest, mut document: Document) -> HandlerResult {
    let asked: ComparisonRequest = body::value(document.tree.take())?;
    analyses::refuse_first(asked.check(TIME_LIMIT_S_MAX))?;
    let kind = AnalysisKind::Comparison;
    let check = async |db: &mut PgConnection| -> Result<CheckedAnalysis, Refusal> {
        let mut asked = asked;
        let read = analyses::problem(db, asked.problem.take(), asked.plan).await?;
        if let Some(trace) = &mut asked.trace {
            analyses::find_trace(db, "/trace", trace).await?;
        }
        analyses::find_traces(db, "/traces", &read.problem, &mut asked.traces).await?;
        Ok(CheckedAnalysis {
            request: serde_json::to_value(&asked).expect("a request is JSON"),
            plan: None,
            pipelines: read.pipelines(),
            problem: read.document,
            time: analyses::time_of(asked.contenders().len() as f64 * asked.time_limit_s),
        })
    };
    analyses::post(&app, &request, kind, &document.bytes, check).await
}

/// One comparison, with the planners that are ready.
#[utoipa::path(get, path = "/v1/comparisons/{id}", tag = "analyses", operation_id = "get_comparison",
    params(AnalysisPath),
    responses((status = 200, description = "The comparison.", body = ComparisonDocument), RefusalReply<404>))]
pub async fn get(app: web::Data<App>, path: web::Path<AnalysisPath>) -> HandlerResult {
    analyses::get(&app, AnalysisKind::Comparison, path.id).await
}

/// Cancels a comparison that is not over. Its planners that are ready stay.
#[utoipa::path(post, path = "/v1/comparisons/{id}/cancel", tag = "analyses", operation_id = "cancel_comparison",
    params(AnalysisPath),
    responses((status = 202, description = "It stops soon, or has stopped.", body = ComparisonDocument),
        RefusalReply<404>, RefusalReply<409>))]
pub async fn cancel(app: web::Data<App>, path: web::Path<AnalysisPath>) -> HandlerResult {
    analyses::cancel(&app, AnalysisKind::Comparison, path.id).await
}

/// Deletes a comparison with its planners, in any state.
#[utoipa::path(delete, path = "/v1/comparisons/{id}", tag = "analyses", operation_id = "delete_comparison",
    params(AnalysisPath), responses((status = 204, description = "It is gone."), RefusalReply<404>))]
pub async fn delete(app: web::Data<App>, path: web::Path<AnalysisPath>) -> HandlerResult {
    analyses::delete(&app, AnalysisKind::Comparison, path.id).await
}
