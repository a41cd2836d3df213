//! Registered hardware types.

use super::{PgConnection, Result};

/// A registered hardware type.
#[derive(Clone, Debug, PartialEq, sqlx::FromRow)]
pub struct HardwareRow {
    /// Its name.
    pub name: String,
    /// Price of one device.
    pub price_per_hour: f64,
    /// Memory of one device.
    pub memory_mib: Option<f64>,
}

/// Creates or replaces; answers whether it was created.
///
/// # Errors
/// The database's.
pub async fn put(db: &mut PgConnection, row: &HardwareRow) -> Result<bool> {
    sqlx::query_scalar(
        "insert into hardware (name, price_per_hour, memory_mib) values ($1, $2, $3)
         on conflict (name) do update set price_per_hour = $2, memory_mib = $3 returning xmax = 0",
    )
    .bind(&row.name)
    .bind(row.price_per_hour)
    .bind(row.memory_mib)
    .fetch_one(db)
    .await
}

/// The type with this name.
///
/// # Errors
/// The database's.
pub async fn get(db: &mut PgConnection, name: &str) -> Result<Option<HardwareRow>> {
    sqlx::query_as("select name, price_per_hour, memory_mib from hardware where name = $1")
        .bind(name)
        .fetch_optional(db)
        .await
}

/// All types by name.
///
/// # Errors
/// The database's.
pub async fn list(db: &mut PgConnection) -> Result<Vec<HardwareRow>> {
    sqlx::query_as("select name, price_per_hour, memory_mib from hardware order by name").fetch_all(db).await
}

/// Whether there was one to delete.
///
/// # Errors
/// The database's.
pub async fn delete(db: &mut PgConnection, name: &str) -> Result<bool> {
    let done = sqlx::query("delete from hardware where name = $1").bind(name).execute(db).await?;
    Ok(done.rows_affected() == 1)
}
