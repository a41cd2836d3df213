//! What is advised for pipelines without agents, and how well their demand is known.

use super::connection::{PgConnection, Result, Time};
use serde_json::Value;
use uuid::Uuid;

/// The advice for one pipeline.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct AdviceRow {
    /// The pipeline.
    pub pipeline: String,
    /// The last plan that was advised; `None` before the first.
    pub plan: Option<Uuid>,
    /// Its plan file.
    pub document: Option<Value>,
    /// The demand as it was seen last, in queries per second.
    pub demand_qps: f64,
    /// The moment of the newest sample behind it.
    pub seen_at: Time,
    /// Why the demand is not known now; `None` if it is.
    pub unknown: Option<String>,
    /// The deployment as it was seen last, and the effect of following the advice.
    pub deployment: Option<Value>,
    /// Why the deployment is not known now; `None` if it is, or if no source says it.
    pub deployment_unknown: Option<String>,
}

impl AdviceRow {
    /// The assignments of the advice; none without a plan.
    pub fn groups(&self) -> impl Iterator<Item = &Value> {
        let pipelines = self.document.as_ref().and_then(|plan| plan["pipelines"].as_array()).into_iter().flatten();
        let of_pipeline = pipelines.filter(|part| part["name"] == self.pipeline.as_str());
        of_pipeline.filter_map(|part| part["assignments"].as_array()).flatten()
    }
}

/// Notes the demand of a pipeline. The last advice stays.
///
/// # Errors
/// The database's.
pub async fn note_demand(db: &mut PgConnection, pipeline: &str, demand_qps: f64, seen_at: Time) -> Result<()> {
    sqlx::query(
        "insert into advice (pipeline, demand_qps, seen_at) select name, $2, $3 from pipelines where name = $1
         on conflict (pipeline) do update set demand_qps = $2, seen_at = $3, unknown = null",
    )
    .bind(pipeline)
    .bind(demand_qps)
    .bind(seen_at)
    .execute(db)
    .await?;
    Ok(())
}

/// Notes why the demand is not known. Demand, moment and advice stay. Returns whether it was known until now; a pipeline
/// that never had a demand has no row.
///
/// # Errors
/// The database's.
pub async fn note_unknown(db: &mut PgConnection, pipeline: &str, why: &str) -> Result<bool> {
    let was_known: Option<bool> = sqlx::query_scalar(
        "update advice a set unknown = $2 from (select unknown is null as known from advice where pipeline = $1 for update) b
         where a.pipeline = $1 returning b.known",
    )
    .bind(pipeline)
    .bind(why)
    .fetch_optional(db)
    .await?;
    Ok(was_known.unwrap_or(false))
}

/// Notes another plan as the advice.
///
/// # Errors
/// The database's.
pub async fn note_plan(db: &mut PgConnection, pipeline: &str, plan: Uuid) -> Result<()> {
    sqlx::query("update advice set plan = $2 where pipeline = $1").bind(pipeline).bind(plan).execute(db).await?;
    Ok(())
}

/// Notes the deployment, or why it is not known. Without a new one, the last one stays.
///
/// # Errors
/// The database's.
pub async fn note_deployment(
    db: &mut PgConnection,
    pipeline: &str,
    deployment: Option<&Value>,
    unknown: Option<&str>,
) -> Result<()> {
    sqlx::query("update advice set deployment = coalesce($2, deployment), deployment_unknown = $3 where pipeline = $1")
        .bind(pipeline)
        .bind(deployment)
        .bind(unknown)
        .execute(db)
        .await?;
    Ok(())
}

/// A select of [`AdviceRow`]s with its condition.
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "select a.pipeline, a.plan, p.plan as document, a.demand_qps, a.seen_at, a.unknown,
             a.deployment, a.deployment_unknown from advice a left join plans p on p.id = a.plan ",
            $rest
        )
    };
}

/// The advice for a pipeline.
///
/// # Errors
/// The database's.
pub async fn get(db: &mut PgConnection, pipeline: &str) -> Result<Option<AdviceRow>> {
    sqlx::query_as(select!("where a.pipeline = $1")).bind(pipeline).fetch_optional(db).await
}

/// All advice by pipeline.
///
/// # Errors
/// The database's.
pub async fn list(db: &mut PgConnection) -> Result<Vec<AdviceRow>> {
    sqlx::query_as(select!("order by a.pipeline")).fetch_all(db).await
}

/// Deletes the advice of all other pipelines: they have another source of demand.
///
/// # Errors
/// The database's.
pub async fn keep_only(db: &mut PgConnection, pipelines: &[String]) -> Result<()> {
    sqlx::query("delete from advice where pipeline <> all($1)").bind(pipelines).execute(db).await?;
    Ok(())
}
