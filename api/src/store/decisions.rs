//! The decisions of the replanning loop, with their reasons.

use super::connection::{PgConnection, Result, Time};
use apportion_wire::DecisionKind;
use uuid::Uuid;

/// One decision.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct DecisionRow {
    /// Its identifier.
    pub id: Uuid,
    /// The pipeline.
    pub pipeline: String,
    /// The decision.
    #[sqlx(try_from = "String")]
    pub decision: DecisionKind,
    /// The reason in one sentence.
    pub reason: String,
    /// The planned demand.
    pub demand_qps: f64,
    /// The new plan, if there is one.
    pub plan: Option<Uuid>,
    /// The costs of the plan in force and the new one, if they decided.
    pub costs: Option<serde_json::Value>,
    /// The plan that the pipeline would have with all devices to itself, if one was made.
    pub alternative: Option<serde_json::Value>,
    /// When it was made.
    pub made_at: Time,
}

/// The filter of a reader.
#[derive(Clone, Debug, Default)]
pub struct DecisionFilter {
    /// Only decisions about this pipeline.
    pub pipeline: Option<String>,
    /// Only decisions of this kind.
    pub decision: Option<DecisionKind>,
}

/// Stores a decision.
///
/// # Errors
/// The database's.
pub async fn insert(db: &mut PgConnection, row: &DecisionRow) -> Result<()> {
    sqlx::query(
        "insert into decisions (id, pipeline, decision, reason, demand_qps, plan, costs, alternative, made_at)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
    )
    .bind(row.id)
    .bind(&row.pipeline)
    .bind(row.decision.name())
    .bind(&row.reason)
    .bind(row.demand_qps)
    .bind(row.plan)
    .bind(&row.costs)
    .bind(&row.alternative)
    .bind(row.made_at)
    .execute(db)
    .await?;
    Ok(())
}

/// Adds the plan that its pipeline would have with all devices to itself to a decision, unless that is deleted already.
///
/// # Errors
/// The database's.
pub async fn add_alternative(db: &mut PgConnection, id: Uuid, alternative: &serde_json::Value) -> Result<()> {
    sqlx::query("update decisions set alternative = $2 where id = $1").bind(id).bind(alternative).execute(db).await?;
    Ok(())
}

/// At most `limit` decisions before this one, the newest first; `None`: the newest of all.
///
/// # Errors
/// The database's.
pub async fn list(
    db: &mut PgConnection,
    filter: &DecisionFilter,
    before: Option<Uuid>,
    limit: i64,
) -> Result<Vec<DecisionRow>> {
    sqlx::query_as(
        "select id, pipeline, decision, reason, demand_qps, plan, costs, alternative, made_at from decisions
         where ($1::text is null or pipeline = $1) and ($2::text is null or decision = $2)
         and ($3::uuid is null or id < $3) order by id desc limit $4",
    )
    .persistent(false)
    .bind(&filter.pipeline)
    .bind(filter.decision.map(DecisionKind::name))
    .bind(before)
    .bind(limit)
    .fetch_all(db)
    .await
}
