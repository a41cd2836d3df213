//! `/v1/frontiers`: cost, accuracy and replicas while one value of a problem varies.

use super::analyses::{self, AnalysesQuery, AnalysisPath, AnalysisSummary, CheckedAnalysis};
use super::body::{self, Document};
use super::idempotency::IdempotencyHeader;
use super::paging::{ListPage, PageQuery};
use super::refusal::{HandlerResult, Refusal, RefusalReply};
use crate::analyses::frontier::FrontierRequest;
use crate::app::App;
use crate::jobs::TIME_LIMIT_S_MAX;
use crate::store::PgConnection;
use actix_web::{HttpRequest, web};
use apportion_wire::{AnalysisKind, FrontierFile, FrontierPointFile};
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

/// Most points of a frontier.
pub const FRONTIER_POINTS_MAX: u32 = 1_000;

/// A frontier: its state, the points that are ready, and its result.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct FrontierDocument {
    /// Its state, and its request.
    #[serde(flatten)]
    pub summary: AnalysisSummary,
    /// The points that are ready, by rising value; left out once there is a result. The result may have a better plan or
    /// bound for a point.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub points: Option<Vec<FrontierPointFile>>,
    /// The JSON of `apportion frontier`; null before the end.
    pub result: Option<FrontierFile>,
}

/// The routes of this resource.
pub fn configure(config: &mut web::ServiceConfig) {
    config
        .service(web::resource("/v1/frontiers").route(web::get().to(list)).route(web::post().to(post)))
        .service(web::resource("/v1/frontiers/{id}").route(web::get().to(get)).route(web::delete().to(delete)))
        .service(web::resource("/v1/frontiers/{id}/cancel").route(web::post().to(cancel)));
}

/// All frontiers, the newest first, without their points.
#[utoipa::path(get, path = "/v1/frontiers", tag = "analyses", operation_id = "list_frontiers",
    params(AnalysesQuery, PageQuery),
    responses((status = 200, description = "The frontiers.", body = [AnalysisSummary])))]
pub async fn list(app: web::Data<App>, page: ListPage<Uuid, AnalysesQuery>) -> HandlerResult {
    analyses::list(&app, AnalysisKind::Frontier, page).await
}

/// Asks for a frontier: plans at several values of the demand, the SLO, the budget, or the number of devices.
#[utoipa::path(post, path = "/v1/frontiers", tag = "analyses", operation_id = "post_frontier", params(IdempotencyHeader),
    request_body(content = FrontierRequest, description = "The problem, and the value that varies."),
    responses((status = 202, description = "It is queued.", body = FrontierDocument,
        headers(("Location" = String, description = "Where it is."))), RefusalReply<409>))]
pub async fn post(app: web::Data<App>, request: HttpRequest, mut document: Document) -> HandlerResult {
    let asked: FrontierRequest = body::value(document.tree.take())?;
    analyses::refuse_first(asked.check(FRONTIER_POINTS_MAX, TIME_LIMIT_S_MAX))?;
    let kind = AnalysisKind::Frontier;
    let check = async |db: &mut PgConnection| -> Result<CheckedAnalysis, Refusal> {
        let mut asked = asked;
        let read = analyses::problem(db, asked.problem.take(), asked.plan).await?;
        asked.sweep(&read.problem).map_err(analyses::refused_option)?;
        Ok(CheckedAnalysis {
            request: serde_json::to_value(&asked).expect("a request is JSON"),
            plan: None,
            pipelines: read.pipelines(),
            problem: read.document,
            time: analyses::time_of(f64::from(asked.points) * asked.time_limit_s),
        })
    };
    analyses::post(&app, &request, kind, &document.bytes, check).await
}

/// One frontier, with the points that are ready.
#[utoipa::path(get, path = "/v1/frontiers/{id}", tag = "analyses", operation_id = "get_frontier", params(AnalysisPath),
    responses((status = 200, description = "The frontier.", body = FrontierDocument), RefusalReply<404>))]
pub async fn get(app: web::Data<App>, path: web::Path<AnalysisPath>) -> HandlerResult {
    analyses::get(&app, AnalysisKind::Frontier, path.id).await
}

/// Cancels a frontier that is not over. Its points that are ready stay.
#[utoipa::path(post, path = "/v1/frontiers/{id}/cancel", tag = "analyses", operation_id = "cancel_frontier",
    params(AnalysisPath),
    responses((status = 202, description = "It stops soon, or has stopped.", body = FrontierDocument),
        RefusalReply<404>, RefusalReply<409>))]
pub async fn cancel(app: web::Data<App>, path: web::Path<AnalysisPath>) -> HandlerResult {
    analyses::cancel(&app, AnalysisKind::Frontier, path.id).await
}

/// Deletes a frontier with its points, in any state.
#[utoipa::path(delete, path = "/v1/frontiers/{id}", tag = "analyses", operation_id = "delete_frontier",
    params(AnalysisPath), responses((status = 204, description = "It is gone."), RefusalReply<404>))]
pub async fn delete(app: web::Data<App>, path: web::Path<AnalysisPath>) -> HandlerResult {
    analyses::delete(&app, AnalysisKind::Frontier, path.id).await
}
