//! Registered pipelines and their profiles.

use super::connection::{Condition, Deletion, PgConnection, Result, Time, delete_row, project_in};
use apportion_wire::ReplanSpec;
use serde_json::Value;

/// A registered pipeline.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct PipelineRow {
    /// Its name.
    pub name: String,
    /// The spec as the wire crate writes it.
    pub spec: Value,
    /// Its version: the number of its replacements.
    pub version: i64,
    /// Its measurements, if there are any.
    pub profile: Option<Value>,
    /// The version of its profile; `None` without one.
    pub profile_version: Option<i64>,
}

/// A pipeline in a list, without its documents.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct PipelineSummaryRow {
    /// Its name.
    pub name: String,
    /// Its version: the number of its replacements.
    pub version: i64,
    /// Whether there is a profile.
    pub profiled: bool,
    /// The spec's `replan.mode`, if it has one.
    pub replan: Option<String>,
}

/// The replan settings of a registered pipeline.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct ReplanSettingsRow {
    /// The pipeline.
    pub name: String,
    /// The spec's `replan`, if it has one.
    pub replan: Option<Value>,
}

impl ReplanSettingsRow {
    /// The settings, if the spec has some.
    ///
    /// # Errors
    /// If this release cannot read them: another one wrote them.
    pub fn settings(&self) -> serde_json::Result<Option<ReplanSpec>> {
        serde_json::from_value(self.replan.clone().unwrap_or_default())
    }
}

/// A select of [`PipelineRow`]s with its condition.
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "select p.name, p.spec, p.version, f.profile, f.version as profile_version
             from pipelines p left join profiles f on f.pipeline = p.name ",
            $rest
        )
    };
}

/// Creates or replaces; returns its new version, 1 if it was created, or `None` if the condition does not hold.
///
/// # Errors
/// The database's.
pub async fn put(db: &mut PgConnection, name: &str, spec: &Value, condition: &Condition, at: Time) -> Result<Option<i64>> {
    let statement = match condition.needs_row() {
        true => {
            "update pipelines set spec = $2, updated_at = $3, version = version + 1
             where name = $1 and ($4::bigint[] is null or version = any($4)) returning version"
        }
        false => {
            "insert into pipelines (name, spec, updated_at) select $1, $2, $3
             where $4::bigint[] is null or 0 = any($4)
             on conflict (name) do update set spec = $2, updated_at = $3, version = pipelines.version + 1
             where $4 is null returning version"
        }
    };
    sqlx::query_scalar(statement).bind(name).bind(spec).bind(at).bind(condition.versions()).fetch_optional(db).await
}

/// The pipeline with this name.
///
/// # Errors
/// The database's.
pub async fn get(db: &mut PgConnection, name: &str) -> Result<Option<PipelineRow>> {
    sqlx::query_as(select!("where p.name = $1")).bind(name).fetch_optional(db).await
}

/// The pipeline with this name. Until the transaction ends, no other one can delete or replace it.
///
/// # Errors
/// The database's.
pub async fn share(db: &mut PgConnection, name: &str) -> Result<Option<PipelineRow>> {
    sqlx::query_as(select!("where p.name = $1 for share of p")).bind(name).fetch_optional(db).await
}

/// The pipeline with this name, locked with its profile until the transaction ends.
///
/// # Errors
/// The database's.
pub async fn lock(db: &mut PgConnection, name: &str) -> Result<Option<PipelineRow>> {
    if !lock_row(&mut *db, name).await? {
        return Ok(None);
    }
    // A second statement: it sees the changes that the first one had to wait for.
    get(db, name).await
}

/// Locks the pipeline with this name until the transaction ends, and reads nothing. Returns whether it exists.
///
/// # Errors
/// The database's.
pub async fn lock_row(db: &mut PgConnection, name: &str) -> Result<bool> {
    let locked = sqlx::query("select 1 from pipelines where name = $1 for update").bind(name).fetch_optional(db).await?;
    Ok(locked.is_some())
}

/// All pipelines by name.
///
/// # Errors
/// The database's.
pub async fn list(db: &mut PgConnection) -> Result<Vec<PipelineRow>> {
    sqlx::query_as(select!("order by p.name")).fetch_all(db).await
}

/// The pipelines with these names, by name. Unknown names are left out.
///
/// # Errors
/// The database's.
pub async fn named(db: &mut PgConnection, names: &[String]) -> Result<Vec<PipelineRow>> {
    sqlx::query_as(select!("where p.name = any($1) order by p.name")).bind(names).fetch_all(db).await
}

/// The percentile of each pipeline's promise, where its spec names one, by name.
///
/// # Errors
/// The database's.
pub async fn percentiles(db: &mut PgConnection) -> Result<Vec<(String, Option<f64>)>> {
    let select = "select name, (spec ->> 'percentile')::double precision from pipelines order by name";
    sqlx::query_as(select).fetch_all(db).await
}

/// The replan settings of these pipelines, without their profiles. Pipelines that are not registered have no row.
///
/// # Errors
/// The database's.
pub async fn replan_settings(db: &mut PgConnection, names: &[String]) -> Result<Vec<ReplanSettingsRow>> {
    let select = "select name, spec -> 'replan' as replan from pipelines where name = any($1) order by name";
    sqlx::query_as(select).bind(names).fetch_all(db).await
}

/// The specs of those of these pipelines whose latencies are measured again when they drift, by name.
///
/// # Errors
/// The database's.
pub async fn specs_measured_on_drift(db: &mut PgConnection, names: &[String]) -> Result<Vec<Value>> {
    let select = "select spec from pipelines
                  where name = any($1) and (spec -> 'replan' -> 'profile_on_drift') = 'true' order by name";
    sqlx::query_scalar(select).bind(names).fetch_all(db).await
}

/// The pipelines with settings of replanning, by name.
///
/// # Errors
/// The database's.
pub async fn with_replan(db: &mut PgConnection) -> Result<Vec<PipelineRow>> {
    sqlx::query_as(select!("where p.spec ? 'replan' order by p.name")).fetch_all(db).await
}

/// The pipelines whose workloads on Kubernetes follow their plans, by name.
///
/// # Errors
/// The database's.
pub async fn with_workloads(db: &mut PgConnection) -> Result<Vec<PipelineRow>> {
    let select = select!("where jsonb_typeof(p.spec -> 'replan' -> 'kubernetes') = 'object' order by p.name");
    sqlx::query_as(select).fetch_all(db).await
}

/// The filter of a reader.
#[derive(Clone, Copy, Debug, Default)]
pub struct PipelineFilter<'a> {
    /// Only pipelines whose names begin with this text.
    pub prefix: Option<&'a str>,
    /// Only pipelines of this project.
    pub project: Option<&'a str>,
}

/// At most `limit` pipelines after this name, by name, without their documents.
///
/// # Errors
/// The database's.
pub async fn summaries(
    db: &mut PgConnection,
    filter: PipelineFilter<'_>,
    after: Option<&str>,
    limit: i64,
) -> Result<Vec<PipelineSummaryRow>> {
    // A join would read the profiles of all pipelines before the first one of the answer.
    sqlx::query_as(concat!(
        "select name, version, (select version from profiles f where f.pipeline = p.name) is not null as profiled,
         spec -> 'replan' ->> 'mode' as replan from pipelines p
         where ($1::text is null or starts_with(name, $1)) and ($2::text is null or name > $2)
         and ($4::text is null or ",
        project_in!("spec"),
        " = $4) order by name limit $3"
    ))
    .persistent(false)
    .bind(filter.prefix)
    .bind(after)
    .bind(limit)
    .bind(filter.project)
    .fetch_all(db)
    .await
}

/// Whether the target in force has a part of this pipeline.
///
/// # Errors
/// The database's.
pub async fn is_deployed(db: &mut PgConnection, name: &str) -> Result<bool> {
    sqlx::query_scalar("select exists (select from target where specs ? $1)").bind(name).fetch_one(db).await
}

/// Deletes the pipeline with its profile, if its version is allowed.
///
/// # Errors
/// The database's.
pub async fn delete(db: &mut PgConnection, name: &str, condition: &Condition) -> Result<Deletion> {
    let statement = "delete from pipelines where name = $1 and ($2::bigint[] is null or version = any($2))";
    if delete_row(db, statement, name, condition).await? {
        return Ok(Deletion::Done);
    }
    Ok(if get(db, name).await?.is_some() { Deletion::OtherVersion } else { Deletion::Missing })
}

/// Seconds of arrivals that one statement deletes: those of a month take longer than a statement may.
const FORGOTTEN_MAX: i64 = 20_000;

/// Forgets what agents reported of a deleted pipeline, and its hold. So a new pipeline with its name, perhaps of another
/// project, begins without them.
///
/// # Errors
/// The database's.
pub async fn forget_reports(db: &mut PgConnection, name: &str) -> Result<()> {
    // Each begins after the seconds of the one before: what the transaction has deleted is not read again.
    const ARRIVALS: &str = "with part as materialized (select max(second) as newest from
                             (select second from arrivals where pipeline = $1 and second > $2
                              order by second limit $3) seconds),
                            gone as (delete from arrivals where pipeline = $1 and second > $2
                             and second <= (select newest from part))
                            select newest from part";
    const OTHERS: [&str; 3] = [
        "delete from group_sums where pipeline = $1",
        "delete from child_sums where pipeline = $1",
        "delete from holds where pipeline = $1",
    ];
    for statement in OTHERS {
        sqlx::query(statement).bind(name).execute(&mut *db).await?;
    }
    let mut newest = Some(i64::MIN);
    while let Some(after) = newest {
        let forgotten = sqlx::query_scalar(ARRIVALS).bind(name).bind(after).bind(FORGOTTEN_MAX);
        newest = forgotten.fetch_one(&mut *db).await?;
    }
    Ok(())
}

/// Stores measurements; returns the profile's new version, or `None` if the condition does not hold. The pipeline must
/// exist.
///
/// # Errors
/// The database's.
pub async fn put_profile(
    db: &mut PgConnection,
    name: &str,
    profile: &Value,
    condition: &Condition,
    at: Time,
) -> Result<Option<i64>> {
    let statement = match condition.needs_row() {
        true => {
            "update profiles set profile = $2, updated_at = $3, version = version + 1
             where pipeline = $1 and ($4::bigint[] is null or version = any($4)) returning version"
        }
        false => {
            "insert into profiles (pipeline, profile, updated_at) select $1, $2, $3
             where $4::bigint[] is null or 0 = any($4)
             on conflict (pipeline) do update set profile = $2, updated_at = $3, version = profiles.version + 1
             where $4 is null returning version"
        }
    };
    sqlx::query_scalar(statement).bind(name).bind(profile).bind(at).bind(condition.versions()).fetch_optional(db).await
}

/// Deletes the measurements, if their version is allowed.
///
/// # Errors
/// The database's.
pub async fn delete_profile(db: &mut PgConnection, name: &str, condition: &Condition) -> Result<Deletion> {
    let statement = "delete from profiles where pipeline = $1 and ($2::bigint[] is null or version = any($2))";
    if delete_row(db, statement, name, condition).await? {
        return Ok(Deletion::Done);
    }
    let there = get(db, name).await?.is_some_and(|row| row.profile.is_some());
    Ok(if there { Deletion::OtherVersion } else { Deletion::Missing })
}
