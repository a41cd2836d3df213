//! Registered hardware types.

use super::connection::{Condition, Deletion, PgConnection, Result, delete_row};

/// A registered hardware type.
#[derive(Clone, Debug, PartialEq, sqlx::FromRow)]
pub struct HardwareRow {
    /// Its name.
    pub name: String,
    /// Price of one device.
    pub price_per_hour: f64,
    /// Memory of one device.
    pub memory_mib: Option<f64>,
    /// Most devices for pipelines without agents; `None` for no device.
    pub count_max: Option<i32>,
    /// Counts its replacements; a write does not read it.
    pub version: i64,
}

/// Creates or replaces; returns its new version, 1 if it was created, or `None` if the condition does not hold.
///
/// # Errors
/// The database's.
pub async fn put(db: &mut PgConnection, row: &HardwareRow, condition: &Condition) -> Result<Option<i64>> {
    let statement = match condition.needs_row() {
        true => {
            "update hardware set price_per_hour = $2, memory_mib = $3, count_max = $5, version = version + 1
             where name = $1 and ($4::bigint[] is null or version = any($4)) returning version"
        }
        false => {
            "insert into hardware (name, price_per_hour, memory_mib, count_max) select $1, $2, $3, $5
             where $4::bigint[] is null on conflict (name) do update set price_per_hour = $2, memory_mib = $3,
             count_max = $5, version = hardware.version + 1 returning version"
        }
    };
    sqlx::query_scalar(statement)
        .bind(&row.name)
        .bind(row.price_per_hour)
        .bind(row.memory_mib)
        .bind(condition.versions())
        .bind(row.count_max)
        .fetch_optional(db)
        .await
}

/// The type with this name.
///
/// # Errors
/// The database's.
pub async fn get(db: &mut PgConnection, name: &str) -> Result<Option<HardwareRow>> {
    sqlx::query_as("select name, price_per_hour, memory_mib, count_max, version from hardware where name = $1")
        .bind(name)
        .fetch_optional(db)
        .await
}

/// All types by name.
///
/// # Errors
/// The database's.
pub async fn list(db: &mut PgConnection) -> Result<Vec<HardwareRow>> {
    const ALL: &str = "select name, price_per_hour, memory_mib, count_max, version from hardware order by name";
    sqlx::query_as(ALL).fetch_all(db).await
}

/// At most `limit` types after this name, by name; `None`: the first ones.
///
/// # Errors
/// The database's.
pub async fn page(db: &mut PgConnection, after: Option<&str>, limit: i64) -> Result<Vec<HardwareRow>> {
    sqlx::query_as(
        "select name, price_per_hour, memory_mib, count_max, version from hardware where $1::text is null or name > $1
         order by name limit $2",
    )
    .persistent(false)
    .bind(after)
    .bind(limit)
    .fetch_all(db)
    .await
}

/// Deletes the type if its version is allowed.
///
/// # Errors
/// The database's.
pub async fn delete(db: &mut PgConnection, name: &str, condition: &Condition) -> Result<Deletion> {
    let statement = "delete from hardware where name = $1 and ($2::bigint[] is null or version = any($2))";
    if delete_row(db, statement, name, condition).await? {
        return Ok(Deletion::Done);
    }
    Ok(if get(db, name).await?.is_some() { Deletion::OtherVersion } else { Deletion::Missing })
}
