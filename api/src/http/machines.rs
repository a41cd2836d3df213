//! `/v1/machines`: the machines that substrates run for the fleet.

use super::paging::{ListPage, PageQuery};
use super::refusal::HandlerResult;
use crate::app::App;
use crate::decide::machines::MachineStage;
use crate::store::machines::{self as rows, MachineFilter, MachineRow};
use actix_web::web;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// A machine: one agent with its devices that a substrate runs, or a wish for one.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct MachineDocument {
    /// Its name, which is its agent's too.
    pub name: String,
    /// The hardware type that was asked for.
    pub hardware: String,
    /// The substrate that runs it.
    pub substrate: String,
    /// Its devices: as asked for, and as its agent says once that has come.
    pub devices: i32,
    /// Its state. `coming`: asked for, and its agent has not come. `alive`: its agent has come. `cordoned`: it gets no
    /// replica any more. `ending`: it was told to end. `ended`: it is gone, or never came.
    pub state: MachineStage,
    /// The reason for its state.
    pub reason: String,
    /// When its state began.
    pub since: DateTime<Utc>,
    /// The substrate's name for it, for example the number of a job; null: the substrate has not answered.
    pub handle: Option<String>,
    /// When it was asked for.
    pub asked_at: DateTime<Utc>,
    /// When its agent came first; null: it has not come.
    pub came_at: Option<DateTime<Utc>>,
    /// When the service began to give it back; null: it did not.
    pub returned_at: Option<DateTime<Utc>>,
    /// The zone in which it was asked for; null: in any.
    pub zone: Option<String>,
}

/// The machines that a client asks for.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct MachinesQuery {
    /// Only machines of this hardware type.
    pub hardware: Option<String>,
    /// Only machines in this state.
    #[param(required = false, value_type = MachineStage)]
    pub state: Option<MachineStage>,
}

impl From<MachineRow> for MachineDocument {
    fn from(row: MachineRow) -> Self {
        Self {
            state: MachineStage::stored(&row.stage),
            name: row.name,
            hardware: row.hardware,
            substrate: row.substrate,
            devices: row.devices,
            reason: row.reason,
            since: row.stage_at,
            handle: row.handle,
            asked_at: row.asked_at,
            came_at: row.came_at,
            returned_at: row.returned_at,
            zone: row.zone,
        }
    }
}

/// The routes of this resource.
pub fn configure(config: &mut web::ServiceConfig) {
    config.service(web::resource("/v1/machines").route(web::get().to(list)));
}

/// All machines that were asked for, by name. Those that have ended stay in the list for 30 days.
#[utoipa::path(get, path = "/v1/machines", tag = "fleet", operation_id = "list_machines", params(MachinesQuery, PageQuery),
    responses((status = 200, description = "The machines.", body = [MachineDocument])))]
pub async fn list(app: web::Data<App>, page: ListPage<String, MachinesQuery>) -> HandlerResult {
    let filter = MachineFilter { hardware: page.filter.hardware.clone(), stage: page.filter.state.map(MachineStage::name) };
    let rows = rows::page(&mut *app.pool.acquire().await?, &filter, page.after.as_deref(), page.rows_max()).await?;
    Ok(page.answer(rows, |row| row.name.clone(), MachineDocument::from))
}
