//! What do simulations, frontiers and comparisons have in common? They run as jobs, and each has a list of its own.

use super::body::off_loop;
use super::idempotency::IdempotencyKey;
use super::paging::ListPage;
use super::refusal::{HandlerResult, Refusal};
use crate::app::{App, now};
use crate::documents;
use crate::store::analyses::{self as rows, AnalysisFilter, AnalysisRow, NewAnalysis};
use crate::store::jobs::{self, JobQueue, SolveTime};
use crate::store::{PgConnection, plans, traces};
use actix_web::http::{StatusCode, header};
use actix_web::{HttpRequest, HttpResponse};
use apportion_domain::{Invalid, Problem};
use apportion_wire::{AnalysisKind, AnalysisState, PlanState};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

/// Most analyses that wait or run at a time.
pub const ANALYSES_OPEN_MAX: i64 = 100;

/// How much of an analysis is ready.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
pub struct ReadyCount {
    /// Points of a frontier, planners of a comparison, or percent of a simulation.
    pub ready: i32,
    /// Of how many. The percentage of a simulation is an estimate.
    pub total: i32,
}

/// An analysis in a list.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct AnalysisSummary {
    /// Its identifier.
    pub id: Uuid,
    /// Its state.
    pub state: AnalysisState,
    /// The names of its pipelines.
    pub pipelines: Vec<String>,
    /// When a client asked for it.
    pub created_at: DateTime<Utc>,
    /// When a worker began to run it.
    pub started_at: Option<DateTime<Utc>>,
    /// When it ended.
    pub finished_at: Option<DateTime<Utc>>,
    /// The reason if it failed.
    pub error: Option<String>,
    /// How much of it is ready; null while that is unknown.
    pub progress: Option<ReadyCount>,
    /// The request with its defaults, without problem and plan file. Traces have their identifiers.
    #[schema(value_type = Object)]
    pub request: Value,
}

/// An analysis with its result, or with what is ready of it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct AnalysisDocument {
    #[serde(flatten)]
    summary: AnalysisSummary,
    #[serde(skip_serializing_if = "Option::is_none")]
    points: Option<Vec<Value>>,
    result: Option<Value>,
}

/// The analyses that a client asks for.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AnalysesQuery {
    /// Only analyses in this state.
    #[param(required = false, value_type = AnalysisState)]
    pub state: Option<AnalysisState>,
}

/// The path of an analysis.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub struct AnalysisPath {
    /// Its identifier.
    pub id: Uuid,
}

/// An analysis whose request is checked.
pub(super) struct CheckedAnalysis {
    /// The request without its documents, with the identifiers of its traces.
    pub(super) request: Value,
    pub(super) problem: Value,
    pub(super) plan: Option<Value>,
    pub(super) pipelines: Vec<String>,
    pub(super) time: SolveTime,
}

impl From<AnalysisRow> for AnalysisSummary {
    fn from(row: AnalysisRow) -> Self {
        Self {
            id: row.id,
            state: row.state,
            pipelines: row.pipelines,
            error: row.error,
            created_at: row.created_at,
            started_at: row.started_at,
            finished_at: row.finished_at,
            progress: row.total.map(|total| ReadyCount { ready: row.ready, total }),
            request: row.request,
        }
    }
}

/// The path of the resource of a kind.
fn resource(kind: AnalysisKind) -> &'static str {
    match kind {
        AnalysisKind::Simulation => "/v1/simulations",
        AnalysisKind::Frontier => "/v1/frontiers",
        AnalysisKind::Comparison => "/v1/comparisons",
    }
}

fn missing(kind: AnalysisKind, id: Uuid) -> Refusal {
    Refusal::not_found(format!("{kind} {id}"))
}

/// The refusal of the first of some options.
pub(super) fn refuse_first(refused: Vec<Invalid>) -> Result<(), Refusal> {
    refused.into_iter().next().map_or(Ok(()), |first| Err(refused_option(first)))
}

/// The refusal of an option of a request.
pub(super) fn refused_option(invalid: Invalid) -> Refusal {
    Refusal::value(invalid.pointer, format!("{}: expected {}", invalid.value, invalid.expected))
}

/// The analyses of a kind, the newest first.
pub(super) async fn list(app: &App, kind: AnalysisKind, page: ListPage<Uuid, AnalysesQuery>) -> HandlerResult {
    let filter = AnalysisFilter { kind, state: page.filter.state };
    let rows = rows::list(&mut *app.pool.acquire().await?, filter, page.after, page.rows_max()).await?;
    Ok(page.answer(rows, |row| row.id, AnalysisSummary::from))
}

/// The document of an analysis.
async fn document(db: &mut PgConnection, kind: AnalysisKind, id: Uuid) -> Result<AnalysisDocument, Refusal> {
    let mut row = rows::get(db, kind, id).await?.ok_or_else(|| missing(kind, id))?;
    let result = row.result.take();
    let points = match kind {
        AnalysisKind::Simulation => None,
        AnalysisKind::Frontier | AnalysisKind::Comparison if result.is_some() => None,
        AnalysisKind::Frontier => Some(by_value(rows::points(db, id).await?)),
        AnalysisKind::Comparison => Some(rows::points(db, id).await?),
    };
    Ok(AnalysisDocument { summary: row.into(), points, result })
}

/// Points of a frontier in the order of their values. They became ready in another one.
fn by_value(mut points: Vec<Value>) -> Vec<Value> {
    let value = |point: &Value| point["value"].as_f64().unwrap_or_default();
    points.sort_by(|a, b| value(a).total_cmp(&value(b)));
    points
}

/// One analysis.
pub(super) async fn get(app: &App, kind: AnalysisKind, id: Uuid) -> HandlerResult {
    Ok(HttpResponse::Ok().json(document(&mut *app.pool.acquire().await?, kind, id).await?))
}

/// Stores an analysis and its job, unless the client's key was used for it already. Answers 202 with its path.
pub(super) async fn post(
    app: &App,
    request: &HttpRequest,
    kind: AnalysisKind,
    bytes: &[u8],
    check: impl AsyncFnOnce(&mut PgConnection) -> Result<CheckedAnalysis, Refusal>,
) -> HandlerResult {
    let key = IdempotencyKey::read(request, JobQueue::Analyses, kind.name(), bytes)?;
    let mut tx = app.pool.begin().await?;
    if let Some(key) = &key
        && let Some(id) = key.already_asked(&mut tx).await?
    {
        return accepted(kind, id, &document(&mut tx, kind, id).await?);
    }
    let CheckedAnalysis { request, problem, plan, pipelines, time } = check(&mut tx).await?;
    let (id, at) = (Uuid::now_v7(), now());
    rows::lock(&mut tx).await?;
    if jobs::count_open(&mut tx, JobQueue::Analyses).await? >= ANALYSES_OPEN_MAX {
        let detail = format!("{ANALYSES_OPEN_MAX} analyses wait or run already: wait for one, or cancel one");
        return Err(Refusal::new(StatusCode::CONFLICT, detail));
    }
    rows::insert(&mut tx, &NewAnalysis { id, kind, request, problem, plan, pipelines, created_at: at }).await?;
    jobs::enqueue(&mut tx, JobQueue::Analyses, id, time).await?;
    if let Some(key) = key {
        key.remember(&mut tx, id, at).await?;
    }
    let document = document(&mut tx, kind, id).await?;
    tx.commit().await?;
    app.job_enqueued.notify_one();
    accepted(kind, id, &document)
}

/// The answer to a request for an analysis.
fn accepted(kind: AnalysisKind, id: Uuid, document: &AnalysisDocument) -> HandlerResult {
    let location = (header::LOCATION, format!("{}/{id}", resource(kind)));
    Ok(HttpResponse::Accepted().insert_header(location).json(document))
}

/// Cancels an open analysis. What is ready of it stays.
pub(super) async fn cancel(app: &App, kind: AnalysisKind, id: Uuid) -> HandlerResult {
    let mut tx = app.pool.begin().await?;
    rows::get(&mut tx, kind, id).await?.ok_or_else(|| missing(kind, id))?;
    let was_open = rows::cancel(&mut tx, kind, id, now()).await?;
    let document = document(&mut tx, kind, id).await?;
    tx.commit().await?;
    if was_open {
        return Ok(HttpResponse::Accepted().json(document));
    }
    Err(Refusal::new(StatusCode::CONFLICT, format!("{kind} {id} is {} already", document.summary.state)))
}

/// Deletes an analysis in any state.
pub(super) async fn delete(app: &App, kind: AnalysisKind, id: Uuid) -> HandlerResult {
    let mut tx = app.pool.begin().await?;
    rows::get(&mut tx, kind, id).await?.ok_or_else(|| missing(kind, id))?;
    let was_there = rows::delete(&mut tx, kind, id).await?;
    tx.commit().await?;
    if was_there { Ok(HttpResponse::NoContent().finish()) } else { Err(missing(kind, id)) }
}

/// A problem of a request, read.
pub(super) struct ReadProblem {
    pub(super) document: Value,
    pub(super) problem: Problem,
}

impl ReadProblem {
    /// The names of its pipelines.
    pub(super) fn pipelines(&self) -> Vec<String> {
        self.problem.pipelines.iter().map(|pipeline| pipeline.name.clone()).collect()
    }
}

/// The problem of a request: a whole file, or that of a stored plan.
pub(super) async fn problem(
    db: &mut PgConnection,
    given: Option<Value>,
    plan: Option<Uuid>,
) -> Result<ReadProblem, Refusal> {
    match (given, plan) {
        (Some(document), None) => read_problem(document, "/problem").await,
        (None, Some(id)) => read_problem(stored_plan(db, id).await?.problem, "/plan").await,
        _ => Err(Refusal::value("", "expected either problem or plan")),
    }
}

/// Reads a problem file; its errors are below `place`.
pub(super) async fn read_problem(document: Value, place: &'static str) -> Result<ReadProblem, Refusal> {
    let read = move || match documents::problem(&document) {
        Ok(problem) => Ok(ReadProblem { document, problem }),
        Err(bad) => Err(Refusal::from(bad).below(place)),
    };
    off_loop(read).await?
}

/// The stored plan with this identifier.
pub(super) async fn stored_plan(db: &mut PgConnection, id: Uuid) -> Result<plans::PlanRow, Refusal> {
    plans::get(db, id).await?.ok_or_else(|| Refusal::value("/plan", format!("{id}: expected a plan of GET /v1/plans")))
}

/// The plan file of a stored plan.
pub(super) fn plan_file(row: &plans::PlanRow) -> Result<Value, Refusal> {
    let found = row.plan.clone().filter(|_| row.state == PlanState::Succeeded);
    let expected = || Refusal::value("/plan", format!("plan {} is {}: expected one that has succeeded", row.id, row.state));
    found.ok_or_else(expected)
}

/// Replaces the text of a trace by its identifier. The text is an identifier already, or a name.
pub(super) async fn find_trace(db: &mut PgConnection, pointer: &str, text: &mut String) -> Result<(), Refusal> {
    let by_id = match text.parse::<Uuid>() {
        Ok(id) => traces::get(db, id).await?,
        Err(_) => None,
    };
    let found = match by_id {
        Some(row) => Some(row),
        None => traces::newest_named(db, text).await?,
    };
    let missing = || Refusal::value(pointer, format!("{text:?}: expected the identifier or the name of an uploaded trace"));
    let id = found.ok_or_else(missing)?.id;
    // Nobody deletes it before the analysis is stored.
    if !traces::share(db, id).await? {
        return Err(missing());
    }
    *text = id.to_string();
    Ok(())
}

/// Replaces the texts of traces by their identifiers. Each key must be a pipeline of the problem.
pub(super) async fn find_traces(
    db: &mut PgConnection,
    place: &str,
    problem: &Problem,
    by_pipeline: &mut BTreeMap<String, String>,
) -> Result<(), Refusal> {
    for (pipeline, text) in by_pipeline {
        let pointer = format!("{place}/{}", pipeline.replace('~', "~0").replace('/', "~1"));
        if problem.pipeline_named(pipeline).is_none() {
            let known: Vec<&str> = problem.pipelines.iter().map(|p| p.name.as_str()).collect();
            let detail = format!("{pipeline:?}: expected one of the pipelines {}", known.join(", "));
            return Err(Refusal::value(pointer, detail));
        }
        find_trace(db, &pointer, text).await?;
    }
    Ok(())
}

/// How much time a job of this length may take.
pub(super) fn time_of(seconds: f64) -> SolveTime {
    if seconds > crate::jobs::TIME_LIMIT_S { SolveTime::Long } else { SolveTime::Usual }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn points_have_the_order_of_their_values() {
        let points = [3.0, 1.0, 2.5].map(|value| json!({"value": value}));
        let values: Vec<f64> = by_value(points.into()).iter().filter_map(|point| point["value"].as_f64()).collect();
        assert_eq!(values, [1.0, 2.5, 3.0]);
    }
}
