//! What runs the variants of the agents?

use super::connection::{PgConnection, Result};
use apportion_wire::AgentState;

/// An agent, as far as its backend matters.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct AgentBackendRow {
    /// Its name.
    pub name: String,
    /// Hardware type of its devices.
    pub hardware: String,
    /// What runs its variants; empty if it has not told.
    pub backend: String,
}

/// All agents that have not left, by number. A lost one may come back.
///
/// # Errors
/// The database's.
pub async fn list(db: &mut PgConnection) -> Result<Vec<AgentBackendRow>> {
    let select = "select name, hardware, backend from agents where state <> $1 order by number";
    sqlx::query_as(select).bind(AgentState::Left.name()).fetch_all(db).await
}
