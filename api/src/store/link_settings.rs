//! How connections between agents are protected.

use super::connection::{PgConnection, Result};

/// The setting of the fleet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, sqlx::FromRow)]
pub struct LinkSettingsRow {
    /// Whether they use TLS.
    pub tls: bool,
    /// It rises with each change.
    pub version: i64,
}

/// The setting in force.
///
/// # Errors
/// The database's.
pub async fn get(db: &mut PgConnection) -> Result<LinkSettingsRow> {
    sqlx::query_as("select tls, version from link_settings").fetch_one(db).await
}

/// Changes the setting; returns whether it was another one. The version is not read.
///
/// # Errors
/// The database's.
pub async fn put(db: &mut PgConnection, row: LinkSettingsRow) -> Result<bool> {
    let update = sqlx::query("update link_settings set tls = $1, version = version + 1 where tls <> $1");
    Ok(update.bind(row.tls).execute(db).await?.rows_affected() == 1)
}
