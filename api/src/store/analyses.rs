//! Analyses: simulations, frontiers and comparisons, with what is ready of them.

use super::connection::{PgConnection, Result, Time};
use super::jobs::{self, JobQueue};
use apportion_wire::{AnalysisKind, AnalysisState};
use serde_json::Value;
use uuid::Uuid;

/// An analysis, without its problem and plan.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct AnalysisRow {
    /// Its identifier.
    pub id: Uuid,
    /// Its state.
    #[sqlx(try_from = "String")]
    pub state: AnalysisState,
    /// The request, without its documents.
    pub request: Value,
    /// The names of its pipelines, in the order of its problem.
    pub pipelines: Vec<String>,
    /// The result, once there is one. A list leaves it out.
    pub result: Option<Value>,
    /// The reason if it failed.
    pub error: Option<String>,
    /// How much of it is ready.
    pub ready: i32,
    /// Of how much; `None` while that is unknown.
    pub total: Option<i32>,
    /// When a client asked for it.
    pub created_at: Time,
    /// When a worker began to run it.
    pub started_at: Option<Time>,
    /// When it ended.
    pub finished_at: Option<Time>,
}

/// An analysis that a client asks for.
#[derive(Clone, Debug)]
pub struct NewAnalysis {
    /// Its identifier.
    pub id: Uuid,
    /// Its kind.
    pub kind: AnalysisKind,
    /// The request, without its documents.
    pub request: Value,
    /// The problem file.
    pub problem: Value,
    /// The plan file of a simulation.
    pub plan: Option<Value>,
    /// The names of its pipelines.
    pub pipelines: Vec<String>,
    /// When the client asked.
    pub created_at: Time,
}

/// The input of an analysis, for its worker.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct AnalysisInputRow {
    /// Its kind.
    #[sqlx(try_from = "String")]
    pub kind: AnalysisKind,
    /// The request, without its documents.
    pub request: Value,
    /// The problem file.
    pub problem: Value,
    /// The plan file of a simulation.
    pub plan: Option<Value>,
}

/// The filter of a reader.
#[derive(Clone, Copy, Debug)]
pub struct AnalysisFilter {
    /// Only analyses of this kind.
    pub kind: AnalysisKind,
    /// Only analyses in this state.
    pub state: Option<AnalysisState>,
}

/// The texts of [`AnalysisState::OPEN`], for queries.
fn open_states() -> Vec<&'static str> {
    AnalysisState::OPEN.map(AnalysisState::name).into()
}

/// Makes other clients that ask for analyses wait for the end of the transaction, so that a count of jobs stays true.
///
/// # Errors
/// The database's.
pub async fn lock(db: &mut PgConnection) -> Result<()> {
    sqlx::query("select pg_advisory_xact_lock(hashtext('analyses'))").execute(db).await?;
    Ok(())
}

/// Stores a new analysis in the state `queued`.
///
/// # Errors
/// The database's.
pub async fn insert(db: &mut PgConnection, new: &NewAnalysis) -> Result<()> {
    sqlx::query(
        "insert into analyses (id, kind, state, request, problem, plan, pipelines, created_at)
         values ($1, $2, $3, $4, $5, $6, $7, $8)",
    )
    .bind(new.id)
    .bind(new.kind.name())
    .bind(AnalysisState::Queued.name())
    .bind(&new.request)
    .bind(&new.problem)
    .bind(&new.plan)
    .bind(&new.pipelines)
    .bind(new.created_at)
    .execute(db)
    .await?;
    Ok(())
}

/// The analysis of this kind with this identifier.
///
/// # Errors
/// The database's.
pub async fn get(db: &mut PgConnection, kind: AnalysisKind, id: Uuid) -> Result<Option<AnalysisRow>> {
    sqlx::query_as(
        "select id, state, request, pipelines, result, error, ready, total, created_at, started_at, finished_at
         from analyses where id = $1 and kind = $2",
    )
    .bind(id)
    .bind(kind.name())
    .fetch_optional(db)
    .await
}

/// The newest simulation of a stored plan, in any state.
///
/// # Errors
/// The database's.
pub async fn newest_simulation(db: &mut PgConnection, plan: Uuid) -> Result<Option<Uuid>> {
    const NEWEST: &str =
        "select id from analyses where kind = 'simulation' and request ->> 'plan' = $1 order by id desc limit 1";
    sqlx::query_scalar(NEWEST).bind(plan.to_string()).fetch_optional(db).await
}

/// The input of an analysis.
///
/// # Errors
/// The database's.
pub async fn input(db: &mut PgConnection, id: Uuid) -> Result<Option<AnalysisInputRow>> {
    let select = "select kind, request, problem, plan from analyses where id = $1";
    sqlx::query_as(select).bind(id).fetch_optional(db).await
}

/// At most `limit` analyses before this one, the newest first, without their results; `None`: the newest of all.
///
/// # Errors
/// The database's.
pub async fn list(
    db: &mut PgConnection,
    filter: AnalysisFilter,
    before: Option<Uuid>,
    limit: i64,
) -> Result<Vec<AnalysisRow>> {
    sqlx::query_as(
        "select id, state, request, pipelines, null::jsonb as result, error, ready, total, created_at, started_at,
         finished_at from analyses where kind = $1 and ($2::text is null or state = $2) and ($3::uuid is null or id < $3)
         order by id desc limit $4",
    )
    .persistent(false)
    .bind(filter.kind.name())
    .bind(filter.state.map(AnalysisState::name))
    .bind(before)
    .bind(limit)
    .fetch_all(db)
    .await
}

/// What is ready of an analysis without a result, in the order in which it became ready.
///
/// # Errors
/// The database's.
pub async fn points(db: &mut PgConnection, id: Uuid) -> Result<Vec<Value>> {
    let select = "select point from analysis_points where analysis = $1 order by place";
    sqlx::query_scalar(select).bind(id).fetch_all(db).await
}

/// Whether its cancellation was requested; also `true` if the analysis does not exist.
///
/// # Errors
/// The database's.
pub async fn cancel_asked(db: &mut PgConnection, id: Uuid) -> Result<bool> {
    let asked: Option<bool> =
        sqlx::query_scalar("select cancel from analyses where id = $1").bind(id).fetch_optional(db).await?;
    Ok(asked.unwrap_or(true))
}

/// Cancels an analysis; returns whether it was still open. An analysis without a worker is cancelled at once. Otherwise it
/// is marked, and becomes `cancelled` whatever its worker finds. Its points stay.
///
/// # Errors
/// The database's.
pub async fn cancel(db: &mut PgConnection, kind: AnalysisKind, id: Uuid, at: Time) -> Result<bool> {
    jobs::withdraw(&mut *db, JobQueue::Analyses, id).await?;
    // The job is locked, so it keeps its worker until this transaction ends.
    let done = sqlx::query(
        "update analyses set cancel = true, state = case when held then state else $4 end,
         finished_at = case when held then finished_at else $3 end
         from (select exists (select from analysis_jobs where analysis = $1) as held) job
         where id = $1 and kind = $2 and state = any($5)",
    )
    .bind(id)
    .bind(kind.name())
    .bind(at)
    .bind(AnalysisState::Cancelled.name())
    .bind(open_states())
    .execute(db)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Deletes an analysis with its job and its points; returns whether it was there. A worker that has it learns that it has
/// lost its job.
///
/// # Errors
/// The database's.
pub async fn delete(db: &mut PgConnection, kind: AnalysisKind, id: Uuid) -> Result<bool> {
    // The job is locked first, as by everybody who changes both.
    jobs::withdraw(&mut *db, JobQueue::Analyses, id).await?;
    let done = sqlx::query("delete from analyses where id = $1 and kind = $2").bind(id).bind(kind.name());
    Ok(done.execute(db).await?.rows_affected() == 1)
}

/// Marks an open analysis as running, without points; returns `false` if it is cancelled or over.
///
/// # Errors
/// The database's.
pub async fn start(db: &mut PgConnection, id: Uuid, at: Time) -> Result<bool> {
    let done = sqlx::query(
        "update analyses set state = $3, started_at = $2, ready = 0, total = null
         where id = $1 and state = any($4) and not cancel",
    )
    .bind(id)
    .bind(at)
    .bind(AnalysisState::Running.name())
    .bind(open_states())
    .execute(&mut *db)
    .await?;
    let is_started = done.rows_affected() == 1;
    if is_started {
        delete_points(db, id).await?;
    }
    Ok(is_started)
}

/// Marks an analysis as queued again, after its worker has put it back.
///
/// # Errors
/// The database's.
pub async fn requeue(db: &mut PgConnection, id: Uuid) -> Result<()> {
    sqlx::query("update analyses set state = $2, started_at = null where id = $1 and state = $3")
        .bind(id)
        .bind(AnalysisState::Queued.name())
        .bind(AnalysisState::Running.name())
        .execute(db)
        .await?;
    Ok(())
}

/// How far an analysis is, with the points that became ready.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReadyPoints {
    /// How much is ready.
    pub ready: i32,
    /// Of how much.
    pub total: Option<i32>,
    /// The place of the first new point.
    pub first: i32,
    /// The new points.
    pub points: Vec<Value>,
}

/// Stores how far an open analysis is. Points that are stored already stay as they are.
///
/// # Errors
/// The database's.
pub async fn write_ready(db: &mut PgConnection, id: Uuid, ready: &ReadyPoints) -> Result<()> {
    let update = "update analyses set ready = $2, total = $3 where id = $1 and state = any($4)";
    let update = sqlx::query(update).bind(id).bind(ready.ready).bind(ready.total).bind(open_states());
    update.execute(&mut *db).await?;
    if ready.points.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "insert into analysis_points (analysis, place, point) select $1, $2 + (number - 1)::integer, point
         from jsonb_array_elements($3::jsonb) with ordinality as listed (point, number) on conflict do nothing",
    )
    .bind(id)
    .bind(ready.first)
    .bind(Value::Array(ready.points.clone()))
    .execute(db)
    .await?;
    Ok(())
}

/// The end of an analysis: its final state with its result.
#[derive(Clone, Copy, Debug)]
pub struct FinishedAnalysis<'a> {
    /// The final state.
    pub state: AnalysisState,
    /// The result, if there is one.
    pub result: Option<&'a Value>,
    /// Why it failed, if it did.
    pub error: Option<&'a str>,
}

impl FinishedAnalysis<'_> {
    /// The end of an analysis that a client cancelled.
    pub const CANCELLED: Self = Self { state: AnalysisState::Cancelled, result: None, error: None };

    /// The end of an analysis that could not be made.
    #[must_use]
    pub fn failed(error: &str) -> FinishedAnalysis<'_> {
        FinishedAnalysis { state: AnalysisState::Failed, result: None, error: Some(error) }
    }
}

/// Stores the end of an open analysis. One whose cancellation was requested becomes `cancelled`, whatever the end, and
/// keeps its points. A result replaces them.
///
/// # Errors
/// The database's.
pub async fn finish(db: &mut PgConnection, id: Uuid, end: FinishedAnalysis<'_>, at: Time) -> Result<()> {
    let has_result: Option<bool> = sqlx::query_scalar(
        "update analyses set state = case when cancel then $6 else $2 end,
         result = case when cancel then null else $3 end, error = case when cancel then null else $4 end,
         ready = case when $3::jsonb is null or cancel then ready else coalesce(total, ready) end, finished_at = $5
         where id = $1 and state = any($7) returning result is not null",
    )
    .bind(id)
    .bind(end.state.name())
    .bind(end.result)
    .bind(end.error)
    .bind(at)
    .bind(AnalysisState::Cancelled.name())
    .bind(open_states())
    .fetch_optional(&mut *db)
    .await?;
    if has_result == Some(true) {
        delete_points(db, id).await?;
    }
    Ok(())
}

async fn delete_points(db: &mut PgConnection, id: Uuid) -> Result<()> {
    sqlx::query("delete from analysis_points where analysis = $1").bind(id).execute(db).await?;
    Ok(())
}
