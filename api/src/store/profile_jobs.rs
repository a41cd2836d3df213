//! Profile jobs, and what was measured for them.

use super::connection::{PgConnection, Result, Time};
use apportion_wire::ProfileJobState;
use serde_json::Value;
use uuid::Uuid;

/// A profile job.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct ProfileJobRow {
    /// Its identifier.
    pub id: Uuid,
    /// The pipeline that it measures.
    pub pipeline: String,
    /// Its state.
    #[sqlx(try_from = "String")]
    pub state: ProfileJobState,
    /// The request with its defaults.
    pub request: Value,
    /// Who asked for it, or which drift.
    pub reason: String,
    /// The reason if something could not be measured.
    pub error: Option<String>,
    /// Complete variants, each on one hardware type.
    pub ready: i32,
    /// Of how many.
    pub total: i32,
    /// When it was asked for.
    pub created_at: Time,
    /// When the first device was claimed for it.
    pub started_at: Option<Time>,
    /// When it ended.
    pub finished_at: Option<Time>,
}

/// A profile job that somebody asks for.
#[derive(Clone, Debug)]
pub struct NewProfileJob {
    /// Its identifier.
    pub id: Uuid,
    /// The pipeline that it measures.
    pub pipeline: String,
    /// The request with its defaults.
    pub request: Value,
    /// Who asks for it, or which drift.
    pub reason: String,
    /// Variants to measure, each on one hardware type.
    pub total: i32,
    /// When it was asked for.
    pub created_at: Time,
}

/// What was measured of one batch size.
#[derive(Clone, Debug, PartialEq, sqlx::FromRow)]
pub struct ProfilePointRow {
    /// The hardware type.
    pub hardware: String,
    /// The task.
    pub task: String,
    /// The variant.
    pub variant: String,
    /// The batch size.
    pub batch: i32,
    /// The row of the profile; `None` if it could not be measured.
    pub measured: Option<Value>,
    /// Why it could not be measured.
    pub error: Option<String>,
}

/// The filter of a reader.
#[derive(Clone, Copy, Debug)]
pub struct ProfileJobFilter<'a> {
    /// Only jobs of this pipeline.
    pub pipeline: Option<&'a str>,
    /// Only jobs in this state.
    pub state: Option<ProfileJobState>,
}

/// A select of [`ProfileJobRow`]s with its condition.
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "select id, pipeline, state, request, reason, error, ready, total, created_at, started_at, finished_at
             from profile_jobs ",
            $rest
        )
    };
}

/// The texts of [`ProfileJobState::OPEN`], for queries.
fn open_states() -> Vec<&'static str> {
    ProfileJobState::OPEN.map(ProfileJobState::name).into()
}

/// Makes other clients that ask for jobs wait for the end of the transaction, so that a count of jobs stays true.
///
/// # Errors
/// The database's.
pub async fn lock(db: &mut PgConnection) -> Result<()> {
    sqlx::query("select pg_advisory_xact_lock(hashtext('profile-jobs'))").execute(db).await?;
    Ok(())
}

/// Stores a new job in the state `queued`.
///
/// # Errors
/// The database's.
pub async fn insert(db: &mut PgConnection, new: &NewProfileJob) -> Result<()> {
    sqlx::query(
        "insert into profile_jobs (id, pipeline, state, request, reason, total, created_at)
         values ($1, $2, $3, $4, $5, $6, $7)",
    )
    .bind(new.id)
    .bind(&new.pipeline)
    .bind(ProfileJobState::Queued.name())
    .bind(&new.request)
    .bind(&new.reason)
    .bind(new.total)
    .bind(new.created_at)
    .execute(db)
    .await?;
    Ok(())
}

/// The job with this identifier.
///
/// # Errors
/// The database's.
pub async fn get(db: &mut PgConnection, id: Uuid) -> Result<Option<ProfileJobRow>> {
    sqlx::query_as(select!("where id = $1")).bind(id).fetch_optional(db).await
}

/// The job with this identifier, locked until the transaction ends.
///
/// # Errors
/// The database's.
pub async fn lock_job(db: &mut PgConnection, id: Uuid) -> Result<Option<ProfileJobRow>> {
    sqlx::query_as(select!("where id = $1 for update")).bind(id).fetch_optional(db).await
}

/// At most `limit` jobs before this one, the newest first; `None`: the newest of all.
///
/// # Errors
/// The database's.
pub async fn list(
    db: &mut PgConnection,
    filter: ProfileJobFilter<'_>,
    before: Option<Uuid>,
    limit: i64,
) -> Result<Vec<ProfileJobRow>> {
    sqlx::query_as(select!(
        "where ($1::text is null or pipeline = $1) and ($2::text is null or state = $2) and ($3::uuid is null or id < $3)
         order by id desc limit $4"
    ))
    .persistent(false)
    .bind(filter.pipeline)
    .bind(filter.state.map(ProfileJobState::name))
    .bind(before)
    .bind(limit)
    .fetch_all(db)
    .await
}

/// The jobs that are not over, the oldest first.
///
/// # Errors
/// The database's.
pub async fn open(db: &mut PgConnection) -> Result<Vec<ProfileJobRow>> {
    sqlx::query_as(select!("where state in ('queued', 'running') order by id")).fetch_all(db).await
}

/// The number of jobs that are not over.
///
/// # Errors
/// The database's.
pub async fn count_open(db: &mut PgConnection) -> Result<i64> {
    sqlx::query_scalar("select count(*) from profile_jobs where state in ('queued', 'running')").fetch_one(db).await
}

/// When the newest job of a pipeline with this reason was asked for.
///
/// # Errors
/// The database's.
pub async fn newest_for(db: &mut PgConnection, pipeline: &str, reason: &str) -> Result<Option<Time>> {
    sqlx::query_scalar("select max(created_at) from profile_jobs where pipeline = $1 and reason = $2")
        .bind(pipeline)
        .bind(reason)
        .fetch_one(db)
        .await
}

/// Marks a queued job as running.
///
/// # Errors
/// The database's.
pub async fn start(db: &mut PgConnection, id: Uuid, at: Time) -> Result<()> {
    let update = "update profile_jobs set state = $3, started_at = $2 where id = $1 and state = $4";
    sqlx::query(update)
        .bind(id)
        .bind(at)
        .bind(ProfileJobState::Running.name())
        .bind(ProfileJobState::Queued.name())
        .execute(db)
        .await?;
    Ok(())
}

/// Ends an open job, and its claims; returns whether it was open.
///
/// # Errors
/// The database's.
pub async fn finish(
    db: &mut PgConnection,
    id: Uuid,
    state: ProfileJobState,
    error: Option<&str>,
    at: Time,
) -> Result<bool> {
    let update = "update profile_jobs set state = $2, error = $3, finished_at = $4 where id = $1 and state = any($5)";
    let done = sqlx::query(update).bind(id).bind(state.name()).bind(error).bind(at).bind(open_states());
    let was_open = done.execute(&mut *db).await?.rows_affected() == 1;
    sqlx::query("delete from device_claims where job = $1").bind(id).execute(db).await?;
    Ok(was_open)
}

/// Deletes a job with all that was measured for it, in any state; returns whether it was there. What is in the profile
/// stays there.
///
/// # Errors
/// The database's.
pub async fn delete(db: &mut PgConnection, id: Uuid) -> Result<bool> {
    let done = sqlx::query("delete from profile_jobs where id = $1").bind(id).execute(db).await?;
    Ok(done.rows_affected() == 1)
}

/// What was measured for a job, by name and batch size.
///
/// # Errors
/// The database's.
pub async fn points(db: &mut PgConnection, job: Uuid) -> Result<Vec<ProfilePointRow>> {
    sqlx::query_as(
        "select hardware, task, variant, batch, measured, error from profile_job_points where job = $1
         order by hardware, task, variant, batch",
    )
    .bind(job)
    .fetch_all(db)
    .await
}

/// Adds what was measured of one batch size. What is there stays.
///
/// # Errors
/// The database's.
pub async fn add_point(db: &mut PgConnection, job: Uuid, point: &ProfilePointRow) -> Result<()> {
    sqlx::query(
        "insert into profile_job_points (job, hardware, task, variant, batch, measured, error)
         values ($1, $2, $3, $4, $5, $6, $7) on conflict do nothing",
    )
    .bind(job)
    .bind(&point.hardware)
    .bind(&point.task)
    .bind(&point.variant)
    .bind(point.batch)
    .bind(&point.measured)
    .bind(&point.error)
    .execute(db)
    .await?;
    Ok(())
}

/// Writes how much of a job is ready.
///
/// # Errors
/// The database's.
pub async fn write_progress(db: &mut PgConnection, job: Uuid, ready: i32) -> Result<()> {
    sqlx::query("update profile_jobs set ready = $2 where id = $1").bind(job).bind(ready).execute(db).await?;
    Ok(())
}
