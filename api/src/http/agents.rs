//! `/v1/agents`: who is in the fleet.

use super::refusal::Answer;
use crate::app::App;
use crate::decide::load_failures::LoadFailure;
use crate::store::agents::{self as rows, AgentRow};
use actix_web::{HttpResponse, web};
use apportion_wire::AgentState;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

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
    /// Whether it is there.
    pub state: AgentState,
    /// Where clients reach its gateway.
    pub ingress_http: String,
    /// Where clients reach its gateway by gRPC; null if it has none.
    pub ingress_grpc: Option<String>,
    /// Where other agents reach it.
    pub data_address: String,
    /// When it registered last.
    pub registered_at: DateTime<Utc>,
    /// When it was last heard of.
    pub seen_at: DateTime<Utc>,
    /// Its last acknowledgement; null before the first.
    #[schema(value_type = Option<Acknowledgement>)]
    pub ack: Option<Value>,
    /// The last replicas that it could not load, or that died there, the newest last: at most 32, each with its reason.
    /// They stay here when the target has long gone on without them.
    pub load_failures: Vec<LoadFailure>,
    /// What its devices said of themselves last; empty where they cannot be asked.
    pub device_use: Vec<DeviceUse>,
}

/// What became of a target at one agent.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Acknowledgement {
    /// The target's incarnation.
    pub incarnation: u64,
    /// The target's generation.
    pub generation: u64,
    /// Whether every replica of this agent is ready and its routes are in force.
    pub applied: bool,
    /// Why not; empty while it is still loading.
    pub error: String,
    /// Its replicas.
    pub replicas: Vec<AcknowledgedReplica>,
}

/// A replica as its agent sees it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct AcknowledgedReplica {
    /// Its number.
    pub replica: u64,
    /// `unknown`, `loading`, `ready`, `failed` or `draining`.
    pub state: String,
    /// Why it failed; empty if it has not.
    pub error: String,
    /// Slower than profiled for some seconds, and not overloaded.
    pub interfered: bool,
    /// Time of its batches over the profile's; 0 if none ended lately.
    pub slowness: f64,
}

/// What a device says of itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DeviceUse {
    /// The agent's number of it.
    pub device: u32,
    /// Its own name, which no other device has.
    pub uuid: String,
    /// Memory in use by anybody, in bytes; null if it is not known.
    pub memory_used: Option<u64>,
    /// All of its memory, in bytes; null if it is not known.
    pub memory_total: Option<u64>,
    /// Part of the last moment in which it ran anything, 0 to 1; null if it is not known.
    pub utilisation: Option<f64>,
}

impl From<AgentRow> for AgentDocument {
    fn from(row: AgentRow) -> Self {
        Self {
            number: row.number,
            name: row.name,
            hardware: row.hardware,
            devices: row.devices,
            state: row.state,
            ingress_http: row.ingress_http,
            ingress_grpc: Some(row.ingress_grpc).filter(|address| !address.is_empty()),
            data_address: row.data_address,
            registered_at: row.registered_at,
            seen_at: row.seen_at,
            ack: row.ack,
            load_failures: serde_json::from_value(row.load_failures).unwrap_or_default(),
            // We wrote it; what an older or newer release has written otherwise is as good as not there.
            device_use: row.device_use.and_then(|seen| serde_json::from_value(seen).ok()).unwrap_or_default(),
        }
    }
}

/// Routes of this resource.
pub fn configure(config: &mut web::ServiceConfig) {
    config.service(web::resource("/v1/agents").route(web::get().to(list)));
}

/// All agents that ever registered, by number.
#[utoipa::path(get, path = "/v1/agents", tag = "fleet", operation_id = "list_agents",
    responses((status = 200, description = "All agents by number.", body = [AgentDocument])))]
pub async fn list(app: web::Data<App>) -> Answer {
    let rows = rows::list(&mut *app.pool.acquire().await?).await?;
    Ok(HttpResponse::Ok().json(rows.into_iter().map(AgentDocument::from).collect::<Vec<_>>()))
}
