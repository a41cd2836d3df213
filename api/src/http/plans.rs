//! `/v1/plans`: requests for plans, and their outcomes.

use super::body::{self, Document, off_loop};
use super::paging::{ListPage, PageQuery};
use super::refusal::{HandlerResult, Refusal, RefusalReply};
use crate::act::apply::agent_facts;
use crate::act::replan::live_hardware;
use crate::act::times;
use crate::app::{App, now};
use crate::decide::fleet::Fleet;
use crate::decide::measured::fill_times;
use crate::documents;
use crate::jobs::PlanOptions;
use crate::store::{self, plans as rows, plans::PlanRow};
use actix_web::http::{StatusCode, header};
use actix_web::{HttpRequest, HttpResponse, web};
use apportion_wire::{HardwareSpec, ObjectiveSpec, PipelineSpec, PlanFile, PlanState, ProblemSpec};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::time::{Duration, Instant};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

/// Longest wait of `Prefer: wait=N`.
const WAIT_MAX: Duration = Duration::from_secs(300);
/// Pause between two reads of a waiting request: the first, and the longest.
const WAIT_POLL: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(200)];

/// A request for a plan: a problem file, or registered pipelines.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanRequest {
    /// A whole problem file. Instead of `pipelines`.
    #[serde(default)]
    #[schema(value_type = Option<ProblemSpec>)]
    pub problem: Option<Value>,
    /// Registered pipelines with their demands. Instead of `problem`.
    #[serde(default)]
    pub pipelines: Option<Vec<PlannedPipeline>>,
    /// The objective, with `pipelines`; default `hardware_then_accuracy`.
    #[serde(default)]
    pub objective: Option<ObjectiveSpec>,
    /// The hardware, with `pipelines`; default: the devices of live agents, or all registered types if there is none.
    #[serde(default)]
    pub hardware: Option<Vec<HardwareSpec>>,
    /// An uploaded trace that the plan must hold on; default: Poisson at the demand, 60 s.
    #[serde(default)]
    pub trace: Option<Uuid>,
    /// `milp` (default), `greedy`, or a baseline: `hardware-only`, `proteus`, `cg-mean`, `cg-peak`.
    #[serde(default)]
    pub planner: Option<String>,
    /// Limit on the time spent solving; default 60.
    #[serde(default)]
    pub time_limit_s: Option<f64>,
    /// Relative gap at which a plan counts as optimal; default 1e-4.
    #[serde(default)]
    pub gap: Option<f64>,
    /// Also find the replicas for other loads, from the demand divided by this factor to the demand times it, 1 to 100.
    /// Agents then follow them instead of InferLine's tuner; default: none.
    #[serde(default)]
    pub ladder: Option<f64>,
}

/// A registered pipeline to be planned.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlannedPipeline {
    /// Its name.
    pub name: String,
    /// Queries entering its root per second; default: the spec's.
    #[serde(default)]
    pub demand_qps: Option<f64>,
}

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

/// The header `Idempotency-Key`.
#[derive(Clone, Debug, IntoParams)]
#[into_params(parameter_in = Header)]
#[allow(dead_code)] // read by `idempotency_key`
pub struct IdempotencyHeader {
    /// The same key and body again give the same plan, so a client may leave and come back.
    #[param(rename = "Idempotency-Key", required = false, value_type = String, min_length = 1, max_length = 128,
        pattern = "^[ -~]+$")]
    pub idempotency_key: Option<String>,
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
        .service(web::resource("/v1/plans/{id}").route(web::get().to(get)).route(web::delete().to(delete)));
}

/// All plans, the newest first, without problem and plan file.
#[utoipa::path(get, path = "/v1/plans", tag = "plans", operation_id = "list_plans", params(PlansQuery, PageQuery),
    responses((status = 200, description = "The plans.", body = [PlanSummary])))]
pub async fn list(app: web::Data<App>, page: ListPage<Uuid, PlansQuery>) -> HandlerResult {
    let filter = rows::PlanFilter { pipeline: page.filter.pipeline.clone(), state: page.filter.state };
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

/// Asks for a plan. With `Prefer: wait=N` the answer waits up to N seconds for it. A client that leaves meanwhile cancels
/// it, unless it has sent an `Idempotency-Key`. If no plan exists, the state is `infeasible`, and the plan file says why.
#[utoipa::path(post, path = "/v1/plans", tag = "plans", operation_id = "post_plan", params(PreferHeader, IdempotencyHeader),
    request_body(content = PlanRequest, description = "What is to be planned."),
    responses(
        (status = 202, description = "It is queued or being solved.", body = PlanDocument,
            headers(("Location" = String, description = "Where it is."))),
        (status = 200, description = "It is over.", body = PlanDocument,
            headers(("Location" = String, description = "Where it is.")))))]
pub async fn post(app: web::Data<App>, request: HttpRequest, mut document: Document) -> HandlerResult {
    let asked: PlanRequest = body::value(document.tree.take())?;
    let options = options(&asked)?;
    let key = idempotency_key(&request, &document.bytes)?;
    let (id, wait) = (Uuid::now_v7(), wait(&request));
    // From here on, a waiting client that leaves cancels the plan.
    let mut waiting = Waiting { app: (**app).clone(), id, gave_up: !wait.is_zero() && key.is_none() };
    let mut tx = app.pool.begin().await?;
    let known = already_asked(&mut tx, key.as_ref()).await?;
    let id = match known {
        Some(id) => id,
        None => enqueue(&mut tx, id, asked, &options, key).await?,
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

/// The key of a client that may send its request again.
struct IdempotencyKey {
    /// The header `Idempotency-Key`.
    key: String,
    /// SHA-256 of the request's body, hex.
    digest: String,
}

/// The client's key with the digest of its request.
fn idempotency_key(request: &HttpRequest, bytes: &[u8]) -> Result<Option<IdempotencyKey>, Refusal> {
    let Some(key) = request.headers().get("idempotency-key") else { return Ok(None) };
    let key = key.to_str().ok().filter(|k| !k.is_empty() && k.len() <= body::NAME_CHARS_MAX);
    let expected = || format!("Idempotency-Key: expected 1 to {} characters of ASCII", body::NAME_CHARS_MAX);
    let key = key.ok_or_else(|| Refusal::new(StatusCode::BAD_REQUEST, expected()))?;
    let digest = Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect();
    Ok(Some(IdempotencyKey { key: key.to_string(), digest }))
}

/// The plan of this key, if a client has asked for it already.
async fn already_asked(db: &mut store::PgConnection, key: Option<&IdempotencyKey>) -> Result<Option<Uuid>, Refusal> {
    let Some(IdempotencyKey { key, digest }) = key else { return Ok(None) };
    match rows::known_key(db, key).await? {
        Some(known) if known.request == *digest => Ok(Some(known.plan)),
        Some(_) => {
            let detail = format!("Idempotency-Key {key} was used for another request");
            Err(Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, detail))
        }
        None => Ok(None),
    }
}

async fn enqueue(
    db: &mut store::PgConnection,
    id: Uuid,
    asked: PlanRequest,
    options: &PlanOptions,
    key: Option<IdempotencyKey>,
) -> Result<Uuid, Refusal> {
    if let Some(trace) = options.trace
        && store::traces::get(db, trace).await?.is_none()
    {
        return Err(Refusal::value("/trace", format!("there is no trace {trace}")));
    }
    let problem = problem(db, asked).await?;
    let at = now();
    rows::insert(db, id, &problem, &serde_json::to_value(options).expect("options are JSON"), at).await?;
    store::jobs::enqueue(db, id, options.solve_time()).await?;
    if let Some(IdempotencyKey { key, digest }) = key {
        rows::remember_key(db, &key, &digest, id, at).await?;
    }
    Ok(id)
}

fn options(asked: &PlanRequest) -> Result<PlanOptions, Refusal> {
    let default = PlanOptions::default();
    let options = PlanOptions {
        planner: asked.planner.clone().unwrap_or(default.planner),
        gap: asked.gap.unwrap_or(default.gap),
        time_limit_s: asked.time_limit_s.unwrap_or(default.time_limit_s),
        trace: asked.trace,
        ladder: asked.ladder,
        ..default
    };
    match options.refused().into_iter().next() {
        Some(refused) => Err(Refusal::value(refused.pointer, refused.detail)),
        None => Ok(options),
    }
}

/// The valid problem document of a request.
async fn problem(db: &mut store::PgConnection, asked: PlanRequest) -> Result<Value, Refusal> {
    match (asked.problem, asked.pipelines) {
        (Some(problem), None) => {
            if asked.objective.is_some() || asked.hardware.is_some() {
                return Err(Refusal::value("/problem", "a problem brings its own objective and hardware"));
            }
            off_loop(move || match documents::problem(&problem) {
                Ok(_) => Ok(problem),
                Err(bad) => Err(Refusal::from(bad).below("/problem")),
            })
            .await?
        }
        (None, Some(pipelines)) => {
            let objective = asked.objective.unwrap_or_default();
            let hardware = match asked.hardware {
                Some(hardware) => hardware,
                None => available_hardware(db).await?,
            };
            if hardware.is_empty() {
                return Err(Refusal::value("/hardware", "no agent is live and no hardware type is registered"));
            }
            let FilledSpecs { specs, notes } = specs(db, pipelines).await?;
            let made = move || {
                let mut document = documents::problem_document(objective, hardware, specs)?;
                documents::add_notes(&mut document, notes);
                documents::problem(&document)?;
                Ok::<_, Refusal>(document)
            };
            off_loop(made).await?
        }
        _ => Err(Refusal::value("", "expected either problem or pipelines")),
    }
}

async fn available_hardware(db: &mut store::PgConnection) -> Result<Vec<HardwareSpec>, Refusal> {
    let counts = Fleet::live(store::agents::list(db).await?.iter().map(agent_facts).collect()).counts();
    if !counts.is_empty() {
        return Ok(live_hardware(db, counts).await?);
    }
    let spec = |row: store::hardware::HardwareRow| HardwareSpec {
        name: row.name,
        price_per_hour: row.price_per_hour,
        count: None,
        memory_mib: row.memory_mib,
    };
    Ok(store::hardware::list(db).await?.into_iter().map(spec).collect())
}

/// Registered pipelines with the times that agents measured, where their files have none.
struct FilledSpecs {
    specs: Vec<PipelineSpec>,
    /// Sentences about these times.
    notes: Vec<String>,
}

async fn specs(db: &mut store::PgConnection, pipelines: Vec<PlannedPipeline>) -> Result<FilledSpecs, Refusal> {
    let times = times::read(db).await?;
    let (mut specs, mut notes) = (Vec::with_capacity(pipelines.len()), Vec::new());
    for (i, planned) in pipelines.into_iter().enumerate() {
        let row = store::pipelines::get(db, &planned.name).await?;
        let missing =
            || Refusal::value(format!("/pipelines/{i}/name"), format!("{}: expected a registered pipeline", planned.name));
        let mut spec = documents::measured(&row.ok_or_else(missing)?)?;
        spec.demand_qps = planned.demand_qps.unwrap_or(spec.demand_qps);
        notes.extend(fill_times(&mut spec, &times));
        specs.push(spec);
    }
    Ok(FilledSpecs { specs, notes })
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
    row.map(PlanDocument::from).ok_or_else(|| Refusal::not_found(format!("plan {id}")))
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
    let document = read(&app, id).await?;
    if open {
        return Ok(HttpResponse::Accepted().json(document));
    }
    Err(Refusal::new(StatusCode::CONFLICT, format!("plan {id} is {} already", document.state)))
}
