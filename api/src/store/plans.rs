//! Plans: requests, states and outcomes.

use super::connection::{Error, PgConnection, Result, Time, project_in};
use super::jobs::{self, JobQueue};
use super::projects;
use apportion_wire::PlanState;
use serde_json::Value;
use uuid::Uuid;

/// A plan.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct PlanRow {
    /// Its identifier.
    pub id: Uuid,
    /// Its state.
    #[sqlx(try_from = "String")]
    pub state: PlanState,
    /// The problem file.
    pub problem: Value,
    /// The options for its solver.
    pub options: Value,
    /// The plan file, once there is one.
    pub plan: Option<Value>,
    /// The reason if it failed.
    pub error: Option<String>,
    /// When a client asked for it.
    pub created_at: Time,
    /// When a worker began to solve it.
    pub started_at: Option<Time>,
    /// When it ended.
    pub finished_at: Option<Time>,
    /// The progress of the search, while it is being solved.
    pub progress: Option<Value>,
    /// The plan file of the best plan so far, while it is being solved and has handed one out.
    pub best: Option<Value>,
}

/// A plan in a list, without its documents.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct PlanSummaryRow {
    /// Its identifier.
    pub id: Uuid,
    /// Its state.
    #[sqlx(try_from = "String")]
    pub state: PlanState,
    /// The names of its pipelines, in the order of its problem.
    pub pipelines: Vec<String>,
    /// The options for its solver.
    pub options: Value,
    /// The reason if it failed.
    pub error: Option<String>,
    /// When a client asked for it.
    pub created_at: Time,
    /// When a worker began to solve it.
    pub started_at: Option<Time>,
    /// When it ended.
    pub finished_at: Option<Time>,
    /// The progress of the search, while it is being solved.
    pub progress: Option<Value>,
}

/// The filter of a reader.
#[derive(Clone, Debug, Default)]
pub struct PlanFilter {
    /// Only plans with this pipeline.
    pub pipeline: Option<String>,
    /// Only plans in this state.
    pub state: Option<PlanState>,
    /// Only plans of this project.
    pub project: Option<String>,
}

/// A select of [`PlanRow`]s with its condition.
macro_rules! columns {
    ($rest:literal) => {
        concat!(
            "select id, state, problem, options, plan, error, created_at, started_at, finished_at, progress,
             case when state = 'solving' then best end as best from plans ",
            $rest
        )
    };
}

/// The names of the pipelines of a problem file.
fn pipelines_of(problem: &Value) -> Vec<String> {
    let pipelines = problem["pipelines"].as_array().into_iter().flatten();
    pipelines.filter_map(|pipeline| pipeline["name"].as_str().map(str::to_owned)).collect()
}

/// Stores a new plan in the state `queued`. It is of this project, whatever its pipelines. `None`: of the project of its
/// pipelines, if all are of one.
///
/// # Errors
/// The database's.
pub async fn insert(
    db: &mut PgConnection,
    id: Uuid,
    problem: &Value,
    options: &Value,
    project: Option<&str>,
    at: Time,
) -> Result<()> {
    let pipelines = pipelines_of(problem);
    let project = match project {
        Some(project) => Some(project.to_owned()),
        None => project_of(db, &pipelines).await?,
    };
    sqlx::query(
        "insert into plans (id, state, problem, options, created_at, pipelines, project)
         values ($1, $5, $2, $3, $4, $6, $7)",
    )
    .bind(id)
    .bind(problem)
    .bind(options)
    .bind(at)
    .bind(PlanState::Queued.name())
    .bind(pipelines)
    .bind(project)
    .execute(db)
    .await?;
    Ok(())
}

/// The project that all of these pipelines name; `None` if one is not registered, or names another. The project stays until
/// the transaction ends; one that is deleted meanwhile is none.
async fn project_of(db: &mut PgConnection, pipelines: &[String]) -> Result<Option<String>> {
    let select = concat!(
        "select min(project) from (select ",
        project_in!("spec"),
        " as project from pipelines where name = any($1)) named
         having count(*) = cardinality($1) and count(distinct project) = 1"
    );
    let named: Option<String> = sqlx::query_scalar(select).bind(pipelines).fetch_optional(&mut *db).await?;
    Ok(match named {
        Some(project) if projects::keep(db, &project).await? => Some(project),
        _ => None,
    })
}

/// Stores a plan that is over already.
///
/// # Errors
/// The database's.
pub async fn insert_finished(db: &mut PgConnection, row: &PlanRow) -> Result<()> {
    let pipelines = pipelines_of(&row.problem);
    let project = project_of(db, &pipelines).await?;
    sqlx::query(
        "insert into plans (id, state, problem, options, plan, error, created_at, started_at, finished_at, pipelines,
         project) values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
    )
    .bind(row.id)
    .bind(row.state.name())
    .bind(&row.problem)
    .bind(&row.options)
    .bind(&row.plan)
    .bind(&row.error)
    .bind(row.created_at)
    .bind(row.started_at)
    .bind(row.finished_at)
    .bind(pipelines)
    .bind(project)
    .execute(db)
    .await?;
    Ok(())
}

/// The plan with this identifier.
///
/// # Errors
/// The database's.
pub async fn get(db: &mut PgConnection, id: Uuid) -> Result<Option<PlanRow>> {
    sqlx::query_as(columns!("where id = $1")).bind(id).fetch_optional(db).await
}

/// Keeps a plan until the transaction ends: nobody deletes it meanwhile. A plan that is not there is no error.
///
/// # Errors
/// The database's.
pub async fn keep(tx: &mut PgConnection, id: Uuid) -> Result<()> {
    sqlx::query("select from plans where id = $1 for key share").bind(id).execute(tx).await?;
    Ok(())
}

/// At most `limit` plans before this one, the newest first, without their problem and plan files; `None`: the newest of
/// all.
///
/// # Errors
/// The database's.
pub async fn list(
    db: &mut PgConnection,
    filter: &PlanFilter,
    before: Option<Uuid>,
    limit: i64,
) -> Result<Vec<PlanSummaryRow>> {
    sqlx::query_as(
        "select id, state, pipelines, options, error, created_at, started_at, finished_at, progress from plans
         where ($1::text is null or pipelines @> array[$1]) and ($2::text is null or state = $2)
         and ($3::uuid is null or id < $3) and ($5::text is null or project = $5) order by id desc limit $4",
    )
    .persistent(false)
    .bind(&filter.pipeline)
    .bind(filter.state.map(PlanState::name))
    .bind(before)
    .bind(limit)
    .bind(&filter.project)
    .fetch_all(db)
    .await
}

/// Its state alone.
///
/// # Errors
/// The database's, or a text that is no state.
pub async fn state(db: &mut PgConnection, id: Uuid) -> Result<Option<PlanState>> {
    let text: Option<String> =
        sqlx::query_scalar("select state from plans where id = $1").bind(id).fetch_optional(db).await?;
    text.map(PlanState::try_from).transpose().map_err(|unknown| Error::Decode(Box::new(unknown)))
}

/// The texts of [`PlanState::OPEN`], for queries.
fn open_states() -> Vec<&'static str> {
    PlanState::OPEN.map(PlanState::name).into()
}

/// How a client ends the work on a plan before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanEnding {
    /// The plan is cancelled. Nothing is kept.
    Cancel,
    /// The search is stopped, and the best plan so far is kept.
    KeepBest,
}

/// How a client asks to end it, if one does; a plan that does not exist is cancelled.
///
/// # Errors
/// The database's.
pub async fn ending_asked(db: &mut PgConnection, id: Uuid) -> Result<Option<PlanEnding>> {
    let asked: Option<(bool, bool)> =
        sqlx::query_as("select cancel, keep_best from plans where id = $1").bind(id).fetch_optional(db).await?;
    Ok(match asked {
        None | Some((true, _)) => Some(PlanEnding::Cancel),
        Some((false, true)) => Some(PlanEnding::KeepBest),
        Some((false, false)) => None,
    })
}

/// Asks to stop the search for a plan and to keep the best one so far; returns whether it was still open. A plan that waits
/// for a worker is stopped when one begins it.
///
/// # Errors
/// The database's.
pub async fn keep_best(db: &mut PgConnection, id: Uuid) -> Result<bool> {
    let update = "update plans set keep_best = true where id = $1 and state = any($2)";
    let done = sqlx::query(update).bind(id).bind(open_states()).execute(db).await?;
    Ok(done.rows_affected() == 1)
}

/// Cancels a plan; returns whether it was still open. A plan without a worker is cancelled at once. Otherwise it is marked,
/// and becomes `cancelled` whatever its worker finds.
///
/// # Errors
/// The database's.
pub async fn cancel(db: &mut PgConnection, id: Uuid, at: Time) -> Result<bool> {
    jobs::withdraw(&mut *db, JobQueue::Plans, id).await?;
    // The job is locked, so it keeps its worker until this transaction ends.
    let done = sqlx::query(
        "update plans set cancel = true, state = case when held then state else $3 end,
         progress = case when held then progress end, best = case when held then best end,
         finished_at = case when held then finished_at else $2 end
         from (select exists (select from jobs where plan = $1) as held) job
         where id = $1 and state = any($4)",
    )
    .bind(id)
    .bind(at)
    .bind(PlanState::Cancelled.name())
    .bind(open_states())
    .execute(db)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Marks an open plan as being solved; returns `false` if it is cancelled or over.
///
/// # Errors
/// The database's.
pub async fn start(db: &mut PgConnection, id: Uuid, at: Time) -> Result<bool> {
    let done = sqlx::query("update plans set state = $3, started_at = $2 where id = $1 and state = any($4) and not cancel")
        .bind(id)
        .bind(at)
        .bind(PlanState::Solving.name())
        .bind(open_states())
        .execute(db)
        .await?;
    Ok(done.rows_affected() == 1)
}

/// Marks a plan as queued again, after its worker has put it back.
///
/// # Errors
/// The database's.
pub async fn requeue(db: &mut PgConnection, id: Uuid) -> Result<()> {
    sqlx::query(
        "update plans set state = $2, started_at = null, progress = null, best = case when keep_best then best end
         where id = $1 and state = $3",
    )
    .bind(id)
    .bind(PlanState::Queued.name())
    .bind(PlanState::Solving.name())
    .execute(db)
    .await?;
    Ok(())
}

/// Stores the progress of the search.
///
/// # Errors
/// The database's.
pub async fn write_progress(db: &mut PgConnection, id: Uuid, progress: &Value) -> Result<()> {
    let update = "update plans set progress = $2 where id = $1 and state = $3";
    sqlx::query(update).bind(id).bind(progress).bind(PlanState::Solving.name()).execute(db).await?;
    Ok(())
}

/// Stores the plan file of the best plan so far, while the search goes on.
///
/// # Errors
/// The database's.
pub async fn write_best(db: &mut PgConnection, id: Uuid, best: &Value) -> Result<()> {
    let update = "update plans set best = $2 where id = $1 and state = $3";
    sqlx::query(update).bind(id).bind(best).bind(PlanState::Solving.name()).execute(db).await?;
    Ok(())
}

/// The end of a plan: its final state with its documents.
#[derive(Clone, Copy, Debug)]
pub struct FinishedPlan<'a> {
    /// The final state.
    pub state: PlanState,
    /// The plan file, if there is one.
    pub plan: Option<&'a Value>,
    /// Why it failed, if it did.
    pub error: Option<&'a str>,
}

impl FinishedPlan<'_> {
    /// The end of a plan that a client cancelled.
    pub const CANCELLED: Self = Self { state: PlanState::Cancelled, plan: None, error: None };

    /// The end of a plan that could not be solved.
    #[must_use]
    pub fn failed(error: &str) -> FinishedPlan<'_> {
        FinishedPlan { state: PlanState::Failed, plan: None, error: Some(error) }
    }
}

/// Stores the outcome of an open plan. A plan whose cancellation was requested becomes `cancelled`, whatever the outcome.
///
/// If the best plan so far was to be kept and the search ended without one, the stored one is the outcome. A search ends so
/// when another worker had begun it.
///
/// # Errors
/// The database's.
pub async fn finish(db: &mut PgConnection, id: Uuid, outcome: FinishedPlan<'_>, at: Time) -> Result<()> {
    sqlx::query(
        "update plans p set
         state = case when cancel then $6 when kept.is_best then $8 else $2 end,
         plan = case when cancel then null
                     when kept.is_best then jsonb_set(p.best, '{planner,stopped}', '\"stopped\"') else $3 end,
         error = case when cancel or kept.is_best then null else $4 end,
         finished_at = $5, progress = null, best = null
         from (select id, $2 = $9 and $3::jsonb is not null and keep_best and best is not null as is_best
               from plans where id = $1 for update) kept
         where p.id = kept.id and p.state = any($7)",
    )
    .bind(id)
    .bind(outcome.state.name())
    .bind(outcome.plan)
    .bind(outcome.error)
    .bind(at)
    .bind(PlanState::Cancelled.name())
    .bind(open_states())
    .bind(PlanState::Succeeded.name())
    .bind(PlanState::Failed.name())
    .execute(db)
    .await?;
    Ok(())
}
