//! Machines that were asked for, and the devices that pipelines want.

use super::connection::{PgConnection, Result, Time};
use std::collections::BTreeMap;

/// A machine.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct MachineRow {
    /// Its name, which is its agent's too.
    pub name: String,
    /// The hardware type that was asked for.
    pub hardware: String,
    /// Its substrate.
    pub substrate: String,
    /// Its devices: as asked for, and as its agent says once that has come.
    pub devices: i32,
    /// The name of its stage.
    pub stage: String,
    /// The substrate's name for it; `None`: it has not answered.
    pub handle: Option<String>,
    /// The reason for its stage.
    pub reason: String,
    /// When it was asked for.
    pub asked_at: Time,
    /// When its stage began.
    pub stage_at: Time,
    /// When its agent came first.
    pub came_at: Option<Time>,
    /// When the service began to give it back.
    pub returned_at: Option<Time>,
    /// The zone in which it was asked for; `None`: in any.
    pub zone: Option<String>,
}

/// Which machines a list has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineFilter {
    /// Only those of this hardware type.
    pub hardware: Option<String>,
    /// Only those in the stage with this name.
    pub stage: Option<&'static str>,
}

/// Another stage of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageChange<'a> {
    /// Its name.
    pub name: &'a str,
    /// The name of the new stage.
    pub stage: &'a str,
    /// The reason for it.
    pub reason: &'a str,
    /// When it begins.
    pub at: Time,
}

/// Devices that a pipeline wants.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct WantRow {
    /// The pipeline.
    pub pipeline: String,
    /// The hardware type.
    pub hardware: String,
    /// Devices of it.
    pub devices: i32,
}

/// The number of machines of one type in one stage.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct MachineCount {
    /// The hardware type.
    pub hardware: String,
    /// The name of the stage.
    pub stage: String,
    /// How many there are.
    pub machines: i64,
}

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "select name, hardware, substrate, devices, stage, handle, reason, asked_at, stage_at, came_at,
             returned_at, zone from machines ",
            $rest
        )
    };
}

/// Writes a machine that nobody has written before; returns whether it is new.
///
/// # Errors
/// The database's.
pub async fn insert(db: &mut PgConnection, row: &MachineRow) -> Result<bool> {
    let done = sqlx::query(
        "insert into machines (name, hardware, substrate, devices, stage, handle, reason, asked_at, stage_at, zone)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) on conflict (name) do nothing",
    )
    .bind(&row.name)
    .bind(&row.hardware)
    .bind(&row.substrate)
    .bind(row.devices)
    .bind(&row.stage)
    .bind(&row.handle)
    .bind(&row.reason)
    .bind(row.asked_at)
    .bind(row.stage_at)
    .bind(&row.zone)
    .execute(db)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// How many machines of a type are there or asked for in each zone. Those that go back do not count.
///
/// # Errors
/// The database's.
pub async fn count_by_zone(db: &mut PgConnection, hardware: &str) -> Result<BTreeMap<String, i64>> {
    let counts: Vec<(String, i64)> = sqlx::query_as(
        "select zone, count(*) from machines where hardware = $1 and zone is not null and stage in ('coming', 'alive')
         group by zone",
    )
    .bind(hardware)
    .fetch_all(db)
    .await?;
    Ok(counts.into_iter().collect())
}

/// The machines that have not ended, by name.
///
/// # Errors
/// The database's.
pub async fn open(db: &mut PgConnection) -> Result<Vec<MachineRow>> {
    sqlx::query_as(select!("where stage <> 'ended' order by name")).fetch_all(db).await
}

/// At most `limit` machines after this name, by name; `None`: the first ones.
///
/// # Errors
/// The database's.
pub async fn page(
    db: &mut PgConnection,
    filter: &MachineFilter,
    after: Option<&str>,
    limit: i64,
) -> Result<Vec<MachineRow>> {
    sqlx::query_as(select!(
        "where ($1::text is null or name > $1) and ($2::text is null or hardware = $2)
         and ($3::text is null or stage = $3) order by name limit $4"
    ))
    .persistent(false)
    .bind(after)
    .bind(&filter.hardware)
    .bind(filter.stage)
    .bind(limit)
    .fetch_all(db)
    .await
}

/// The machine with this name.
///
/// # Errors
/// The database's.
pub async fn get(db: &mut PgConnection, name: &str) -> Result<Option<MachineRow>> {
    sqlx::query_as(select!("where name = $1")).bind(name).fetch_optional(db).await
}

/// Notes the substrate's name for a machine.
///
/// # Errors
/// The database's.
pub async fn set_handle(db: &mut PgConnection, name: &str, handle: &str) -> Result<()> {
    sqlx::query("update machines set handle = $2 where name = $1").bind(name).bind(handle).execute(db).await?;
    Ok(())
}

/// Begins another stage of a machine.
///
/// # Errors
/// The database's.
pub async fn set_stage(db: &mut PgConnection, change: &StageChange<'_>) -> Result<()> {
    sqlx::query("update machines set stage = $2, reason = $3, stage_at = $4 where name = $1")
        .bind(change.name)
        .bind(change.stage)
        .bind(change.reason)
        .bind(change.at)
        .execute(db)
        .await?;
    Ok(())
}

/// Notes the agent of a machine: its devices, and that it has come.
///
/// # Errors
/// The database's.
pub async fn set_came(db: &mut PgConnection, name: &str, devices: i32, at: Time) -> Result<()> {
    sqlx::query("update machines set devices = $2, came_at = coalesce(came_at, $3) where name = $1")
        .bind(name)
        .bind(devices)
        .bind(at)
        .execute(db)
        .await?;
    Ok(())
}

/// Notes that the service begins to give a machine back, which the budget counts.
///
/// # Errors
/// The database's.
pub async fn set_returned(db: &mut PgConnection, name: &str, at: Time) -> Result<()> {
    sqlx::query("update machines set returned_at = $2 where name = $1").bind(name).bind(at).execute(db).await?;
    Ok(())
}

/// The machines that were asked for since a moment, and those that began to be given back.
///
/// # Errors
/// The database's.
pub async fn changes_since(db: &mut PgConnection, since: Time) -> Result<i64> {
    let count = "select (select count(*) from machines where asked_at >= $1)
                 + (select count(*) from machines where returned_at >= $1)";
    sqlx::query_scalar(count).bind(since).fetch_one(db).await
}

/// The machines that have not ended, by type and stage.
///
/// # Errors
/// The database's.
pub async fn count_open(db: &mut PgConnection) -> Result<Vec<MachineCount>> {
    let count =
        "select hardware, stage, count(*) as machines from machines where stage <> 'ended' group by hardware, stage";
    sqlx::query_as(count).fetch_all(db).await
}

/// Writes the devices that a pipeline wants, in the place of those before. A pipeline that is not registered wants none.
///
/// # Errors
/// The database's.
pub async fn put_wants(
    db: &mut PgConnection,
    pipeline: &str,
    devices: &BTreeMap<String, u32>,
    made_at: Time,
) -> Result<()> {
    sqlx::query("delete from machine_wants where pipeline = $1").bind(pipeline).execute(&mut *db).await?;
    for (hardware, count) in devices {
        sqlx::query(
            "insert into machine_wants (pipeline, hardware, devices, made_at)
             select p.name, $2, $3, $4 from pipelines p where p.name = $1",
        )
        .bind(pipeline)
        .bind(hardware)
        .bind(i32::try_from(*count).unwrap_or(i32::MAX))
        .bind(made_at)
        .execute(&mut *db)
        .await?;
    }
    Ok(())
}

/// The devices that pipelines want whose plans are deployed by rounds.
///
/// # Errors
/// The database's.
pub async fn wants(db: &mut PgConnection) -> Result<Vec<WantRow>> {
    sqlx::query_as(
        "select w.pipeline, w.hardware, w.devices from machine_wants w join pipelines p on p.name = w.pipeline
         where p.spec -> 'replan' ->> 'mode' = 'apply' order by w.pipeline, w.hardware",
    )
    .fetch_all(db)
    .await
}
