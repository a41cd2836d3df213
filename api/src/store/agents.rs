//! Agents that have registered.

use super::{PgConnection, Result, Time};
use serde_json::Value;
use std::collections::BTreeMap;
use uuid::Uuid;

/// An agent.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct AgentRow {
    /// Its number, the same for as long as its name is.
    pub number: i64,
    /// Its name.
    pub name: String,
    /// Hardware type of its devices.
    pub hardware: String,
    /// How many devices.
    pub devices: i32,
    /// Where clients reach it.
    pub ingress_http: String,
    /// Where clients reach it by gRPC; empty if it has none.
    pub ingress_grpc: String,
    /// Where other agents reach it.
    pub data_address: String,
    /// Of its process.
    pub process_id: String,
    /// Of its newest stream.
    pub session: Uuid,
    /// `live | lost | left`.
    pub state: String,
    /// When it registered last.
    pub registered_at: Time,
    /// When it was last heard of.
    pub seen_at: Time,
    /// Its last acknowledgement.
    pub ack: Option<Value>,
    /// What its devices said last, if they can be asked.
    pub device_use: Option<Value>,
    /// The last replicas that could not be loaded there.
    pub load_failures: Value,
}

macro_rules! columns {
    ($rest:literal) => {
        concat!(
            "select number, name, hardware, devices, ingress_http, ingress_grpc, data_address, process_id, session, state,
             registered_at, seen_at, ack, device_use, load_failures from agents ",
            $rest
        )
    };
}

/// All agents by number.
///
/// # Errors
/// The database's.
pub async fn list(db: &mut PgConnection) -> Result<Vec<AgentRow>> {
    sqlx::query_as(columns!("order by number")).fetch_all(db).await
}

/// The agent with this name, locked until the transaction ends.
///
/// # Errors
/// The database's.
pub async fn lock(db: &mut PgConnection, name: &str) -> Result<Option<AgentRow>> {
    sqlx::query("select pg_advisory_xact_lock(hashtext('agent:' || $1))").bind(name).execute(&mut *db).await?;
    sqlx::query_as(columns!("where name = $1")).bind(name).fetch_optional(db).await
}

/// The highest number that an agent may bring along; a larger one is none of ours.
pub const NUMBER_MAX: i64 = 1 << 40;

/// Stores a registration under its name; `state`, `ack`, `device_use` and `load_failures` of `row` are not
/// read. Answers its number: the one that its name has, else `row.number` if that is free, else a new one.
///
/// # Errors
/// The database's.
pub async fn register(db: &mut PgConnection, row: &AgentRow, holder: Uuid) -> Result<i64> {
    if (1..=NUMBER_MAX).contains(&row.number) {
        bring_along(db, row).await?;
    }
    sqlx::query_scalar(
        "insert into agents (name, hardware, devices, ingress_http, data_address, process_id, session, state, registered_at,
         seen_at, ingress_grpc, holder) values ($1, $2, $3, $4, $5, $6, $7, 'live', $8, $8, $9, $10)
         on conflict (name) do update set hardware = $2, devices = $3, ingress_http = $4, data_address = $5, process_id = $6,
         session = $7, state = 'live', registered_at = $8, seen_at = $8, ingress_grpc = $9, holder = $10, ack = null,
         device_use = null returning number",
    )
    .bind(&row.name)
    .bind(&row.hardware)
    .bind(row.devices)
    .bind(&row.ingress_http)
    .bind(&row.data_address)
    .bind(&row.process_id)
    .bind(row.session)
    .bind(row.registered_at)
    .bind(&row.ingress_grpc)
    .bind(holder)
    .fetch_one(db)
    .await
}

/// Gives a name that is not known yet the number that its agent brings along, if nobody has that.
async fn bring_along(db: &mut PgConnection, row: &AgentRow) -> Result<()> {
    let done = sqlx::query(
        "insert into agents (number, name, hardware, devices, ingress_http, data_address, process_id, session, state,
         registered_at, seen_at) overriding system value
         select $1, $2, $3, $4, $5, $6, $7, $8, 'live', $9, $9
         where not exists (select 1 from agents where number = $1 or name = $2) on conflict do nothing",
    )
    .bind(row.number)
    .bind(&row.name)
    .bind(&row.hardware)
    .bind(row.devices)
    .bind(&row.ingress_http)
    .bind(&row.data_address)
    .bind(&row.process_id)
    .bind(row.session)
    .bind(row.registered_at)
    .execute(&mut *db)
    .await?;
    if done.rows_affected() == 1 {
        // New numbers begin above it.
        let above = "select setval('agents_number_seq', greatest((select max(number) from agents), last_value))
                     from agents_number_seq";
        sqlx::query(above).execute(db).await?;
    }
    Ok(())
}

/// Says that these streams are alive, each heard of so many milliseconds ago; an agent that was taken for lost is live again.
/// Answers which of them are still their agents' newest.
///
/// # Errors
/// The database's.
pub async fn seen_all(db: &mut PgConnection, sessions: &[Uuid], ages_ms: &[i64]) -> Result<Vec<Uuid>> {
    sqlx::query_scalar(
        "update agents set seen_at = clock_timestamp() - heard.age * interval '1 millisecond', state = 'live' from
         (select number, s.age from unnest($1::uuid[], $2::bigint[]) as s (session, age) join agents a on a.session = s.session
          where a.state <> 'left' order by number for update of a) as heard
         where agents.number = heard.number returning agents.session",
    )
    .bind(sessions)
    .bind(ages_ms)
    .fetch_all(db)
    .await
}

/// Ends the agent whose newest stream this is, if it is live; answers whether it was.
///
/// # Errors
/// The database's.
pub async fn end(db: &mut PgConnection, session: Uuid, state: &str) -> Result<bool> {
    let done = sqlx::query("update agents set state = $2 where session = $1 and state = 'live'")
        .bind(session)
        .bind(state)
        .execute(db)
        .await?;
    Ok(done.rows_affected() == 1)
}

/// Takes the live agents whose newest streams these are for lost; answers their names.
///
/// # Errors
/// The database's.
pub async fn lose(db: &mut PgConnection, sessions: &[Uuid]) -> Result<Vec<String>> {
    sqlx::query_scalar("update agents set state = 'lost' where session = any($1) and state = 'live' returning name")
        .bind(sessions)
        .fetch_all(db)
        .await
}

/// Takes the live agents that none of these processes holds for lost; answers their names.
///
/// # Errors
/// The database's.
pub async fn lose_unheld(db: &mut PgConnection, processes: &[Uuid]) -> Result<Vec<String>> {
    sqlx::query_scalar(
        "update agents set state = 'lost' where state = 'live' and (holder is null or holder <> all($1)) returning name",
    )
    .bind(processes)
    .fetch_all(db)
    .await
}

/// Stores the last acknowledgement of each stream's agent.
///
/// # Errors
/// The database's.
pub async fn acknowledge(db: &mut PgConnection, acks: &BTreeMap<Uuid, Value>) -> Result<()> {
    let set = "update agents set ack = said.value from
         (select number, s.value from unnest($1::uuid[], $2::jsonb[]) as s (session, value) join agents a on a.session = s.session
          order by number for update of a) as said where agents.number = said.number";
    say(db, set, acks).await
}

/// What the agent could not load so far; the row is locked until the transaction ends. `None` if the stream is not the newest.
///
/// # Errors
/// The database's.
pub async fn load_failures(db: &mut PgConnection, session: Uuid) -> Result<Option<Value>> {
    let select = sqlx::query_scalar("select load_failures from agents where session = $1 for update");
    select.bind(session).fetch_optional(db).await
}

/// Stores what the agent could not load.
///
/// # Errors
/// The database's.
pub async fn put_load_failures(db: &mut PgConnection, session: Uuid, failures: &Value) -> Result<()> {
    let update = sqlx::query("update agents set load_failures = $2 where session = $1");
    update.bind(session).bind(failures).execute(db).await?;
    Ok(())
}

/// Stores what the devices of each stream's agent say.
///
/// # Errors
/// The database's.
pub async fn devices(db: &mut PgConnection, devices: &BTreeMap<Uuid, Value>) -> Result<()> {
    let set = "update agents set device_use = said.value from
         (select number, s.value from unnest($1::uuid[], $2::jsonb[]) as s (session, value) join agents a on a.session = s.session
          order by number for update of a) as said where agents.number = said.number";
    say(db, set, devices).await
}

/// Rows are locked in the order of their numbers, so that two processes never wait for each other in a circle.
async fn say(db: &mut PgConnection, set: &'static str, values: &BTreeMap<Uuid, Value>) -> Result<()> {
    if values.is_empty() {
        return Ok(());
    }
    let (sessions, values): (Vec<Uuid>, Vec<Value>) = values.iter().map(|(s, value)| (*s, value.clone())).unzip();
    sqlx::query(set).bind(sessions).bind(values).execute(db).await?;
    Ok(())
}
