//! Registered hardware types.

use super::connection::{Condition, Deletion, PgConnection, Result, Time, delete_row};

/// A registered hardware type.
#[derive(Clone, Debug, Default, PartialEq, sqlx::FromRow)]
pub struct HardwareRow {
    /// Its name.
    pub name: String,
    /// Price of one device.
    pub price_per_hour: f64,
    /// Memory of one device.
    pub memory_mib: Option<f64>,
    /// Most devices for pipelines without agents, or with a substrate of all agents together; `None` for no device.
    pub count_max: Option<i32>,
    /// Counts its replacements; a write does not read it.
    pub version: i64,
    /// The substrate that has machines of it.
    pub substrate: Option<String>,
    /// Seconds from a wish for a machine to its agent, as they were given.
    pub provision_s: Option<f64>,
    /// The zones in which machines of it are asked for, in turns.
    pub zones: Vec<String>,
    /// Expected losses of one machine in an hour, if they are spot machines.
    pub hazard_per_hour: Option<f64>,
    /// The same as measured; a write does not read it.
    pub provision_measured_s: Option<f64>,
    /// Wishes that expired since it was registered; a write does not read it.
    pub wishes_expired: i64,
    /// Wishes that expired since the last machine came; a write does not read it.
    pub expired_in_row: i32,
    /// No machine is asked for before this moment; a write does not read it.
    pub retry_at: Option<Time>,
}

/// Longest wait after a wish that expired, as a multiple of the shortest.
const RETRY_FACTOR_MAX: f64 = 8.0;
/// Weight of the newest machine in the measured time.
const MEASURED_WEIGHT: f64 = 0.3;

macro_rules! columns {
    () => {
        "name, price_per_hour, memory_mib, count_max, version, substrate, provision_s, provision_measured_s, wishes_expired,
         expired_in_row, retry_at, zones, hazard_per_hour"
    };
}

/// Creates or replaces; returns the row, with version 1 if it was created, or `None` if the condition does not hold. The
/// wait after expired wishes ends.
///
/// # Errors
/// The database's.
pub async fn put(db: &mut PgConnection, row: &HardwareRow, condition: &Condition) -> Result<Option<HardwareRow>> {
    let statement = match condition.needs_row() {
        true => concat!(
            "update hardware set price_per_hour = $2, memory_mib = $3, count_max = $5, substrate = $6, provision_s = $7,
             zones = $8, hazard_per_hour = $9, expired_in_row = 0, retry_at = null, version = version + 1
             where name = $1 and ($4::bigint[] is null or version = any($4)) returning ",
            columns!()
        ),
        false => concat!(
            "insert into hardware (name, price_per_hour, memory_mib, count_max, substrate, provision_s, zones,
             hazard_per_hour) select $1, $2, $3, $5, $6, $7, $8, $9 where $4::bigint[] is null or 0 = any($4)
             on conflict (name) do update set
             price_per_hour = $2, memory_mib = $3, count_max = $5, substrate = $6, provision_s = $7,
             zones = $8, hazard_per_hour = $9, expired_in_row = 0, retry_at = null, version = hardware.version + 1
             where $4 is null returning ",
            columns!()
        ),
    };
    sqlx::query_as(statement)
        .bind(&row.name)
        .bind(row.price_per_hour)
        .bind(row.memory_mib)
        .bind(condition.versions())
        .bind(row.count_max)
        .bind(&row.substrate)
        .bind(row.provision_s)
        .bind(&row.zones)
        .bind(row.hazard_per_hour)
        .fetch_optional(db)
        .await
}

/// The type with this name.
///
/// # Errors
/// The database's.
pub async fn get(db: &mut PgConnection, name: &str) -> Result<Option<HardwareRow>> {
    const ONE: &str = concat!("select ", columns!(), " from hardware where name = $1");
    sqlx::query_as(ONE).bind(name).fetch_optional(db).await
}

/// All types by name.
///
/// # Errors
/// The database's.
pub async fn list(db: &mut PgConnection) -> Result<Vec<HardwareRow>> {
    const ALL: &str = concat!("select ", columns!(), " from hardware order by name");
    sqlx::query_as(ALL).fetch_all(db).await
}

/// At most `limit` types after this name, by name; `None`: the first ones. With `prefix` only those whose names begin with
/// it.
///
/// # Errors
/// The database's.
pub async fn page(
    db: &mut PgConnection,
    prefix: Option<&str>,
    after: Option<&str>,
    limit: i64,
) -> Result<Vec<HardwareRow>> {
    const PAGE: &str = concat!(
        "select ",
        columns!(),
        " from hardware where ($1::text is null or name > $1) and ($3::text is null or starts_with(name, $3))
         order by name limit $2"
    );
    sqlx::query_as(PAGE).persistent(false).bind(after).bind(limit).bind(prefix).fetch_all(db).await
}

/// Notes that a machine has come after these seconds.
///
/// # Errors
/// The database's.
pub async fn note_came(db: &mut PgConnection, name: &str, seconds: f64) -> Result<()> {
    sqlx::query(
        "update hardware set provision_measured_s = coalesce(provision_measured_s * (1 - $3) + $2 * $3, $2),
         expired_in_row = 0, retry_at = null where name = $1",
    )
    .bind(name)
    .bind(seconds)
    .bind(MEASURED_WEIGHT)
    .execute(db)
    .await?;
    Ok(())
}

/// Notes that a wish has expired at this moment. The next one waits for these seconds, and for twice as long after each
/// further one in a row.
///
/// # Errors
/// The database's.
pub async fn note_expired(db: &mut PgConnection, name: &str, at: Time, wait_s: f64) -> Result<()> {
    sqlx::query(
        "update hardware set wishes_expired = wishes_expired + 1, expired_in_row = expired_in_row + 1,
         retry_at = $2 + make_interval(secs => $3 * least($4, power(2, least(expired_in_row, 30)))) where name = $1",
    )
    .bind(name)
    .bind(at)
    .bind(wait_s)
    .bind(RETRY_FACTOR_MAX)
    .execute(db)
    .await?;
    Ok(())
}

/// Asks for no machine of this type before a moment, or a later one that was noted already.
///
/// # Errors
/// The database's.
pub async fn set_retry(db: &mut PgConnection, name: &str, at: Time) -> Result<()> {
    let update = "update hardware set retry_at = greatest(retry_at, $2) where name = $1";
    sqlx::query(update).bind(name).bind(at).execute(db).await?;
    Ok(())
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
