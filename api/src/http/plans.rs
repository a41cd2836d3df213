//! `/v1/plans`: asking for plans and reading them.

use super::body;
use super::refusal::{Answer, Refusal};
use crate::app::{App, now};
use crate::control::{fleet::Fleet, replan::live_hardware};
use crate::documents;
use crate::jobs::PlanOptions;
use crate::store::{self, plans as rows, plans::PlanRow};
use actix_web::http::{StatusCode, header};
use actix_web::{HttpRequest, HttpResponse, web};
use apportion_wire::{HardwareSpec, ObjectiveSpec};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::time::{Duration, Instant};
use utoipa::ToSchema;
use uuid::Uuid;

/// Longest wait that `Prefer: wait=N` can ask for.
const WAIT_MAX: Duration = Duration::from_secs(300);
/// How often a waiting request looks whether its plan is done.
const WAIT_POLL: Duration = Duration::from_millis(20);

/// What is to be planned: a problem file, or registered pipelines.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanRequest {
    /// A whole problem file. Instead of `pipelines`.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    pub problem: Option<Value>,
    /// Registered pipelines with their demands. Instead of `problem`.
    #[serde(default)]
    pub pipelines: Option<Vec<PlannedPipeline>>,
    /// What is optimised, with `pipelines`; default `hardware_then_accuracy`.
    #[serde(default)]
    pub objective: Option<ObjectiveSpec>,
    /// On what, with `pipelines`; default: the devices of live agents, or all registered types if there is none.
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
    /// Also find the replicas for other loads, from the demand over so many to so many times it, 1 to 100: agents then follow them
    /// instead of InferLine's tuner; default: not.
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

/// A plan: what was asked, how far it is, what came out.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct PlanDocument {
    /// Its identifier.
    pub id: Uuid,
    /// `queued`, `solving`, `succeeded`, `infeasible`, `failed` or `cancelled`.
    pub state: String,
    /// When it was asked for.
    pub created_at: DateTime<Utc>,
    /// When a worker began.
    pub started_at: Option<DateTime<Utc>>,
    /// When it was over.
    pub finished_at: Option<DateTime<Utc>>,
    /// Why it failed.
    pub error: Option<String>,
    /// How far the search is, while it is being solved: what is searched for (`goal`), the best value so far and the bound that
    /// nothing can beat, either null as long as there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub progress: Option<Value>,
    /// How it is solved.
    pub options: Value,
    /// The problem file; left out in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<Value>,
    /// The plan file, once there is one; left out in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<Value>,
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
            problem: Some(row.problem),
            plan: row.plan,
        }
    }
}

impl PlanDocument {
    fn is_over(&self) -> bool {
        !matches!(self.state.as_str(), "queued" | "solving")
    }
}

/// Routes of this resource.
pub fn configure(config: &mut web::ServiceConfig) {
    config
        .service(web::resource("/v1/plans").route(web::get().to(list)).route(web::post().to(post)))
        .service(web::resource("/v1/plans/{id}").route(web::get().to(get)).route(web::delete().to(delete)));
}

/// All plans, the newest first, without problem and plan file.
#[utoipa::path(get, path = "/v1/plans", tag = "plans", responses((status = 200, body = [PlanDocument])))]
pub async fn list(app: web::Data<App>) -> Answer {
    let rows = rows::list(&mut *app.pool.acquire().await?).await?;
    let short = |row: PlanRow| PlanDocument { problem: None, plan: None, ..row.into() };
    Ok(HttpResponse::Ok().json(rows.into_iter().map(short).collect::<Vec<_>>()))
}

/// Asks for a plan. With `Prefer: wait=N` the answer waits up to N seconds for it. That no plan exists is an answer like
/// another: state `infeasible`, and the plan file says why.
#[utoipa::path(post, path = "/v1/plans", tag = "plans", request_body = PlanRequest,
    params(("Prefer" = Option<String>, Header, description = "wait=N: wait up to N seconds"),
        ("Idempotency-Key" = Option<String>, Header, description = "the same key and body again give the same plan")),
    responses((status = 202, body = PlanDocument, headers(("Location" = String))), (status = 200, body = PlanDocument),
        (status = 400, body = Refusal), (status = 422, body = Refusal)))]
pub async fn post(app: web::Data<App>, request: HttpRequest, bytes: web::Bytes) -> Answer {
    let asked: PlanRequest = body::value(body::tree(&bytes)?)?;
    let options = options(&asked)?;
    let key = idempotency_key(&request, &bytes)?;
    let mut tx = app.pool.begin().await?;
    let known = already_asked(&mut tx, key.as_ref()).await?;
    let id = match known {
        Some(id) => id,
        None => enqueue(&mut tx, asked, &options, key).await?,
    };
    tx.commit().await?;
    app.job_enqueued.notify_one();
    let wait = wait(&request);
    let document = wait_for(&app, id, wait).await?;
    // Who does not wait is answered in the same way however quick the planner was.
    let is_answered = document.is_over() && (known.is_some() || !wait.is_zero());
    let mut response = if is_answered { HttpResponse::Ok() } else { HttpResponse::Accepted() };
    Ok(response.insert_header((header::LOCATION, format!("/v1/plans/{id}"))).json(document))
}

/// The client's key (header `Idempotency-Key`) with the digest of its request.
fn idempotency_key(request: &HttpRequest, bytes: &[u8]) -> Result<Option<(String, String)>, Refusal> {
    let Some(key) = request.headers().get("idempotency-key") else { return Ok(None) };
    let key = key.to_str().ok().filter(|k| !k.is_empty() && k.len() <= body::NAME_BYTES_MAX);
    let expected = || format!("Idempotency-Key: expected 1 to {} characters", body::NAME_BYTES_MAX);
    let key = key.ok_or_else(|| Refusal::new(StatusCode::BAD_REQUEST, expected()))?;
    Ok(Some((key.to_string(), Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect())))
}

/// The plan that was asked for under this key before.
async fn already_asked(db: &mut store::PgConnection, key: Option<&(String, String)>) -> Result<Option<Uuid>, Refusal> {
    let Some((key, request)) = key else { return Ok(None) };
    match rows::known_key(db, key).await? {
        Some((before, plan)) if before == *request => Ok(Some(plan)),
        Some(_) => {
            let detail = format!("Idempotency-Key {key} was used for another request");
            Err(Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, detail))
        }
        None => Ok(None),
    }
}

async fn enqueue(
    db: &mut store::PgConnection,
    asked: PlanRequest,
    options: &PlanOptions,
    key: Option<(String, String)>,
) -> Result<Uuid, Refusal> {
    if let Some(trace) = options.trace
        && store::traces::get(db, trace).await?.is_none()
    {
        return Err(Refusal::value("/trace", format!("there is no trace {trace}")));
    }
    let problem = problem(db, asked).await?;
    let (id, at) = (Uuid::now_v7(), now());
    rows::insert(db, id, &problem, &serde_json::to_value(options).expect("options are JSON"), at).await?;
    store::jobs::enqueue(db, id, options.is_long()).await?;
    if let Some((key, request)) = key {
        rows::remember_key(db, &key, &request, id, at).await?;
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
        Some((pointer, detail)) => Err(Refusal::value(pointer, detail)),
        None => Ok(options),
    }
}

/// The problem document that is asked for, valid.
async fn problem(db: &mut store::PgConnection, asked: PlanRequest) -> Result<Value, Refusal> {
    match (asked.problem, asked.pipelines) {
        (Some(problem), None) => {
            if asked.objective.is_some() || asked.hardware.is_some() {
                return Err(Refusal::value("/problem", "a problem brings its own objective and hardware"));
            }
            documents::problem(&problem).map_err(|bad| Refusal::from(bad).below("/problem"))?;
            Ok(problem)
        }
        (None, Some(pipelines)) => {
            let objective = asked.objective.unwrap_or_else(|| ObjectiveSpec {
                mode: "hardware_then_accuracy".into(),
                latency_rule: None,
                budget_per_hour: None,
            });
            let hardware = match asked.hardware {
                Some(hardware) => hardware,
                None => available_hardware(db).await?,
            };
            if hardware.is_empty() {
                return Err(Refusal::value("/hardware", "no agent is live and no hardware type is registered"));
            }
            let specs = specs(db, pipelines).await?;
            let document = documents::problem_document(objective, hardware, specs)?;
            documents::problem(&document)?;
            Ok(document)
        }
        _ => Err(Refusal::value("", "expected either problem or pipelines")),
    }
}

async fn available_hardware(db: &mut store::PgConnection) -> Result<Vec<HardwareSpec>, Refusal> {
    let counts = Fleet::new(store::agents::list(db).await?).counts();
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

async fn specs(
    db: &mut store::PgConnection,
    pipelines: Vec<PlannedPipeline>,
) -> Result<Vec<apportion_wire::PipelineSpec>, Refusal> {
    let mut specs = Vec::with_capacity(pipelines.len());
    for (i, planned) in pipelines.into_iter().enumerate() {
        let row = store::pipelines::get(db, &planned.name).await?;
        let missing =
            || Refusal::value(format!("/pipelines/{i}/name"), format!("{}: expected a registered pipeline", planned.name));
        let mut spec = documents::measured(&row.ok_or_else(missing)?)?;
        spec.demand_qps = planned.demand_qps.unwrap_or(spec.demand_qps);
        specs.push(spec);
    }
    Ok(specs)
}

/// How long the client would rather wait than come back (RFC 7240).
fn wait(request: &HttpRequest) -> Duration {
    let values = request.headers().get_all("prefer").filter_map(|v| v.to_str().ok());
    let seconds =
        values.flat_map(|v| v.split([',', ';'])).find_map(|p| p.trim().strip_prefix("wait=")?.trim().parse().ok());
    seconds.map_or(Duration::ZERO, |s: u64| Duration::from_secs(s).min(WAIT_MAX))
}

async fn wait_for(app: &App, id: Uuid, wait: Duration) -> Result<PlanDocument, Refusal> {
    let begin = Instant::now();
    while !wait.is_zero() && begin.elapsed() < wait && !app.is_stopping() {
        let state = rows::state(&mut *app.pool.acquire().await?, id).await?;
        if !matches!(state.as_deref(), Some("queued" | "solving")) {
            break;
        }
        tokio::time::sleep(WAIT_POLL).await;
    }
    read(app, id).await
}

async fn read(app: &App, id: Uuid) -> Result<PlanDocument, Refusal> {
    let row = rows::get(&mut *app.pool.acquire().await?, id).await?;
    row.map(PlanDocument::from).ok_or_else(|| Refusal::not_found(format!("plan {id}")))
}

/// One plan. `Prefer: wait=N` waits for it as when asking for one.
#[utoipa::path(get, path = "/v1/plans/{id}", tag = "plans", params(("id" = Uuid, Path),
        ("Prefer" = Option<String>, Header, description = "wait=N: wait up to N seconds")),
    responses((status = 200, body = PlanDocument), (status = 404, body = Refusal)))]
pub async fn get(app: web::Data<App>, id: web::Path<Uuid>, request: HttpRequest) -> Answer {
    Ok(HttpResponse::Ok().json(wait_for(&app, *id, wait(&request)).await?))
}

/// Cancels a plan that is not done yet.
#[utoipa::path(delete, path = "/v1/plans/{id}", tag = "plans", params(("id" = Uuid, Path)),
    responses((status = 202, body = PlanDocument, description = "it stops soon, or has stopped"), (status = 404, body = Refusal),
        (status = 409, body = Refusal, description = "it is over already")))]
pub async fn delete(app: web::Data<App>, id: web::Path<Uuid>) -> Answer {
    let mut tx = app.pool.begin().await?;
    let open = rows::cancel(&mut tx, *id, now()).await?;
    tx.commit().await?;
    let document = read(&app, *id).await?;
    if open {
        return Ok(HttpResponse::Accepted().json(document));
    }
    Err(Refusal::new(StatusCode::CONFLICT, format!("plan {id} is {} already", document.state)))
}
