//! `/v1/simulations`: a plan replays a load.

use super::analyses::{self, AnalysesQuery, AnalysisPath, AnalysisSummary, CheckedAnalysis, ReadProblem};
use super::body::{self, Document, off_loop};
use super::idempotency::IdempotencyHeader;
use super::paging::{ListPage, PageQuery};
use super::plans::PlanPath;
use super::refusal::{HandlerResult, Refusal, RefusalReply};
use crate::analyses::simulation::SimulationRequest;
use crate::app::App;
use crate::ladder_headroom::{Feedback, LadderHeadroom};
use crate::store::jobs::SolveTime;
use crate::store::{PgConnection, analyses as rows};
use actix_web::{HttpRequest, web};
use apportion_wire::AnalysisKind;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

/// A simulation: its state and its result.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct SimulationDocument {
    /// Its state, and its request.
    #[serde(flatten)]
    pub summary: AnalysisSummary,
    /// The JSON of `apportion simulate`: an estimate, with one for each pipeline in `pipelines`; null before the end.
    #[schema(value_type = Option<Object>)]
    pub result: Option<Value>,
}

/// The routes of this resource.
pub fn configure(config: &mut web::ServiceConfig) {
    config
        .service(web::resource("/v1/simulations").route(web::get().to(list)).route(web::post().to(post)))
        .service(web::resource("/v1/simulations/{id}").route(web::get().to(get)).route(web::delete().to(delete)))
        .service(web::resource("/v1/simulations/{id}/cancel").route(web::post().to(cancel)))
        .service(web::resource("/v1/plans/{id}/simulation").route(web::get().to(get_of_plan)));
}

/// All simulations, the newest first, without their results.
#[utoipa::path(get, path = "/v1/simulations", tag = "analyses", operation_id = "list_simulations",
    params(AnalysesQuery, PageQuery),
    responses((status = 200, description = "The simulations.", body = [AnalysisSummary])))]
pub async fn list(app: web::Data<App>, page: ListPage<Uuid, AnalysesQuery>) -> HandlerResult {
    analyses::list(&app, AnalysisKind::Simulation, page).await
}

/// Asks for a simulation: a plan of the service, or a plan file, replays a trace of the service.
#[utoipa::path(post, path = "/v1/simulations", tag = "analyses", operation_id = "post_simulation",
    params(IdempotencyHeader),
    request_body(content = SimulationRequest, description = "The plan and the load."),
    responses((status = 202, description = "It is queued.", body = SimulationDocument,
        headers(("Location" = String, description = "Where it is."))), RefusalReply<409>))]
pub async fn post(app: web::Data<App>, request: HttpRequest, mut document: Document) -> HandlerResult {
    let asked: SimulationRequest = body::value(document.tree.take())?;
    analyses::refuse_first(asked.check())?;
    let kind = AnalysisKind::Simulation;
    let check = async |db: &mut PgConnection| -> Result<CheckedAnalysis, Refusal> {
        let mut asked = asked;
        let PlanOfProblem { read, plan } = problem_and_plan(db, &mut asked).await?;
        if let Some(trace) = &mut asked.trace {
            analyses::find_trace(db, "/trace", trace).await?;
        }
        analyses::find_traces(db, "/traces", &read.problem, &mut asked.traces).await?;
        analyses::find_traces(db, "/samples", &read.problem, &mut asked.samples).await?;
        Ok(CheckedAnalysis {
            request: serde_json::to_value(&asked).expect("a request is JSON"),
            plan: Some(plan),
            pipelines: read.pipelines(),
            problem: read.document,
            // A replay of as many queries as are allowed takes about a minute.
            time: SolveTime::Usual,
        })
    };
    analyses::post(&app, &request, kind, &document.bytes, check).await
}

/// A problem, and a plan file for it.
struct PlanOfProblem {
    read: ReadProblem,
    plan: Value,
}

/// Problem and plan file of a request, which then has neither.
async fn problem_and_plan(db: &mut PgConnection, asked: &mut SimulationRequest) -> Result<PlanOfProblem, Refusal> {
    let (read, plan, place) = match (asked.problem.take(), asked.plan_file.take(), asked.plan) {
        (None, None, Some(id)) => {
            let row = analyses::stored_plan(db, id).await?;
            let plan = analyses::plan_file(&row)?;
            // As the agents of this plan have it.
            if has_ladder(&plan) && row.options["ladder_headroom"].is_null() {
                asked.ladder_headroom.get_or_insert(LadderHeadroom::Feedback(Feedback::Feedback));
            }
            (analyses::read_problem(row.problem, "/plan").await?, plan, "/plan")
        }
        (Some(problem), Some(plan), None) => (analyses::read_problem(problem, "/problem").await?, plan, "/plan_file"),
        _ => return Err(Refusal::value("", "expected either plan, or problem and plan_file")),
    };
    let check = move || match apportion_wire::plan_for_from_tree(&read.problem, "plan", plan.clone()) {
        Ok(_) => Ok(PlanOfProblem { read, plan }),
        Err(bad) => Err(Refusal::from(bad).below(place)),
    };
    off_loop(check).await?
}

/// Whether a plan file has a ladder.
fn has_ladder(plan: &Value) -> bool {
    let has_steps = |part: &Value| part["ladder"].as_array().is_some_and(|steps| !steps.is_empty());
    plan["pipelines"].as_array().is_some_and(|parts| parts.iter().any(has_steps))
}

/// One simulation.
#[utoipa::path(get, path = "/v1/simulations/{id}", tag = "analyses", operation_id = "get_simulation",
    params(AnalysisPath),
    responses((status = 200, description = "The simulation.", body = SimulationDocument), RefusalReply<404>))]
pub async fn get(app: web::Data<App>, path: web::Path<AnalysisPath>) -> HandlerResult {
    analyses::get(&app, AnalysisKind::Simulation, path.id).await
}

/// The newest simulation of a stored plan, in any state.
#[utoipa::path(get, path = "/v1/plans/{id}/simulation", tag = "plans", operation_id = "get_plan_simulation",
    params(PlanPath),
    responses((status = 200, description = "The simulation.", body = SimulationDocument), RefusalReply<404>))]
pub async fn get_of_plan(app: web::Data<App>, path: web::Path<PlanPath>) -> HandlerResult {
    let PlanPath { id } = path.into_inner();
    let newest = rows::newest_simulation(&mut *app.pool.acquire().await?, id).await?;
    let missing = || Refusal::not_found(format!("simulation of plan {id}: POST /v1/simulations makes one"));
    analyses::get(&app, AnalysisKind::Simulation, newest.ok_or_else(missing)?).await
}

/// Cancels a simulation that is not over. It has no result then.
#[utoipa::path(post, path = "/v1/simulations/{id}/cancel", tag = "analyses", operation_id = "cancel_simulation",
    params(AnalysisPath),
    responses((status = 202, description = "It stops soon, or has stopped.", body = SimulationDocument),
        RefusalReply<404>, RefusalReply<409>))]
pub async fn cancel(app: web::Data<App>, path: web::Path<AnalysisPath>) -> HandlerResult {
    analyses::cancel(&app, AnalysisKind::Simulation, path.id).await
}

/// Deletes a simulation, in any state.
#[utoipa::path(delete, path = "/v1/simulations/{id}", tag = "analyses", operation_id = "delete_simulation",
    params(AnalysisPath), responses((status = 204, description = "It is gone."), RefusalReply<404>))]
pub async fn delete(app: web::Data<App>, path: web::Path<AnalysisPath>) -> HandlerResult {
    analyses::delete(&app, AnalysisKind::Simulation, path.id).await
}
