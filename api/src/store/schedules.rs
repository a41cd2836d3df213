//! Schedules and their firings.

use super::connection::{Condition, Deletion, PgConnection, Result, Time, delete_row, project_in};
use apportion_wire::FiringState;
use serde_json::Value;

/// A schedule with its last firing.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct ScheduleRow {
    /// Its name.
    pub name: String,
    /// Its document.
    pub spec: Value,
    /// Its version: the number of its replacements.
    pub version: i64,
    /// Who wrote it.
    pub made_by: String,
    /// When it was written. Intervals count from here.
    pub updated_at: Time,
    /// When it fires next; `None`: never.
    pub next_at: Option<Time>,
    /// The last firing; `None` before the first.
    pub last: Option<Value>,
}

/// A schedule to be written.
#[derive(Clone, Copy, Debug)]
pub struct NewSchedule<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its document.
    pub spec: &'a Value,
    /// Who writes it.
    pub made_by: &'a str,
    /// When it is written.
    pub at: Time,
    /// When it fires first.
    pub next_at: Time,
}

/// A firing.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct FiringRow {
    /// Its schedule.
    pub schedule: String,
    /// When it was due.
    pub due_at: Time,
    /// The schedule's document at that time.
    pub spec: Value,
    /// When it was made.
    pub fired_at: Time,
    /// Due times since the last firing that got none.
    pub skipped: i32,
    /// Its state.
    #[sqlx(try_from = "String")]
    pub state: FiringState,
    /// What came of it.
    pub detail: String,
}

/// A select of [`ScheduleRow`]s with its condition.
macro_rules! select {
    ($($rest:tt)+) => {
        concat!(
            "select name, spec, version, made_by, updated_at, next_at,
             (select to_jsonb(f) from schedule_firings f where f.schedule = s.name order by due_at desc limit 1) as last
             from schedules s ",
            $($rest)+
        )
    };
}

/// How many schedules the pipelines of a project have.
///
/// # Errors
/// The database's.
pub async fn count_of_project(db: &mut PgConnection, project: &str) -> Result<i64> {
    const COUNT: &str = concat!(
        "select count(*) from schedules s join pipelines p on p.name = s.spec ->> 'pipeline' where ",
        project_in!("p.spec"),
        " = $1"
    );
    sqlx::query_scalar(COUNT).bind(project).fetch_one(db).await
}

/// Makes other writers of schedules wait for the end of the transaction, so that a count stays true.
///
/// # Errors
/// The database's.
pub async fn lock(db: &mut PgConnection) -> Result<()> {
    sqlx::query("lock table schedules in share row exclusive mode").execute(db).await?;
    Ok(())
}

/// How many schedules there are.
///
/// # Errors
/// The database's.
pub async fn count(db: &mut PgConnection) -> Result<i64> {
    sqlx::query_scalar("select count(*) from schedules").fetch_one(db).await
}

/// Creates or replaces; returns its new version, 1 if it was created, or `None` if the condition does not hold.
///
/// # Errors
/// The database's.
pub async fn put(db: &mut PgConnection, new: NewSchedule<'_>, condition: &Condition) -> Result<Option<i64>> {
    let statement = match condition.needs_row() {
        true => {
            "update schedules set spec = $2, made_by = $3, updated_at = $4, next_at = $5, version = version + 1
             where name = $1 and ($6::bigint[] is null or version = any($6)) returning version"
        }
        false => {
            "insert into schedules (name, spec, made_by, updated_at, next_at) select $1, $2, $3, $4, $5
             where $6::bigint[] is null or 0 = any($6)
             on conflict (name) do update set spec = $2, made_by = $3, updated_at = $4, next_at = $5,
             version = schedules.version + 1 where $6 is null returning version"
        }
    };
    let query = sqlx::query_scalar(statement).bind(new.name).bind(new.spec).bind(new.made_by).bind(new.at);
    query.bind(new.next_at).bind(condition.versions()).fetch_optional(db).await
}

/// The schedule with this name.
///
/// # Errors
/// The database's.
pub async fn get(db: &mut PgConnection, name: &str) -> Result<Option<ScheduleRow>> {
    sqlx::query_as(select!("where name = $1")).bind(name).fetch_optional(db).await
}

/// The first schedule of this pipeline; `None` if there is none.
///
/// # Errors
/// The database's.
pub async fn first_of(db: &mut PgConnection, pipeline: &str) -> Result<Option<String>> {
    let first = "select name from schedules where spec ->> 'pipeline' = $1 order by name limit 1";
    sqlx::query_scalar(first).bind(pipeline).fetch_optional(db).await
}

/// The filter of a reader.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScheduleFilter<'a> {
    /// Only schedules whose names begin with this text.
    pub prefix: Option<&'a str>,
    /// Only schedules of this pipeline.
    pub pipeline: Option<&'a str>,
    /// Only schedules of pipelines of this project.
    pub project: Option<&'a str>,
}

/// At most `limit` schedules after this name, by name; `None`: the first ones.
///
/// # Errors
/// The database's.
pub async fn list(
    db: &mut PgConnection,
    filter: ScheduleFilter<'_>,
    after: Option<&str>,
    limit: i64,
) -> Result<Vec<ScheduleRow>> {
    let select = sqlx::query_as(select!(
        "where ($1::text is null or name > $1) and ($3::text is null or starts_with(name, $3))
         and ($4::text is null or spec ->> 'pipeline' = $4)
         and ($5::text is null or exists (select from pipelines p where p.name = s.spec ->> 'pipeline'
              and ",
        project_in!("p.spec"),
        " = $5)) order by name limit $2"
    ));
    let select = select.persistent(false).bind(after).bind(limit).bind(filter.prefix);
    select.bind(filter.pipeline).bind(filter.project).fetch_all(db).await
}

/// The first `most` schedules that are due, the oldest due time first.
///
/// # Errors
/// The database's.
pub async fn due(db: &mut PgConnection, at: Time, most: i64) -> Result<Vec<ScheduleRow>> {
    sqlx::query_as(select!("where next_at <= $1 order by next_at, name limit $2")).bind(at).bind(most).fetch_all(db).await
}

/// Moves a schedule on from its due time; returns whether nobody else did, and nobody replaced it.
///
/// # Errors
/// The database's.
pub async fn claim(db: &mut PgConnection, row: &ScheduleRow, next_at: Option<Time>) -> Result<bool> {
    let update = "update schedules set next_at = $4 where name = $1 and version = $2 and next_at = $3";
    let done = sqlx::query(update).bind(&row.name).bind(row.version).bind(row.next_at).bind(next_at).execute(db).await?;
    Ok(done.rows_affected() == 1)
}

/// Deletes the schedule with its firings, if its version is allowed.
///
/// # Errors
/// The database's.
pub async fn delete(db: &mut PgConnection, name: &str, condition: &Condition) -> Result<Deletion> {
    let statement = "delete from schedules where name = $1 and ($2::bigint[] is null or version = any($2))";
    if delete_row(db, statement, name, condition).await? {
        return Ok(Deletion::Done);
    }
    Ok(if get(db, name).await?.is_some() { Deletion::OtherVersion } else { Deletion::Missing })
}

/// Stores a firing; returns whether this due time had none. Earlier firings of its schedule that still wait are missed.
///
/// # Errors
/// The database's.
pub async fn insert_firing(db: &mut PgConnection, row: &FiringRow) -> Result<bool> {
    sqlx::query(
        "update schedule_firings set state = $3, detail = 'a later firing came first'
         where schedule = $1 and due_at < $2 and state = $4",
    )
    .bind(&row.schedule)
    .bind(row.due_at)
    .bind(FiringState::Missed.name())
    .bind(FiringState::Pending.name())
    .execute(&mut *db)
    .await?;
    let done = sqlx::query(
        "insert into schedule_firings (schedule, due_at, spec, fired_at, skipped, state, detail)
         values ($1, $2, $3, $4, $5, $6, $7) on conflict do nothing",
    )
    .bind(&row.schedule)
    .bind(row.due_at)
    .bind(&row.spec)
    .bind(row.fired_at)
    .bind(row.skipped)
    .bind(row.state.name())
    .bind(&row.detail)
    .execute(db)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// The oldest firing that waits for its round.
///
/// # Errors
/// The database's.
pub async fn oldest_pending(db: &mut PgConnection) -> Result<Option<FiringRow>> {
    sqlx::query_as(
        "select schedule, due_at, spec, fired_at, skipped, state, detail from schedule_firings where state = $1
         order by fired_at, schedule limit 1",
    )
    .bind(FiringState::Pending.name())
    .fetch_optional(db)
    .await
}

/// Ends a firing that waits; returns whether it still waited.
///
/// # Errors
/// The database's.
pub async fn settle(db: &mut PgConnection, row: &FiringRow, state: FiringState, detail: &str) -> Result<bool> {
    let update = "update schedule_firings set state = $3, detail = $4 where schedule = $1 and due_at = $2 and state = $5";
    let query = sqlx::query(update).bind(&row.schedule).bind(row.due_at).bind(state.name()).bind(detail);
    let done = query.bind(FiringState::Pending.name()).execute(db).await?;
    Ok(done.rows_affected() == 1)
}
