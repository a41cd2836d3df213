//! `/v1/agents`: the agents of the fleet.

use super::paging::{ListPage, PageQuery};
use super::refusal::{HandlerResult, Refusal, RefusalReply};
use crate::app::App;
use crate::decide::load_failures::LoadFailure;
use crate::decide::measured::{AgentHop, ReplicaLoadTime};
use crate::decide::placement::Placement;
use crate::store;
use crate::store::agents::{self as rows, AgentRow};
use actix_web::http::StatusCode;
use actix_web::{HttpResponse, web};
use apportion_wire::{AgentState, ReplicaState};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

/// An agent.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct AgentDocument {
    /// Its number; placements name it.
    pub number: i64,
    /// Its name.
    pub name: String,
    /// Hardware type of its devices.
    pub hardware: String,
    /// How many devices.
    pub devices: i32,
    /// The zone in which it stands, as it says; null if it says none.
    pub zone: Option<String>,
    /// What runs its variants: `onnx`, `emulated` or `remote` (another server); null if it does not say.
    pub backend: Option<String>,
    /// Its state.
    pub state: AgentState,
    /// The HTTP address of its gateway, for clients.
    pub ingress_http: String,
    /// The gRPC address of its gateway, for clients; null if it has none.
    pub ingress_grpc: Option<String>,
    /// Its address for other agents.
    pub data_address: String,
    /// When it registered last.
    pub registered_at: DateTime<Utc>,
    /// The time of its last heartbeat.
    pub seen_at: DateTime<Utc>,
    /// Its last acknowledgement; null before the first.
    #[schema(value_type = Option<Acknowledgement>)]
    pub ack: Option<Value>,
    /// The last replicas that it could not load, or that died: at most 32, the newest last, each with its reason. They stay
    /// here when later targets do not have them any more.
    pub load_failures: Vec<LoadFailure>,
    /// The last use of its devices; empty if they cannot be asked.
    pub device_use: Vec<DeviceUse>,
    /// Whether no replica is placed on it, because its machine goes back.
    pub cordoned: bool,
    /// How long messages take to other agents, as it measured last; at most 256.
    pub hops: Vec<AgentHop>,
    /// How long its last replicas took to become ready: at most 64, the newest last. Emulated replicas have none.
    pub load_times: Vec<ReplicaLoadTime>,
}

/// The agents that a client asks for.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AgentsQuery {
    /// Only agents in this state.
    #[param(required = false, value_type = AgentState)]
    pub state: Option<AgentState>,
}

/// The path of an agent.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub struct AgentPath {
    /// Its number.
    pub number: i64,
}

/// The state of a target at one agent.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Acknowledgement {
    /// The target's incarnation.
    pub incarnation: u64,
    /// The target's generation.
    pub generation: u64,
    /// Whether every replica of this agent is ready and its routes are in force.
    pub applied: bool,
    /// The reason if it is not; empty while it is still loading.
    pub error: String,
    /// Its replicas.
    pub replicas: Vec<AcknowledgedReplica>,
}

/// A replica, as its agent reports it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct AcknowledgedReplica {
    /// Its number.
    pub replica: u64,
    /// Its state.
    pub state: ReplicaState,
    /// The reason if it failed; else empty.
    pub error: String,
    /// Whether it was slower than its profile for some seconds without being overloaded.
    pub interfered: bool,
    /// Time of its batches over that of its profile; 0 if none ended lately.
    pub slowness: f64,
}

/// The use of one device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DeviceUse {
    /// Its number at the agent.
    pub device: u32,
    /// Its unique name.
    pub uuid: String,
    /// Memory in use, in bytes; null if unknown.
    pub memory_used: Option<u64>,
    /// Its whole memory, in bytes; null if unknown.
    pub memory_total: Option<u64>,
    /// Share of the last moment in which it was busy, 0 to 1; null if unknown.
    pub utilisation: Option<f64>,
}

impl From<AgentRow> for AgentDocument {
    fn from(row: AgentRow) -> Self {
        Self {
            number: row.number,
            name: row.name,
            hardware: row.hardware,
            devices: row.devices,
            zone: Some(row.zone).filter(|zone| !zone.is_empty()),
            backend: Some(row.backend).filter(|backend| !backend.is_empty()),
            state: row.state,
            ingress_http: row.ingress_http,
            ingress_grpc: Some(row.ingress_grpc).filter(|address| !address.is_empty()),
            data_address: row.data_address,
            registered_at: row.registered_at,
            seen_at: row.seen_at,
            ack: row.ack,
            load_failures: serde_json::from_value(row.load_failures).unwrap_or_default(),
            // The service wrote it. If another release wrote it in another form, it counts as absent.
            device_use: row.device_use.and_then(|seen| serde_json::from_value(seen).ok()).unwrap_or_default(),
            cordoned: row.cordoned,
            hops: row.hops.and_then(|hops| serde_json::from_value(hops).ok()).unwrap_or_default(),
            load_times: serde_json::from_value(row.load_times).unwrap_or_default(),
        }
    }
}

/// The routes of this resource.
pub fn configure(config: &mut web::ServiceConfig) {
    config
        .service(web::resource("/v1/agents").route(web::get().to(list)))
        .service(web::resource("/v1/agents/{number}").route(web::get().to(get)).route(web::delete().to(delete)));
}

/// All agents that have registered and were not deleted, by number.
#[utoipa::path(get, path = "/v1/agents", tag = "fleet", operation_id = "list_agents", params(AgentsQuery, PageQuery),
    responses((status = 200, description = "The agents.", body = [AgentDocument])))]
pub async fn list(app: web::Data<App>, page: ListPage<i64, AgentsQuery>) -> HandlerResult {
    let mut db = app.pool.acquire().await?;
    let rows = rows::page(&mut db, page.filter.state, page.after, page.rows_max()).await?;
    Ok(page.answer(rows, |row| row.number, AgentDocument::from))
}

/// One agent.
#[utoipa::path(get, path = "/v1/agents/{number}", tag = "fleet", operation_id = "get_agent", params(AgentPath),
    responses((status = 200, description = "The agent.", body = AgentDocument), RefusalReply<404>))]
pub async fn get(app: web::Data<App>, path: web::Path<AgentPath>) -> HandlerResult {
    let AgentPath { number } = path.into_inner();
    let row = rows::get(&mut *app.pool.acquire().await?, number).await?;
    let row = row.ok_or_else(|| Refusal::not_found(format!("agent {number}")))?;
    Ok(HttpResponse::Ok().json(AgentDocument::from(row)))
}

/// Forgets an agent that is lost or has left, and has no replica of the target in force. It may join again, as a new one.
#[utoipa::path(delete, path = "/v1/agents/{number}", tag = "fleet", operation_id = "delete_agent", params(AgentPath),
    responses((status = 204, description = "It is gone."), RefusalReply<404>, RefusalReply<409>))]
pub async fn delete(app: web::Data<App>, path: web::Path<AgentPath>) -> HandlerResult {
    let AgentPath { number } = path.into_inner();
    let missing = || Refusal::not_found(format!("agent {number}"));
    let conflict = |detail: String| Refusal::new(StatusCode::CONFLICT, detail);
    let mut tx = app.pool.begin().await?;
    let name = rows::get(&mut tx, number).await?.ok_or_else(missing)?.name;
    // A registration under this name waits until the transaction ends.
    rows::lock(&mut tx, &name).await?.filter(|row| row.number == number).ok_or_else(missing)?;
    let target = store::target::get(&mut tx).await?;
    let placement: Placement = serde_json::from_value(target.placement).map_err(|error| {
        tracing::error!(%error, "the stored placement cannot be read");
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "the placement cannot be read; the service's log says why")
    })?;
    let replicas = placement.replicas.iter().filter(|replica| i64::try_from(replica.agent) == Ok(number)).count();
    if replicas > 0 {
        let detail = format!("agent {name} has {replicas} replicas of the target: expected one whose replicas have moved");
        return Err(conflict(detail));
    }
    if !rows::delete(&mut tx, number).await? {
        return Err(conflict(format!("agent {name} is live: expected one that is lost or has left; stop it first")));
    }
    tx.commit().await?;
    app.fleet_changed.notify_one();
    Ok(HttpResponse::NoContent().finish())
}
