//! `/v1/agents`: who is in the fleet.

use super::refusal::Answer;
use crate::app::App;
use crate::store::agents::{self as rows, AgentRow};
use actix_web::{HttpResponse, web};
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
    /// `live`, `lost` or `left`.
    pub state: String,
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
    /// Its last acknowledgement: `{incarnation, generation, applied, error, replicas}`.
    pub ack: Option<Value>,
    /// What its devices said of themselves last; empty where they cannot be asked.
    pub device_use: Vec<DeviceUse>,
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
#[utoipa::path(get, path = "/v1/agents", tag = "fleet", responses((status = 200, body = [AgentDocument])))]
pub async fn list(app: web::Data<App>) -> Answer {
    let rows = rows::list(&mut *app.pool.acquire().await?).await?;
    Ok(HttpResponse::Ok().json(rows.into_iter().map(AgentDocument::from).collect::<Vec<_>>()))
}
