//! The newest demand and deployment that clients have posted.

use super::connection::{PgConnection, Result, Time};
use serde_json::Value;

/// What a client has posted of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FactKind {
    /// The queries per second at its root.
    Demand,
    /// The replicas of its groups.
    Deployment,
}

impl FactKind {
    /// The word in the table.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Demand => "demand",
            Self::Deployment => "deployment",
        }
    }
}

/// One posted fact.
#[derive(Clone, Debug, PartialEq, sqlx::FromRow)]
pub struct PushedFactRow {
    /// The pipeline.
    pub pipeline: String,
    /// The word of a [`FactKind`].
    pub kind: String,
    /// The fact.
    pub value: Value,
    /// The moment for which it holds.
    pub seen_at: Time,
}

/// Stores a fact, unless a newer one is there. The pipeline must exist.
///
/// # Errors
/// The database's.
pub async fn put(db: &mut PgConnection, pipeline: &str, kind: FactKind, value: &Value, seen_at: Time) -> Result<()> {
    sqlx::query(
        "insert into pushed_facts (pipeline, kind, value, seen_at) select name, $2, $3, $4 from pipelines where name = $1
         on conflict (pipeline, kind) do update set value = excluded.value, seen_at = excluded.seen_at
         where pushed_facts.seen_at <= excluded.seen_at",
    )
    .bind(pipeline)
    .bind(kind.name())
    .bind(value)
    .bind(seen_at)
    .execute(db)
    .await?;
    Ok(())
}

/// The newest fact of a kind.
///
/// # Errors
/// The database's.
pub async fn get(db: &mut PgConnection, pipeline: &str, kind: FactKind) -> Result<Option<PushedFactRow>> {
    sqlx::query_as("select pipeline, kind, value, seen_at from pushed_facts where pipeline = $1 and kind = $2")
        .bind(pipeline)
        .bind(kind.name())
        .fetch_optional(db)
        .await
}
