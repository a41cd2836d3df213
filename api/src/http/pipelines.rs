//! `/v1/pipelines`: registered pipelines and their live arrivals.

use super::access::Principal;
use super::body::{self, Document, IfMatch, IfNoneMatch, Name, off_loop};
use super::paging::{ListPage, PageQuery};
use super::refusal::{HandlerResult, Refusal, RefusalReply};
use crate::act::{slot_backends, sources};
use crate::app::{App, now};
use crate::decide::projects::{DEFAULT_PROJECT, project_of};
use crate::store::owners::{self, OwnedKind, Owner};
use crate::store::{Condition, Deletion, PgConnection, arrivals, pipelines as rows, projects, schedules};
use actix_web::http::StatusCode;
use actix_web::{HttpResponse, web};
use apportion_wire::{BadInput, PipelineSpec, ReplanMode};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// A pipeline in a list.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct PipelineSummary {
    /// Its name.
    pub name: String,
    /// Its version: the number of its replacements.
    pub version: i64,
    /// Whether profiles of it are registered.
    pub profiled: bool,
    /// How it is replanned.
    pub replan: ReplanMode,
}

/// The pipelines that a client asks for.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PipelinesQuery {
    /// Only pipelines whose names begin with this text.
    pub prefix: Option<String>,
    /// Only pipelines of this project. Those that name none are of `default`.
    pub project: Option<String>,
}

/// Offered load and answers of one second.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ArrivalsSecond {
    /// Unix time.
    pub second: i64,
    /// Queries that arrived, shed ones included.
    pub offered: i64,
    /// Requests answered in time.
    pub ok: i64,
    /// Requests answered late.
    pub late: i64,
    /// Requests dropped.
    pub dropped: i64,
    /// Requests that failed.
    pub failed: i64,
}

/// The seconds that a client asks for.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ArrivalsQuery {
    /// How many seconds back; default 60.
    #[param(minimum = 1, maximum = 86_400)]
    pub seconds: Option<i64>,
}

/// Most seconds of arrivals in one answer.
pub(super) const ARRIVALS_SECONDS_MAX: i64 = 86_400;

/// The routes of this resource.
pub fn configure(config: &mut web::ServiceConfig) {
    config
        .service(web::resource("/v1/pipelines").route(web::get().to(list)))
        .service(
            web::resource("/v1/pipelines/{name}")
                .route(web::get().to(get))
                .route(web::put().to(put))
                .route(web::delete().to(delete)),
        )
        .service(web::resource("/v1/pipelines/{name}/arrivals").route(web::get().to(live_arrivals)));
}

/// All pipelines, by name.
#[utoipa::path(get, path = "/v1/pipelines", tag = "pipelines", operation_id = "list_pipelines",
    params(PipelinesQuery, PageQuery),
    responses((status = 200, description = "The pipelines.", body = [PipelineSummary]), RefusalReply<404>))]
pub async fn list(app: web::Data<App>, client: Principal, page: ListPage<String, PipelinesQuery>) -> HandlerResult {
    let project = client.listed_project(page.filter.project.clone())?;
    let filter = rows::PipelineFilter { prefix: page.filter.prefix.as_deref(), project: project.as_deref() };
    let mut db = app.pool.acquire().await?;
    let rows = rows::summaries(&mut db, filter, page.after.as_deref(), page.rows_max()).await?;
    let summary = |row: rows::PipelineSummaryRow| PipelineSummary {
        profiled: row.profiled,
        replan: row.replan.and_then(|mode| ReplanMode::try_from(mode).ok()).unwrap_or(ReplanMode::Off),
        version: row.version,
        name: row.name,
    };
    Ok(page.answer(rows, |row| row.name.clone(), summary))
}

/// One pipeline as it was registered.
#[utoipa::path(get, path = "/v1/pipelines/{name}", tag = "pipelines", operation_id = "get_pipeline", params(Name),
    responses((status = 200, description = "The pipeline.", body = PipelineSpec,
        headers(("ETag" = String, description = "Its version."))), RefusalReply<404>))]
pub async fn get(app: web::Data<App>, Name { name }: Name) -> HandlerResult {
    let row = rows::get(&mut *app.pool.acquire().await?, &name).await?;
    let row = row.ok_or_else(|| Refusal::not_found(format!("pipeline {name}")))?;
    Ok(HttpResponse::Ok().insert_header(body::version_tag(row.version)).json(row.spec))
}

/// Registers a pipeline, or replaces it; its profiles stay. The body may leave out the name.
#[utoipa::path(put, path = "/v1/pipelines/{name}", tag = "pipelines", operation_id = "put_pipeline",
    params(Name, IfMatch, IfNoneMatch),
    request_body(content = PipelineSpec, description = "The pipeline."),
    responses(
        (status = 200, description = "It was replaced.", body = PipelineSpec,
            headers(("ETag" = String, description = "Its version."))),
        (status = 201, description = "It is new.", body = PipelineSpec,
            headers(("ETag" = String, description = "Its version."))),
        RefusalReply<412>))]
pub async fn put(
    app: web::Data<App>,
    client: Principal,
    Name { name }: Name,
    condition: Condition,
    document: Document,
) -> HandlerResult {
    let mut tree = document.tree;
    if let Some(object) = tree.as_object_mut() {
        object.entry("name").or_insert_with(|| name.as_str().into());
    }
    let read = move || -> Result<PipelineSpec, BadInput> {
        let spec = apportion_wire::pipeline_spec_from_tree("pipeline", tree)?;
        spec.check_lists().map_err(|e| BadInput::refused("pipeline", e))?;
        Ok(spec)
    };
    let spec = off_loop(read).await??;
    if spec.name != name {
        return Err(Refusal::value("/name", format!("{}: expected {name}, as in the path", spec.name)));
    }
    check_workloads(&app, &spec)?;
    check_sources(&app, &spec).await?;
    let document = serde_json::to_value(&spec).expect("a spec is JSON");
    let mut tx = app.pool.begin().await?;
    check_project(&mut tx, &spec).await?;
    let owner = owner_for(&mut tx, &client, &spec).await?;
    let version = rows::put(&mut tx, &name, &document, &condition, now()).await?;
    if owner == Owner::Missing && version.is_some_and(|version| version > 1) {
        return Err(of_another_project(&name));
    }
    if let Some(refusal) = slot_backends::refuse_pipeline(&mut tx, &spec).await?.filter(|_| version.is_some()) {
        return Err(refusal.into());
    }
    tx.commit().await?;
    Ok(body::written(version, &format!("pipeline {name}"))?.json(document))
}

/// Refuses a project that does not exist: its quota would not hold. The project stays until the pipeline is stored.
async fn check_project(tx: &mut PgConnection, spec: &PipelineSpec) -> Result<(), Refusal> {
    let project = project_of(spec);
    if project == DEFAULT_PROJECT || projects::share(tx, project).await? {
        return Ok(());
    }
    let expected = format!("expected a project (PUT /v1/projects/{project} makes it), or no such member");
    Err(Refusal::value("/replan/project", format!("{project:?}: {expected}")))
}

/// The owner of the pipeline before this write, as far as it matters to the client. A client of one project writes neither
/// a pipeline of another one, nor one for another.
async fn owner_for(tx: &mut PgConnection, client: &Principal, spec: &PipelineSpec) -> Result<Owner, Refusal> {
    let Some(project) = &client.project else { return Ok(Owner::Everybody) };
    if project_of(spec) != project {
        let detail = format!("{:?}: {} writes for project {project:?} alone", project_of(spec), client.name);
        return Err(Refusal::value("/replan/project", detail));
    }
    // Locked, so that it changes its project only before or after this write.
    rows::lock_row(tx, &spec.name).await?;
    match owners::owner_of(tx, OwnedKind::Pipeline, &spec.name).await? {
        Owner::Project(own) if own != *project => Err(of_another_project(&spec.name)),
        owner => Ok(owner),
    }
}

fn of_another_project(name: &str) -> Refusal {
    Refusal::new(StatusCode::FORBIDDEN, format!("pipeline {name} is of another project"))
}

/// Refuses workloads that this service never scales.
fn check_workloads(app: &App, spec: &PipelineSpec) -> Result<(), Refusal> {
    let has_workloads = spec.replan.as_ref().is_some_and(|replan| replan.kubernetes.is_some());
    match has_workloads && app.kubernetes.is_none() {
        true => {
            let expected = "workloads: expected `apportion serve --kubernetes`, or no such member";
            Err(Refusal::value("/replan/kubernetes", expected))
        }
        false => Ok(()),
    }
}

/// Refuses sources that will never say anything. A server that is away now may be back later.
async fn check_sources(app: &App, spec: &PipelineSpec) -> Result<(), Refusal> {
    let Some(demand) = sources::source_of(spec) else { return Ok(()) };
    let refused = |at: &str, error: &sources::FactSourceError| Refusal::value(at, error.to_string());
    if let Some(query) = &demand.prometheus {
        let asked = sources::ask_demand(app, query).await;
        let never = asked.err().filter(|error| !error.is_temporary());
        never.map_or(Ok(()), |error| Err(refused("/replan/demand/prometheus", &error)))?;
    }
    let deployed = spec.replan.as_ref().and_then(|replan| replan.deployed.as_ref()?.prometheus.as_ref());
    if let Some(query) = deployed {
        let asked = sources::ask_series(app, query).await;
        let never = asked.err().filter(|error| !error.is_temporary());
        never.map_or(Ok(()), |error| Err(refused("/replan/deployed/prometheus", &error)))?;
    }
    Ok(())
}

/// Deletes a pipeline with its profiles, its hold, and the load that agents reported. A deployed pipeline stays: put a
/// target without it first. One with schedules stays too: delete them first.
#[utoipa::path(delete, path = "/v1/pipelines/{name}", tag = "pipelines", operation_id = "delete_pipeline",
    params(Name, IfMatch),
    responses((status = 204, description = "It is gone."), RefusalReply<404>, RefusalReply<409>, RefusalReply<412>))]
pub async fn delete(app: web::Data<App>, Name { name }: Name, condition: Condition) -> HandlerResult {
    let what = format!("pipeline {name}");
    let mut tx = app.pool.begin().await?;
    // From here on no new target or schedule can have it. One that was being made is committed, and the next statements see
    // it.
    if !rows::lock_row(&mut tx, &name).await? {
        return Err(Refusal::not_found(&what));
    }
    if rows::is_deployed(&mut tx, &name).await? {
        let detail = format!("{what} is deployed: put a target without its plan first (PUT /v1/target)");
        return Err(Refusal::new(StatusCode::CONFLICT, detail));
    }
    if let Some(schedule) = schedules::first_of(&mut tx, &name).await? {
        let detail = format!("{what} has schedules, {schedule} among them: delete them first");
        return Err(Refusal::new(StatusCode::CONFLICT, detail));
    }
    let deleted = rows::delete(&mut tx, &name, &condition).await?;
    if deleted == Deletion::Done {
        rows::forget_reports(&mut tx, &name).await?;
    }
    tx.commit().await?;
    body::deleted(deleted, &what)
}

/// Offered queries and answers by second, as agents reported them. Seconds without any are left out.
#[utoipa::path(get, path = "/v1/pipelines/{name}/arrivals", tag = "pipelines", operation_id = "list_arrivals",
    params(Name, ArrivalsQuery),
    responses((status = 200, description = "The seconds that had any, the oldest first.", body = [ArrivalsSecond]),
        RefusalReply<404>))]
pub async fn live_arrivals(app: web::Data<App>, Name { name }: Name, query: web::Query<ArrivalsQuery>) -> HandlerResult {
    let seconds = query.seconds.unwrap_or(60);
    if !(1..=ARRIVALS_SECONDS_MAX).contains(&seconds) {
        return Err(Refusal::value("seconds", format!("{seconds}: expected 1 to {ARRIVALS_SECONDS_MAX}")));
    }
    let mut db = app.pool.acquire().await?;
    rows::get(&mut db, &name).await?.ok_or_else(|| Refusal::not_found(format!("pipeline {name}")))?;
    let to = now().timestamp() + 1;
    let rows = arrivals::between(&mut db, Some(&name), to - seconds, to).await?;
    let second = |r: arrivals::ArrivalsRow| ArrivalsSecond {
        second: r.second,
        offered: r.offered,
        ok: r.ok,
        late: r.late,
        dropped: r.dropped,
        failed: r.failed,
    };
    Ok(HttpResponse::Ok().json(rows.into_iter().map(second).collect::<Vec<_>>()))
}
