//! `/v1/schedules`: times at which pipelines are planned again, or at which holds begin.

use super::access::Principal;
use super::body::{self, Document, IfMatch, IfNoneMatch, Name, off_loop};
use super::holds::check_reason;
use super::paging::{ListPage, PageQuery};
use super::refusal::{HandlerResult, Refusal, RefusalReply};
use crate::app::{App, now};
use crate::decide::schedule::{ScheduleError, ScheduleSpec, Timing};
use crate::store::owners::{self, OwnedKind, Owner};
use crate::store::schedules::{self as rows, NewSchedule, ScheduleFilter, ScheduleRow};
use crate::store::{Condition, PgConnection, pipelines};
use actix_web::http::StatusCode;
use actix_web::{HttpResponse, web};
use apportion_wire::FiringState;
use chrono::{DateTime, FixedOffset, Utc};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Most schedules of a service.
pub const SCHEDULES_MAX: i64 = 1_000;
/// Due times that an answer shows.
const NEXT_SHOWN: usize = 5;

/// A schedule with its due times.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ScheduleDocument {
    /// Its name.
    pub name: String,
    /// When it fires, and its effect.
    pub spec: ScheduleSpec,
    /// Its version: the number of its replacements.
    pub version: i64,
    /// Who wrote it.
    pub made_by: String,
    /// When it was written.
    pub updated_at: DateTime<Utc>,
    /// The next five due times, by the clocks of its time zone.
    pub next: Vec<DateTime<FixedOffset>>,
    /// Its last firing; null before the first.
    pub last: Option<ScheduleFiring>,
}

/// A firing of a schedule.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ScheduleFiring {
    /// When it was due.
    pub due_at: DateTime<Utc>,
    /// When it was made. It is late if no process led at the due time.
    pub fired_at: DateTime<Utc>,
    /// Due times since the firing before it that got none.
    pub skipped: i32,
    /// Its state.
    pub state: FiringState,
    /// What came of it, for people.
    pub detail: String,
}

/// The schedules that a client asks for.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SchedulesQuery {
    /// Only schedules whose names begin with this text.
    pub prefix: Option<String>,
    /// Only schedules of this pipeline.
    pub pipeline: Option<String>,
    /// Only schedules of the pipelines of this project.
    pub project: Option<String>,
}

impl From<ScheduleError> for Refusal {
    fn from(error: ScheduleError) -> Self {
        Self::value(error.pointer(), error.to_string())
    }
}

/// The routes of this resource.
pub fn configure(config: &mut web::ServiceConfig) {
    config.service(web::resource("/v1/schedules").route(web::get().to(list))).service(
        web::resource("/v1/schedules/{name}")
            .route(web::get().to(get))
            .route(web::put().to(put))
            .route(web::delete().to(delete)),
    );
}

/// All schedules, by name.
#[utoipa::path(get, path = "/v1/schedules", tag = "fleet", operation_id = "list_schedules",
    params(SchedulesQuery, PageQuery),
    responses((status = 200, description = "The schedules.", body = [ScheduleDocument]), RefusalReply<404>))]
pub async fn list(app: web::Data<App>, client: Principal, page: ListPage<String, SchedulesQuery>) -> HandlerResult {
    let project = client.listed_project(page.filter.project.clone())?;
    let SchedulesQuery { prefix, pipeline, .. } = &page.filter;
    let filter = ScheduleFilter { prefix: prefix.as_deref(), pipeline: pipeline.as_deref(), project: project.as_deref() };
    let mut rows = rows::list(&mut *app.pool.acquire().await?, filter, page.after.as_deref(), page.rows_max()).await?;
    let next = page.cut(&mut rows, |row| row.name.clone());
    let documents = off_loop(move || rows.into_iter().filter_map(document).collect::<Vec<_>>()).await?;
    Ok(next.answer(&documents))
}

/// One schedule with its next due times and its last firing.
#[utoipa::path(get, path = "/v1/schedules/{name}", tag = "fleet", operation_id = "get_schedule", params(Name),
    responses((status = 200, description = "The schedule.", body = ScheduleDocument,
        headers(("ETag" = String, description = "Its version."))), RefusalReply<404>))]
pub async fn get(app: web::Data<App>, Name { name }: Name) -> HandlerResult {
    let found = read(&app, &name).await?;
    Ok(HttpResponse::Ok().insert_header(body::version_tag(found.version)).json(found))
}

async fn read(app: &App, name: &str) -> Result<ScheduleDocument, Refusal> {
    let row = rows::get(&mut *app.pool.acquire().await?, name).await?;
    row.and_then(document).ok_or_else(|| Refusal::not_found(format!("schedule {name}")))
}

/// The document of a row. A row of another release that this one cannot read has none, and says so in the log.
fn document(row: ScheduleRow) -> Option<ScheduleDocument> {
    let unreadable =
        |error: &serde_json::Error| tracing::error!(schedule = row.name, %error, "the schedule cannot be read");
    let spec: ScheduleSpec = serde_json::from_value(row.spec).inspect_err(unreadable).ok()?;
    let timing = spec.timing(row.updated_at).ok();
    let next = timing.filter(|_| row.next_at.is_some()).map_or_else(Vec::new, |timing| timing.upcoming(now(), NEXT_SHOWN));
    let last = row.last.and_then(|last| serde_json::from_value(last).ok());
    let ScheduleRow { name, version, made_by, updated_at, .. } = row;
    Some(ScheduleDocument { name, spec, version, made_by, updated_at, next, last })
}

/// Writes a schedule, or replaces it. Its first due time is after this moment.
#[utoipa::path(put, path = "/v1/schedules/{name}", tag = "fleet", operation_id = "put_schedule",
    params(Name, IfMatch, IfNoneMatch),
    request_body(content = ScheduleSpec, description = "The schedule."),
    responses(
        (status = 200, description = "It was replaced.", body = ScheduleDocument,
            headers(("ETag" = String, description = "Its version."))),
        (status = 201, description = "It is new.", body = ScheduleDocument,
            headers(("ETag" = String, description = "Its version."))),
        RefusalReply<409>, RefusalReply<412>))]
pub async fn put(
    app: web::Data<App>,
    Name { name }: Name,
    condition: Condition,
    client: Principal,
    document: Document,
) -> HandlerResult {
    let spec: ScheduleSpec = body::value(document.tree)?;
    if let Some(hold) = &spec.hold {
        check_reason("/hold/reason", &hold.reason)?;
    }
    let at = now();
    let checked = spec.clone();
    // A search for a date that never comes takes long.
    let next_at = off_loop(move || checked.timing(at).map(|timing: Timing| timing.next_after(at))).await??;
    let next_at = next_at.ok_or_else(|| Refusal::value("", "expected a due time that comes"))?;
    let mut tx = app.pool.begin().await?;
    rows::lock(&mut tx).await?;
    if let Some(project) = &client.project {
        check_project(&mut tx, project, &name, &spec).await?;
    }
    // The pipeline stays until the schedule is stored.
    if let Some(pipeline) = &spec.pipeline
        && pipelines::share(&mut tx, pipeline).await?.is_none()
    {
        return Err(Refusal::value("/pipeline", format!("{pipeline}: expected a registered pipeline")));
    }
    let document = serde_json::to_value(&spec).expect("a schedule is JSON");
    let new = NewSchedule { name: &name, spec: &document, made_by: &client.name, at, next_at };
    let version = rows::put(&mut tx, new, &condition).await?;
    let count = rows::count(&mut tx).await?;
    if count > SCHEDULES_MAX {
        let detail = format!("there are {SCHEDULES_MAX} schedules already: delete one first");
        return Err(Refusal::new(StatusCode::CONFLICT, detail));
    }
    if let (Some(project), Some(1)) = (&client.project, version) {
        check_share(&mut tx, project, SCHEDULES_MAX - (count - 1)).await?;
    }
    tx.commit().await?;
    let mut response = body::written(version, &format!("schedule {name}"))?;
    Ok(response.json(read(&app, &name).await?))
}

/// Refuses a new schedule if its project has more of them than places were left, so that another project finds a place.
async fn check_share(tx: &mut PgConnection, project: &str, free: i64) -> Result<(), Refusal> {
    let own = rows::count_of_project(tx, project).await?;
    if own <= free {
        return Ok(());
    }
    let detail = format!(
        "project {project} has {} schedules, and {free} places are left for all projects: delete one first",
        own - 1
    );
    Err(Refusal::new(StatusCode::CONFLICT, detail))
}

/// Refuses a schedule that a client of this project may not write: one for all pipelines or for another project's, and one
/// in the place of another project's.
async fn check_project(tx: &mut PgConnection, project: &str, name: &str, spec: &ScheduleSpec) -> Result<(), Refusal> {
    let owner = match &spec.pipeline {
        Some(pipeline) => owners::owner_of(tx, OwnedKind::Pipeline, pipeline).await?,
        None => Owner::Everybody,
    };
    if !owner.is_project(project) {
        return Err(Refusal::value("/pipeline", format!("expected a registered pipeline of project {project}")));
    }
    match owners::owner_of(tx, OwnedKind::Schedule, name).await? {
        Owner::Missing => Ok(()),
        owner if owner.is_project(project) => Ok(()),
        _ => Err(Refusal::new(StatusCode::FORBIDDEN, format!("schedule {name} is not of project {project}"))),
    }
}

/// Deletes a schedule and its firings. A hold that it began stays until its end.
#[utoipa::path(delete, path = "/v1/schedules/{name}", tag = "fleet", operation_id = "delete_schedule",
    params(Name, IfMatch),
    responses((status = 204, description = "It is gone."), RefusalReply<404>, RefusalReply<412>))]
pub async fn delete(app: web::Data<App>, Name { name }: Name, condition: Condition) -> HandlerResult {
    let deletion = rows::delete(&mut *app.pool.acquire().await?, &name, &condition).await?;
    body::deleted(deletion, &format!("schedule {name}"))
}
