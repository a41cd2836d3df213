//! `/v1/agents`: who is in the fleet.

use super::refusal::Answer;
use crate::app::App;
use crate::store::agents::{self as rows, AgentRow};
use actix_web::{HttpResponse, web};
use chrono::{DateTime, Utc};
use serde::Serialize;
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
