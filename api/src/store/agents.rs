//! Agents that have registered.

use super::connection::{PgConnection, Result, Time};
use apportion_wire::AgentState;
use serde_json::Value;
use std::collections::BTreeMap;
use uuid::Uuid;

/// An agent.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct AgentRow {
    /// Its number; it belongs to its name until the agent is deleted.
    pub number: i64,
    /// Its name.
    pub name: String,
    /// Hardware type of its devices.
    pub hardware: String,
    /// How many devices.
    pub devices: i32,
    /// The HTTP address of its gateway, for clients.
    pub ingress_http: String,
    /// The gRPC address of its gateway, for clients; empty if it has none.
    pub ingress_grpc: String,
    /// Its address for other agents.
    pub data_address: String,
    /// The identifier of its process.
    pub process_id: String,
    /// The identifier of its newest stream.
    pub session: Uuid,
    /// Its state.
    #[sqlx(try_from = "String")]
    pub state: AgentState,
    /// When it registered last.
    pub registered_at: Time,
    /// The time of its last heartbeat.
    pub seen_at: Time,
    /// Its last acknowledgement.
    pub ack: Option<Value>,
    /// The last use of its devices, if they can be asked.
    pub device_use: Option<Value>,
    /// The last replicas that it could not load.
    pub load_failures: Value,
    /// Whether no replica is placed on it, because its machine goes back.
    pub cordoned: bool,
    /// The times of its hops to other agents, if it has reported any.
    pub hops: Option<Value>,
    /// The times of its last loads.
    pub load_times: Value,
    /// The zone in which it stands; empty if it has told none.
    pub zone: String,
    /// What runs its variants; empty if it has not told.
    pub backend: String,
    /// Its devices that measure for profile jobs.
    pub measured: Vec<i32>,
}

/// A select of [`AgentRow`]s with its condition. An agent has at most one claim.
macro_rules! columns {
    ($rest:literal) => {
        concat!(
            "select number, name, hardware, devices, ingress_http, ingress_grpc, data_address, process_id, session, state,
             registered_at, seen_at, ack, device_use, load_failures, cordoned, hops, load_times, zone, backend,
             array_remove(array[claimed_device], null) as measured
             from agents left join (select agent, device as claimed_device from device_claims) c on c.agent = number ",
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

/// At most `limit` agents after this number, in this state, by number.
///
/// # Errors
/// The database's.
pub async fn page(
    db: &mut PgConnection,
    state: Option<AgentState>,
    after: Option<i64>,
    limit: i64,
) -> Result<Vec<AgentRow>> {
    sqlx::query_as(columns!(
        "where ($1::text is null or state = $1) and ($2::bigint is null or number > $2) order by number limit $3"
    ))
    .persistent(false)
    .bind(state.map(AgentState::name))
    .bind(after)
    .bind(limit)
    .fetch_all(db)
    .await
}

/// The agent with this number.
///
/// # Errors
/// The database's.
pub async fn get(db: &mut PgConnection, number: i64) -> Result<Option<AgentRow>> {
    sqlx::query_as(columns!("where number = $1")).bind(number).fetch_optional(db).await
}

/// Forgets an agent that is not live; returns whether it did.
///
/// # Errors
/// The database's.
pub async fn delete(db: &mut PgConnection, number: i64) -> Result<bool> {
    let delete = sqlx::query("delete from agents where number = $1 and state <> $2");
    Ok(delete.bind(number).bind(AgentState::Live.name()).execute(db).await?.rows_affected() == 1)
}

/// The agent with this name, locked until the transaction ends.
///
/// # Errors
/// The database's.
pub async fn lock(db: &mut PgConnection, name: &str) -> Result<Option<AgentRow>> {
    sqlx::query("select pg_advisory_xact_lock(hashtext('agent:' || $1))").bind(name).execute(&mut *db).await?;
    sqlx::query_as(columns!("where name = $1")).bind(name).fetch_optional(db).await
}

/// By which certificates an agent is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct AgentIdentityRow {
    /// Its number.
    pub number: i64,
    /// Of its row: an agent that was deleted and joins again has another one.
    pub identity: Uuid,
}

/// The identity of the agent with this name.
///
/// # Errors
/// The database's.
pub async fn identity(db: &mut PgConnection, name: &str) -> Result<Option<AgentIdentityRow>> {
    sqlx::query_as("select number, identity from agents where name = $1").bind(name).fetch_optional(db).await
}

/// The highest number that an agent may bring along. A larger one was never given by this service.
pub const NUMBER_MAX: i64 = 1 << 40;

/// Stores a registration under its name and returns the agent's number. That is the number that its name has already, else
/// `row.number` if it is free, else a new one. Of `row`, the state, `cordoned` and all that an agent reports later are not
/// read.
///
/// # Errors
/// The database's.
pub async fn register(db: &mut PgConnection, row: &AgentRow, holder: Uuid) -> Result<i64> {
    if (1..=NUMBER_MAX).contains(&row.number) {
        claim_number(db, row).await?;
    }
    sqlx::query_scalar(
        "insert into agents (name, hardware, devices, ingress_http, data_address, process_id, session, state, registered_at,
         seen_at, ingress_grpc, holder, zone, backend) values ($1, $2, $3, $4, $5, $6, $7, $11, $8, $8, $9, $10, $12, $13)
         on conflict (name) do update set hardware = $2, devices = $3, ingress_http = $4, data_address = $5,
         process_id = $6, session = $7, state = $11, registered_at = $8,
         seen_at = $8, ingress_grpc = $9, holder = $10, zone = $12, backend = $13, ack = null,
         device_use = null, hops = null returning number",
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
    .bind(AgentState::Live.name())
    .bind(&row.zone)
    .bind(&row.backend)
    .fetch_one(db)
    .await
}

/// Gives an unknown name the number that its agent brings along, if the number is free.
async fn claim_number(db: &mut PgConnection, row: &AgentRow) -> Result<()> {
    let done = sqlx::query(
        "insert into agents (number, name, hardware, devices, ingress_http, data_address, process_id, session, state,
         registered_at, seen_at) overriding system value
         select $1, $2, $3, $4, $5, $6, $7, $8, $10, $9, $9
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
    .bind(AgentState::Live.name())
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

/// Writes the heartbeats of these streams, each with the age of its last message in milliseconds. A lost agent becomes live
/// again. Returns the streams that are still the newest of their agents.
///
/// # Errors
/// The database's.
pub async fn write_heartbeats(db: &mut PgConnection, sessions: &[Uuid], ages_ms: &[i64]) -> Result<Vec<Uuid>> {
    sqlx::query_scalar(
        "update agents set seen_at = clock_timestamp() - heard.age * interval '1 millisecond', state = $3 from
         (select number, s.age from unnest($1::uuid[], $2::bigint[]) as s (session, age)
          join agents a on a.session = s.session
          where a.state <> $4 order by number for update of a) as heard
         where agents.number = heard.number returning agents.session",
    )
    .bind(sessions)
    .bind(ages_ms)
    .bind(AgentState::Live.name())
    .bind(AgentState::Left.name())
    .fetch_all(db)
    .await
}

/// Marks a live agent as left, by its newest stream; returns whether it was live.
///
/// # Errors
/// The database's.
pub async fn mark_left(db: &mut PgConnection, session: Uuid) -> Result<bool> {
    let done = sqlx::query("update agents set state = $2 where session = $1 and state = $3")
        .bind(session)
        .bind(AgentState::Left.name())
        .bind(AgentState::Live.name())
        .execute(db)
        .await?;
    Ok(done.rows_affected() == 1)
}

/// Places no replica on the agent with this name from now on.
///
/// # Errors
/// The database's.
pub async fn cordon(db: &mut PgConnection, name: &str) -> Result<()> {
    sqlx::query("update agents set cordoned = true where name = $1").bind(name).execute(db).await?;
    Ok(())
}

/// Lets replicas be placed on the agent with this name again.
///
/// # Errors
/// The database's.
pub async fn reclaim(db: &mut PgConnection, name: &str) -> Result<()> {
    sqlx::query("update agents set cordoned = false where name = $1").bind(name).execute(db).await?;
    Ok(())
}

/// Gives the agents with this condition the state `$2`. Their rows are locked in the order of their numbers, as heartbeats
/// lock them. A process that was suspended may write those of its agents while the leader marks them as lost.
macro_rules! set_state {
    ($condition:literal) => {
        concat!(
            "update agents set state = $2 from (select number from agents where ",
            $condition,
            " order by number for update) as found where agents.number = found.number returning agents.name"
        )
    };
}

/// Marks live agents as lost, by their newest streams; returns their names.
///
/// # Errors
/// The database's.
pub async fn mark_lost(db: &mut PgConnection, sessions: &[Uuid]) -> Result<Vec<String>> {
    sqlx::query_scalar(set_state!("session = any($1) and state = $3"))
        .bind(sessions)
        .bind(AgentState::Lost.name())
        .bind(AgentState::Live.name())
        .fetch_all(db)
        .await
}

/// Marks the live agents as lost whose streams none of these processes holds; returns their names.
///
/// # Errors
/// The database's.
pub async fn mark_unheld_lost(db: &mut PgConnection, processes: &[Uuid]) -> Result<Vec<String>> {
    sqlx::query_scalar(set_state!("state = $3 and (holder is null or holder <> all($1))"))
        .bind(processes)
        .bind(AgentState::Lost.name())
        .bind(AgentState::Live.name())
        .fetch_all(db)
        .await
}

/// An update of one column of each agent, by its newest stream.
macro_rules! set_column {
    ($column:literal) => {
        concat!(
            "update agents set ",
            $column,
            " = said.value from
             (select number, s.value from unnest($1::uuid[], $2::jsonb[]) as s (session, value)
              join agents a on a.session = s.session order by number for update of a) as said
             where agents.number = said.number"
        )
    };
}

/// Stores the last acknowledgement of each stream's agent.
///
/// # Errors
/// The database's.
pub async fn write_acknowledgements(db: &mut PgConnection, acks: &BTreeMap<Uuid, Value>) -> Result<()> {
    update_each(db, set_column!("ack"), acks).await
}

/// The agent's load failures so far; the row is locked until the transaction ends. `None` if the stream is not the newest
/// of its agent.
///
/// # Errors
/// The database's.
pub async fn load_failures(db: &mut PgConnection, session: Uuid) -> Result<Option<Value>> {
    let select = sqlx::query_scalar("select load_failures from agents where session = $1 for update");
    select.bind(session).fetch_optional(db).await
}

/// Stores the agent's load failures.
///
/// # Errors
/// The database's.
pub async fn put_load_failures(db: &mut PgConnection, session: Uuid, failures: &Value) -> Result<()> {
    let update = sqlx::query("update agents set load_failures = $2 where session = $1");
    update.bind(session).bind(failures).execute(db).await?;
    Ok(())
}

/// Stores the device use of each stream's agent.
///
/// # Errors
/// The database's.
pub async fn write_device_use(db: &mut PgConnection, devices: &BTreeMap<Uuid, Value>) -> Result<()> {
    update_each(db, set_column!("device_use"), devices).await
}

/// The times of the agent's loads so far; the row is locked until the transaction ends. `None` if the stream is not the
/// newest of its agent.
///
/// # Errors
/// The database's.
pub async fn load_times(db: &mut PgConnection, session: Uuid) -> Result<Option<Value>> {
    let select = sqlx::query_scalar("select load_times from agents where session = $1 for update");
    select.bind(session).fetch_optional(db).await
}

/// Stores the times of the agent's loads.
///
/// # Errors
/// The database's.
pub async fn put_load_times(db: &mut PgConnection, session: Uuid, times: &Value) -> Result<()> {
    let update = sqlx::query("update agents set load_times = $2 where session = $1");
    update.bind(session).bind(times).execute(db).await?;
    Ok(())
}

/// Stores the hops of each stream's agent.
///
/// # Errors
/// The database's.
pub async fn write_hops(db: &mut PgConnection, hops: &BTreeMap<Uuid, Value>) -> Result<()> {
    update_each(db, set_column!("hops"), hops).await
}

/// Updates one row for each stream. Rows are locked in the order of their numbers, so that two processes never deadlock.
async fn update_each(db: &mut PgConnection, set: &'static str, values: &BTreeMap<Uuid, Value>) -> Result<()> {
    if values.is_empty() {
        return Ok(());
    }
    let (sessions, values): (Vec<Uuid>, Vec<Value>) = values.iter().map(|(s, value)| (*s, value.clone())).unzip();
    sqlx::query(set).bind(sessions).bind(values).execute(db).await?;
    Ok(())
}
