//! `/v1/profile-jobs`: agents measure the variants of a pipeline.

use super::access::Principal;
use super::analyses::{AnalysisPath, ReadyCount, refuse_first, refused_option};
use super::body::{self, Document};
use super::idempotency::{IdempotencyHeader, IdempotencyKey};
use super::paging::{ListPage, PageQuery};
use super::refusal::{HandlerResult, Refusal, RefusalReply};
use crate::app::{App, now};
use crate::decide::profile_job::{PROFILE_JOBS_OPEN_MAX, ProfileJobRequest};
use crate::documents;
use crate::store::device_claims::{self, ClaimRow};
use crate::store::idempotency::KeyedRequest;
use crate::store::profile_jobs::{self as rows, NewProfileJob, ProfileJobFilter, ProfileJobRow, ProfilePointRow};
use crate::store::{PgConnection, agents, hardware, pipelines};
use actix_web::http::{StatusCode, header};
use actix_web::{HttpRequest, HttpResponse, web};
use apportion_wire::{AgentState, MeasuredRow, ProfileJobState};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

/// A profile job in a list.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ProfileJobSummary {
    /// Its identifier.
    pub id: Uuid,
    /// The pipeline that it measures.
    pub pipeline: String,
    /// Its state.
    pub state: ProfileJobState,
    /// Who asked for it, or which drift.
    pub reason: String,
    /// The reason if something could not be measured.
    pub error: Option<String>,
    /// When it was asked for.
    pub created_at: DateTime<Utc>,
    /// When the first device was claimed for it.
    pub started_at: Option<DateTime<Utc>>,
    /// When it ended.
    pub finished_at: Option<DateTime<Utc>>,
    /// Complete variants, each on one hardware type.
    pub progress: ReadyCount,
    /// The request with its defaults; all variants and hardware types have their names.
    pub request: ProfileJobRequest,
}

/// A profile job with what it measured.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ProfileJobDocument {
    /// Its state, and its request.
    #[serde(flatten)]
    pub summary: ProfileJobSummary,
    /// The devices that measure now.
    pub measuring: Vec<MeasuringDevice>,
    /// What was measured, by hardware type, task, variant and batch size.
    pub points: Vec<ProfileJobPoint>,
}

/// A device that measures.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct MeasuringDevice {
    /// Its hardware type.
    pub hardware: String,
    /// The agent's number.
    pub agent: i64,
    /// The agent's device.
    pub device: i32,
    /// Since when no replica is placed there.
    pub since: DateTime<Utc>,
    /// The task that it measures; null between two orders.
    pub task: Option<String>,
    /// The variant.
    pub variant: Option<String>,
    /// The batch size.
    pub batch: Option<i32>,
}

/// What was measured of one batch size.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ProfileJobPoint {
    /// The hardware type.
    pub hardware: String,
    /// The task.
    pub task: String,
    /// The variant.
    pub variant: String,
    /// The batch size.
    pub batch: i32,
    /// The row of the profile; null if it could not be measured.
    pub measured: Option<MeasuredRow>,
    /// Why it could not be measured.
    pub error: Option<String>,
}

/// The profile jobs that a client asks for.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ProfileJobsQuery {
    /// Only jobs of this pipeline.
    #[param(required = false, value_type = String)]
    pub pipeline: Option<String>,
    /// Only jobs in this state.
    #[param(required = false, value_type = ProfileJobState)]
    pub state: Option<ProfileJobState>,
}

impl From<ClaimRow> for MeasuringDevice {
    fn from(row: ClaimRow) -> Self {
        let ClaimRow { hardware, agent, device, task, variant, batch, claimed_at, .. } = row;
        Self { hardware, agent, device, since: claimed_at, task, variant, batch }
    }
}

impl From<ProfilePointRow> for ProfileJobPoint {
    fn from(row: ProfilePointRow) -> Self {
        let ProfilePointRow { hardware, task, variant, batch, measured, error } = row;
        let measured = measured.and_then(|document| serde_json::from_value(document).ok());
        Self { hardware, task, variant, batch, measured, error }
    }
}

/// The summary of a row. A row of another release that this one cannot read has none, and says so in the log.
fn summary(row: ProfileJobRow) -> Option<ProfileJobSummary> {
    let unreadable = |error: &serde_json::Error| tracing::error!(job = %row.id, %error, "the profile job cannot be read");
    let request = serde_json::from_value(row.request.clone()).inspect_err(unreadable).ok()?;
    let progress = ReadyCount { ready: row.ready, total: row.total };
    let ProfileJobRow { id, pipeline, state, reason, error, created_at, started_at, finished_at, .. } = row;
    Some(ProfileJobSummary { id, pipeline, state, reason, error, created_at, started_at, finished_at, progress, request })
}

fn missing(id: Uuid) -> Refusal {
    Refusal::not_found(format!("profile job {id}"))
}

/// The document of a job.
async fn document(db: &mut PgConnection, id: Uuid) -> Result<ProfileJobDocument, Refusal> {
    let summary = rows::get(db, id).await?.and_then(summary).ok_or_else(|| missing(id))?;
    let measuring = device_claims::of_job(db, id).await?.into_iter().map(MeasuringDevice::from).collect();
    let points = rows::points(db, id).await?.into_iter().map(ProfileJobPoint::from).collect();
    Ok(ProfileJobDocument { summary, measuring, points })
}

/// The routes of this resource.
pub fn configure(config: &mut web::ServiceConfig) {
    config
        .service(web::resource("/v1/profile-jobs").route(web::get().to(list)).route(web::post().to(post)))
        .service(web::resource("/v1/profile-jobs/{id}").route(web::get().to(get)).route(web::delete().to(delete)))
        .service(web::resource("/v1/profile-jobs/{id}/cancel").route(web::post().to(cancel)));
}

/// All profile jobs, the newest first, without what they measured.
#[utoipa::path(get, path = "/v1/profile-jobs", tag = "pipelines", operation_id = "list_profile_jobs",
    params(ProfileJobsQuery, PageQuery),
    responses((status = 200, description = "The jobs.", body = [ProfileJobSummary])))]
pub async fn list(app: web::Data<App>, page: ListPage<Uuid, ProfileJobsQuery>) -> HandlerResult {
    let filter = ProfileJobFilter { pipeline: page.filter.pipeline.as_deref(), state: page.filter.state };
    let mut rows = rows::list(&mut *app.pool.acquire().await?, filter, page.after, page.rows_max()).await?;
    let next = page.cut(&mut rows, |row| row.id);
    Ok(next.answer(&rows.into_iter().filter_map(summary).collect::<Vec<_>>()))
}

/// Asks agents to measure variants of a pipeline on devices without replicas. Each variant that is complete on a hardware
/// type replaces its rows of the pipeline's profile; all other rows stay.
#[utoipa::path(post, path = "/v1/profile-jobs", tag = "pipelines", operation_id = "post_profile_job",
    params(IdempotencyHeader),
    request_body(content = ProfileJobRequest, description = "What to measure, and for how long."),
    responses((status = 202, description = "It is queued.", body = ProfileJobDocument,
        headers(("Location" = String, description = "Where it is."))), RefusalReply<409>))]
pub async fn post(app: web::Data<App>, request: HttpRequest, client: Principal, sent: Document) -> HandlerResult {
    let key = IdempotencyKey::read(&request, KeyedRequest::ProfileJob, "", &sent.bytes)?;
    let mut asked: ProfileJobRequest = body::value(sent.tree)?;
    refuse_first(asked.refused())?;
    let mut tx = app.pool.begin().await?;
    if let Some(key) = &key
        && let Some(id) = key.already_asked(&mut tx).await?
    {
        return accepted(&document(&mut tx, id).await?);
    }
    resolve(&mut tx, &mut asked).await?;
    rows::lock(&mut tx).await?;
    if rows::count_open(&mut tx).await? >= PROFILE_JOBS_OPEN_MAX {
        let detail = format!("{PROFILE_JOBS_OPEN_MAX} profile jobs wait or run already: wait for one, or cancel one");
        return Err(Refusal::new(StatusCode::CONFLICT, detail));
    }
    let (id, at) = (Uuid::now_v7(), now());
    let new = NewProfileJob {
        id,
        pipeline: asked.pipeline.clone(),
        total: i32::try_from(asked.parts()).unwrap_or(i32::MAX),
        request: serde_json::to_value(&asked).expect("a request is JSON"),
        reason: format!("asked for by {}", client.name),
        created_at: at,
    };
    rows::insert(&mut tx, &new).await?;
    if let Some(key) = key {
        key.remember(&mut tx, id, at).await?;
    }
    let document = document(&mut tx, id).await?;
    tx.commit().await?;
    app.fleet_changed.notify_one();
    accepted(&document)
}

fn accepted(document: &ProfileJobDocument) -> HandlerResult {
    let location = (header::LOCATION, format!("/v1/profile-jobs/{}", document.summary.id));
    Ok(HttpResponse::Accepted().insert_header(location).json(document))
}

/// Names the variants and the hardware types of a request.
async fn resolve(db: &mut PgConnection, asked: &mut ProfileJobRequest) -> Result<(), Refusal> {
    let name = asked.pipeline.clone();
    let unknown = || Refusal::value("/pipeline", format!("{name:?}: expected a registered pipeline"));
    let row = pipelines::share(db, &name).await?.ok_or_else(unknown)?;
    let measured = documents::measured(&row)?;
    asked.resolve_variants(&measured).map_err(refused_option)?;
    // A profile that plans can use takes no rows without an accuracy. Another one may get its accuracies later.
    if documents::facts(&measured).is_ok() {
        asked.check_accuracies(&measured).map_err(refused_option)?;
    }
    let live = agents::list(db).await?.into_iter().filter(|agent| agent.state == AgentState::Live);
    let live: BTreeSet<String> = live.map(|agent| agent.hardware).collect();
    if asked.hardware.is_empty() {
        if live.is_empty() {
            return Err(Refusal::new(
                StatusCode::CONFLICT,
                "no agent is live: start one, or name hardware types to wait for",
            ));
        }
        asked.hardware = live.into_iter().collect();
        return Ok(());
    }
    let registered = hardware::list(db).await?.into_iter().map(|row| row.name);
    let known: BTreeSet<String> = live.into_iter().chain(registered).collect();
    let mut seen = BTreeSet::new();
    for (i, name) in asked.hardware.iter().enumerate() {
        if !known.contains(name) || !seen.insert(name) {
            let types = known.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            let detail = format!("{name:?}: expected one of the hardware types {types}, each once");
            return Err(Refusal::value(format!("/hardware/{i}"), detail));
        }
    }
    Ok(())
}

/// One profile job, with what it measured so far.
#[utoipa::path(get, path = "/v1/profile-jobs/{id}", tag = "pipelines", operation_id = "get_profile_job",
    params(AnalysisPath),
    responses((status = 200, description = "The job.", body = ProfileJobDocument), RefusalReply<404>))]
pub async fn get(app: web::Data<App>, path: web::Path<AnalysisPath>) -> HandlerResult {
    Ok(HttpResponse::Ok().json(document(&mut *app.pool.acquire().await?, path.id).await?))
}

/// Cancels a profile job that is not over. Its devices are free at once. Variants that were complete stay in the profile.
#[utoipa::path(post, path = "/v1/profile-jobs/{id}/cancel", tag = "pipelines", operation_id = "cancel_profile_job",
    params(AnalysisPath),
    responses((status = 202, description = "It is cancelled.", body = ProfileJobDocument),
        RefusalReply<404>, RefusalReply<409>))]
pub async fn cancel(app: web::Data<App>, path: web::Path<AnalysisPath>) -> HandlerResult {
    let mut tx = app.pool.begin().await?;
    let row = rows::lock_job(&mut tx, path.id).await?.ok_or_else(|| missing(path.id))?;
    if !rows::finish(&mut tx, path.id, ProfileJobState::Cancelled, None, now()).await? {
        let detail = format!("profile job {} is {} already", path.id, row.state);
        return Err(Refusal::new(StatusCode::CONFLICT, detail));
    }
    let document = document(&mut tx, path.id).await?;
    tx.commit().await?;
    wake(&app);
    Ok(HttpResponse::Accepted().json(document))
}

/// Deletes a profile job in any state. What it has put into the profile stays.
#[utoipa::path(delete, path = "/v1/profile-jobs/{id}", tag = "pipelines", operation_id = "delete_profile_job",
    params(AnalysisPath), responses((status = 204, description = "It is gone."), RefusalReply<404>))]
pub async fn delete(app: web::Data<App>, path: web::Path<AnalysisPath>) -> HandlerResult {
    let mut tx = app.pool.begin().await?;
    rows::lock_job(&mut tx, path.id).await?.ok_or_else(|| missing(path.id))?;
    rows::delete(&mut tx, path.id).await?;
    tx.commit().await?;
    wake(&app);
    Ok(HttpResponse::NoContent().finish())
}

/// Tells this process that a claim may have ended.
fn wake(app: &App) {
    app.measurements.wake();
    app.fleet_changed.notify_one();
}
