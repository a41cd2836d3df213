//! Agents that have registered.

use super::{PgConnection, Result, Time};
use serde_json::Value;
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

/// Stores a registration under its name; `number`, `state`, `ack`, `device_use` and `load_failures` of `row` are not read. Answers its number.
///
/// # Errors
/// The database's.
pub async fn register(db: &mut PgConnection, row: &AgentRow) -> Result<i64> {
    sqlx::query_scalar(
        "insert into agents (name, hardware, devices, ingress_http, data_address, process_id, session, state, registered_at,
         seen_at, ingress_grpc) values ($1, $2, $3, $4, $5, $6, $7, 'live', $8, $8, $9)
         on conflict (name) do update set hardware = $2, devices = $3, ingress_http = $4, data_address = $5, process_id = $6,
         session = $7, state = 'live', registered_at = $8, seen_at = $8, ingress_grpc = $9, ack = null, device_use = null returning number",
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
    .fetch_one(db)
    .await
}

/// Says that the agent's stream is alive; an agent that was taken for lost is live again. Answers whether the stream is
/// still the newest.
///
/// # Errors
/// The database's.
pub async fn seen(db: &mut PgConnection, session: Uuid, at: Time) -> Result<bool> {
    let done = sqlx::query("update agents set seen_at = $2, state = 'live' where session = $1 and state <> 'left'")
        .bind(session)
        .bind(at)
        .execute(db)
        .await?;
    Ok(done.rows_affected() == 1)
}

/// The same for many streams, each heard of at its time. Answers which of them are still the newest.
///
/// # Errors
/// The database's.
pub async fn seen_all(db: &mut PgConnection, sessions: &[Uuid], at: &[Time]) -> Result<Vec<Uuid>> {
    sqlx::query_scalar(
        "update agents set seen_at = heard.at, state = 'live' from unnest($1::uuid[], $2::timestamptz[]) as heard (session, at)
         where agents.session = heard.session and agents.state <> 'left' returning agents.session",
    )
    .bind(sessions)
    .bind(at)
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

/// Stores the agent's last acknowledgement.
///
/// # Errors
/// The database's.
pub async fn acknowledge(db: &mut PgConnection, session: Uuid, ack: &Value) -> Result<()> {
    sqlx::query("update agents set ack = $2 where session = $1").bind(session).bind(ack).execute(db).await?;
    Ok(())
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

/// Stores what the agent's devices say.
///
/// # Errors
/// The database's.
pub async fn devices(db: &mut PgConnection, session: Uuid, device_use: &Value) -> Result<()> {
    let update = sqlx::query("update agents set device_use = $2 where session = $1");
    update.bind(session).bind(device_use).execute(db).await?;
    Ok(())
}

/// Takes every live agent that was not heard of since `seen_before` for lost; answers their names.
///
/// # Errors
/// The database's.
pub async fn lose_silent(db: &mut PgConnection, seen_before: Time) -> Result<Vec<String>> {
    sqlx::query_scalar("update agents set state = 'lost' where state = 'live' and seen_at < $1 returning name")
        .bind(seen_before)
        .fetch_all(db)
        .await
}
