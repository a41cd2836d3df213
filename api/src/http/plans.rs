//! `/v1/plans`: requests for plans, and their outcomes.

use super::access::Principal;
use super::body::{self, Document};
use super::idempotency::{IdempotencyHeader, IdempotencyKey};
use super::paging::{ListPage, PageQuery};
use super::planned_problem::{self, CheckedPlanRequest, PlanRequest};
use super::refusal::{HandlerResult, Refusal, RefusalReply};
use crate::app::{App, now};
use crate::jobs::PlanOptions;
use crate::store::{self, jobs::JobQueue, plans as rows, plans::PlanRow};
use actix_web::http::{StatusCode, header};
use actix_web::{HttpRequest, HttpResponse, web};
use apportion_wire::{PlanFile, PlanState, ProblemSpec};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::{Duration, Instant};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

/// Most plans that wait or are being solved at a time. One project has at most as many of them as places are free, so half
/// of them if it is alone.
pub const PLANS_OPEN_MAX: i64 = 20_000;
/// Longest wait of `Prefer: wait=N`.
const WAIT_MAX: Duration = Duration::from_secs(300);
/// Pause between two reads of a waiting request: the first, and the longest.
const WAIT_POLL: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(200)];

/// A plan: request, state and outcome.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct PlanDocument {
    /// Its identifier.
    pub id: Uuid,
    /// Its state.
    pub state: PlanState,
    /// When a client asked for it.
    pub created_at: DateTime<Utc>,
    /// When a worker began to solve it.
    pub started_at: Option<DateTime<Utc>>,
    /// When it ended.
    pub finished_at: Option<DateTime<Utc>>,
    /// The reason if it failed.
    pub error: Option<String>,
    /// The progress of the search, while it is being solved.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Progress>)]
    pub progress: Option<Value>,
    /// The plan file of the best plan so far, while it is being solved: the best one of the check loop that passes its
    /// replay. It has an estimate and no explanation.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<PlanFile>)]
    pub best: Option<Value>,
    /// The options for its solver.
    #[schema(value_type = PlanOptions)]
    pub options: Value,
    /// The problem file.
    #[schema(value_type = ProblemSpec)]
    pub problem: Value,
    /// The plan file, once there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<PlanFile>)]
    pub plan: Option<Value>,
}

/// A plan in a list: without problem and plan file.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct PlanSummary {
    /// Its identifier.
    pub id: Uuid,
    /// Its state.
    pub state: PlanState,
    /// The names of its pipelines.
    pub pipelines: Vec<String>,
    /// When a client asked for it.
    pub created_at: DateTime<Utc>,
    /// When a worker began to solve it.
    pub started_at: Option<DateTime<Utc>>,
    /// When it ended.
    pub finished_at: Option<DateTime<Utc>>,
    /// The reason if it failed.
    pub error: Option<String>,
    /// The progress of the search, while it is being solved.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Progress>)]
    pub progress: Option<Value>,
    /// The options for its solver.
    #[schema(value_type = PlanOptions)]
    pub options: Value,
}

/// The progress of a search.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Progress {
    /// The goal of the search.
    pub goal: String,
    /// The best value so far; null while there is none.
    pub value: Option<f64>,
    /// The bound that no plan can beat; null while there is none.
    pub bound: Option<f64>,
}

/// The plans that a client asks for.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PlansQuery {
    /// Only plans with this pipeline.
    pub pipeline: Option<String>,
    /// Only plans in this state.
    #[param(required = false, value_type = PlanState)]
    pub state: Option<PlanState>,
    /// Only plans of this project: its tokens asked for them, or all their pipelines were of it.
    pub project: Option<String>,
}

/// The path of a plan.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub struct PlanPath {
    /// Its identifier.
    pub id: Uuid,
}

/// The header `Prefer`.
#[derive(Clone, Debug, IntoParams)]
#[into_params(parameter_in = Header)]
#[allow(dead_code)] // read by `wait`
pub struct PreferHeader {
    /// `wait=N`: wait up to N seconds, at most 300, for the plan (RFC 7240). Other preferences are ignored.
    #[param(rename = "Prefer", required = false, value_type = String, example = "wait=30")]
    pub prefer: Option<String>,
}

impl From<PlanRow> for PlanDocument {
    fn from(row: PlanRow) -> Self {
        Self {
            id: row.id,
            state: row.state,
            created_at: row.created_at,
            started_at: row.started_at,
            finished_at: row.finished_at,
            error: row.error,
            progress: row.progress,
            best: row.best,
            options: row.options,
            problem: row.problem,
            plan: row.plan,
        }
    }
}

impl PlanDocument {
    fn is_over(&self) -> bool {
        !self.state.is_open()
    }
}

/// The routes of this resource.
pub fn configure(config: &mut web::ServiceConfig) {
    config
        .service(web::resource("/v1/plans").route(web::get().to(list)).route(web::post().to(post)))
        .service(web::resource("/v1/plans/{id}").route(web::get().to(get)).route(web::delete().to(delete)))
        .service(web::resource("/v1/plans/{id}/stop").route(web::post().to(stop)));
}

/// All plans, the newest first, without problem and plan file.
#[utoipa::path(get, path = "/v1/plans", tag = "plans", operation_id = "list_plans", params(PlansQuery, PageQuery),
    responses((status = 200, description = "The plans.", body = [PlanSummary]), RefusalReply<404>))]
pub async fn list(app: web::Data<App>, client: Principal, page: ListPage<Uuid, PlansQuery>) -> HandlerResult {
    let project = client.listed_project(page.filter.project.clone())?;
    let filter = rows::PlanFilter { pipeline: page.filter.pipeline.clone(), state: page.filter.state, project };
    let rows = rows::list(&mut *app.pool.acquire().await?, &filter, page.after, page.rows_max()).await?;
    let summary = |row: rows::PlanSummaryRow| PlanSummary {
        id: row.id,
        state: row.state,
        pipelines: row.pipelines,
        created_at: row.created_at,
        started_at: row.started_at,
        finished_at: row.finished_at,
        error: row.error,
        progress: row.progress,
        options: row.options,
    };
    Ok(page.answer(rows, |row| row.id, summary))
}

/// Asks for a plan of a problem, of registered pipelines, or of a stored plan's problem with a patch. With `Prefer: wait=N`
/// the answer waits up to N seconds for it. A client that leaves meanwhile cancels
/// it, unless it has sent an `Idempotency-Key`. If no plan exists, the state is `infeasible`, and the plan file says why.
#[utoipa::path(post, path = "/v1/plans", tag = "plans", operation_id = "post_plan", params(PreferHeader, IdempotencyHeader),
    request_body(content = PlanRequest, description = "What is to be planned."),
    responses(
        (status = 202, description = "It is queued or being solved.", body = PlanDocument,
            headers(("Location" = String, description = "Where it is."))),
        (status = 200, description = "It is over.", body = PlanDocument,
            headers(("Location" = String, description = "Where it is."))),
        RefusalReply<409>))]
pub async fn post(app: web::Data<App>, request: HttpRequest, client: Principal, mut document: Document) -> HandlerResult {
    let asked: PlanRequest = body::value(document.tree.take())?;
    let key = IdempotencyKey::read(&request, JobQueue::Plans, "", &document.bytes)?;
    let (id, wait) = (Uuid::now_v7(), wait(&request));
    // From here on, a waiting client that leaves cancels the plan.
    let mut waiting = Waiting { app: (**app).clone(), id, gave_up: !wait.is_zero() && key.is_none() };
    let mut tx = app.pool.begin().await?;
    let known = match &key {
        Some(key) => key.already_asked(&mut tx).await?,
        None => None,
    };
    let id = match known {
        Some(id) => id,
        None => enqueue(&mut tx, &client, id, asked, key).await?,
    };
    tx.commit().await?;
    drop(document);
    app.job_enqueued.notify_one();
    let document = wait_for(&app, id, wait).await?;
    waiting.gave_up = false;
    // A client that does not wait gets 202, however fast the planner was.
    let is_answered = document.is_over() && (known.is_some() || !wait.is_zero());
    let mut response = if is_answered { HttpResponse::Ok() } else { HttpResponse::Accepted() };
    Ok(response.insert_header((header::LOCATION, format!("/v1/plans/{id}"))).json(document))
}

/// A client that waits for its own plan. If it is dropped before the answer, the client has left, and the plan is
/// cancelled.
struct Waiting {
    app: App,
    id: Uuid,
    gave_up: bool,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // A service that stops drops its requests, too. The next service solves their plans.
        if self.gave_up && !self.app.is_stopping() {
            let (app, id) = (self.app.clone(), self.id);
            // Without a runtime the whole service ends.
            let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
            runtime.spawn(async move {
                match cancel(&app, id).await {
                    Ok(true) => tracing::info!(plan = %id, "cancelled: the client that waited for it has left"),
                    Ok(false) => {}
                    Err(error) => tracing::warn!(plan = %id, %error, "a plan that nobody waits for could not be cancelled"),
                }
            });
        }
    }
}

/// Cancels a plan; returns whether it was still open.
async fn cancel(app: &App, id: Uuid) -> store::Result<bool> {
    let mut tx = app.pool.begin().await?;
    let open = rows::cancel(&mut tx, id, now()).await?;
    tx.commit().await?;
    Ok(open)
}

async fn enqueue(
    db: &mut store::PgConnection,
    client: &Principal,
    id: Uuid,
    asked: PlanRequest,
    key: Option<IdempotencyKey>,
) -> Result<Uuid, Refusal> {
    let open = store::jobs::count_open(db, JobQueue::Plans).await?;
    if open >= PLANS_OPEN_MAX {
        let detail = format!("{PLANS_OPEN_MAX} plans wait or are being solved already: wait for one, or cancel one");
        return Err(Refusal::new(StatusCode::CONFLICT, detail));
    }
    let project = client.project.as_deref();
    client.keep_project(db).await?;
    let CheckedPlanRequest { problem, options } = planned_problem::check(db, project, asked).await?;
    let at = now();
    rows::insert(db, id, &problem, &serde_json::to_value(&options).expect("options are JSON"), project, at).await?;
    store::jobs::enqueue(db, JobQueue::Plans, id, options.solve_time()).await?;
    check_share(db, id, open).await?;
    if let Some(key) = key {
        key.remember(db, id, at).await?;
    }
    Ok(id)
}

/// Refuses a new plan if its project has more open plans than places are left, so that another project finds a place.
/// `open` counts the plans of all projects before it.
async fn check_share(db: &mut store::PgConnection, id: Uuid, open: i64) -> Result<(), Refusal> {
    let free = PLANS_OPEN_MAX - open;
    if open < free {
        return Ok(());
    }
    let own = store::jobs::count_open_beside(db, id).await?;
    if own <= free {
        return Ok(());
    }
    let detail = format!(
        "{} plans of this project wait or are being solved already, and {free} places are left for all projects: wait for \
         one, or cancel one",
        own - 1
    );
    Err(Refusal::new(StatusCode::CONFLICT, detail))
}

/// How long the client waits for the answer (RFC 7240).
fn wait(request: &HttpRequest) -> Duration {
    let values = request.headers().get_all("prefer").filter_map(|v| v.to_str().ok());
    let seconds =
        values.flat_map(|v| v.split([',', ';'])).find_map(|p| p.trim().strip_prefix("wait=")?.trim().parse().ok());
    seconds.map_or(Duration::ZERO, |s: u64| Duration::from_secs(s).min(WAIT_MAX))
}

async fn wait_for(app: &App, id: Uuid, wait: Duration) -> Result<PlanDocument, Refusal> {
    let begin = Instant::now();
    let [mut rest, rest_max] = WAIT_POLL;
    while !wait.is_zero() && begin.elapsed() < wait && !app.is_stopping() {
        let state = rows::state(&mut *app.pool.acquire().await?, id).await?;
        if !state.is_some_and(PlanState::is_open) {
            break;
        }
        tokio::time::sleep(rest).await;
        rest = (rest * 5 / 4).min(rest_max);
    }
    read(app, id).await
}

async fn read(app: &App, id: Uuid) -> Result<PlanDocument, Refusal> {
    let row = rows::get(&mut *app.pool.acquire().await?, id).await?;
    Ok(row.ok_or_else(|| Refusal::not_found(format!("plan {id}")))?.into())
}

/// One plan. `Prefer: wait=N` waits for it. A client that leaves cancels nothing.
#[utoipa::path(get, path = "/v1/plans/{id}", tag = "plans", operation_id = "get_plan", params(PlanPath, PreferHeader),
    responses((status = 200, description = "The plan.", body = PlanDocument), RefusalReply<404>))]
pub async fn get(app: web::Data<App>, path: web::Path<PlanPath>, request: HttpRequest) -> HandlerResult {
    Ok(HttpResponse::Ok().json(wait_for(&app, path.id, wait(&request)).await?))
}

/// Cancels a plan that is not done yet.
#[utoipa::path(delete, path = "/v1/plans/{id}", tag = "plans", operation_id = "cancel_plan", params(PlanPath),
    responses((status = 202, description = "It stops soon, or has stopped.", body = PlanDocument),
        RefusalReply<404>, RefusalReply<409>))]
pub async fn delete(app: web::Data<App>, path: web::Path<PlanPath>) -> HandlerResult {
    let PlanPath { id } = path.into_inner();
    let open = cancel(&app, id).await?;
    ending(&app, id, open).await
}

/// Stops the search for a plan that is not done yet, and keeps the best plan so far. The plan file says `stopped`. A plan
/// that waits for a worker is stopped when one begins it. Without any plan so far, the state is `failed`.
#[utoipa::path(post, path = "/v1/plans/{id}/stop", tag = "plans", operation_id = "stop_plan", params(PlanPath),
    responses((status = 202, description = "Its search ends soon, or has ended.", body = PlanDocument),
        RefusalReply<404>, RefusalReply<409>))]
pub async fn stop(app: web::Data<App>, path: web::Path<PlanPath>) -> HandlerResult {
    let PlanPath { id } = path.into_inner();
    let open = rows::keep_best(&mut *app.pool.acquire().await?, id).await?;
    ending(&app, id, open).await
}

/// The answer to a client that ends a plan, which was open or over.
async fn ending(app: &App, id: Uuid, was_open: bool) -> HandlerResult {
    let document = read(app, id).await?;
    if was_open {
        return Ok(HttpResponse::Accepted().json(document));
    }
    Err(Refusal::new(StatusCode::CONFLICT, format!("plan {id} is {} already", document.state)))
}
