//! The decisions of the replanning loop, with their reasons.

use super::connection::{LIST_MAX, PgConnection, Result, Time};
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
    /// When it was made.
    pub made_at: Time,
}

/// Stores a decision.
///
/// # Errors
/// The database's.
pub async fn insert(db: &mut PgConnection, row: &DecisionRow) -> Result<()> {
    sqlx::query(
        "insert into decisions (id, pipeline, decision, reason, demand_qps, plan, costs, made_at)
         values ($1, $2, $3, $4, $5, $6, $7, $8)",
    )
    .bind(row.id)
    .bind(&row.pipeline)
    .bind(row.decision.name())
    .bind(&row.reason)
    .bind(row.demand_qps)
    .bind(row.plan)
    .bind(&row.costs)
    .bind(row.made_at)
    .execute(db)
    .await?;
    Ok(())
}

/// The newest decisions.
///
/// # Errors
/// The database's.
pub async fn list(db: &mut PgConnection) -> Result<Vec<DecisionRow>> {
    sqlx::query_as(
        "select id, pipeline, decision, reason, demand_qps, plan, costs, made_at from decisions order by id desc limit $1",
    )
    .bind(LIST_MAX)
    .fetch_all(db)
    .await
}

/// Deletes decisions before this time.
///
/// # Errors
/// The database's.
pub async fn forget(db: &mut PgConnection, before: Time) -> Result<()> {
    sqlx::query("delete from decisions where made_at < $1").bind(before).execute(db).await?;
    Ok(())
}
