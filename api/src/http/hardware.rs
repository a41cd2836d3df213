//! `/v1/hardware`: hardware types with their prices.

use super::body::{self, Document, IfMatch, Name};
use super::paging::{ListPage, PageQuery};
use super::refusal::{HandlerResult, Refusal, RefusalReply};
use crate::app::App;
use crate::store::Condition;
use crate::store::hardware::{self as rows, HardwareRow};
use actix_web::{HttpResponse, web};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Most devices of a type for pipelines without agents.
const DEVICES_MAX: i32 = 100_000;
/// Largest price and memory.
const NUMBER_MAX: f64 = 1e12;

/// A hardware type; its name is in the path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HardwareDocument {
    /// Its name; in a body it must be that of the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Price of one device, 0 to 1e12.
    #[schema(minimum = 0, maximum = 1e12)]
    pub price_per_hour: f64,
    /// Memory of one device, 0 to 1e12; null is not limited.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 1e12)]
    pub memory_mib: Option<f64>,
    /// Most devices for pipelines without agents, 0 to 100,000; null is no device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 100_000)]
    pub count_max: Option<u32>,
}

impl From<HardwareRow> for HardwareDocument {
    fn from(row: HardwareRow) -> Self {
        let count_max = row.count_max.and_then(|count| u32::try_from(count).ok());
        Self { name: Some(row.name), price_per_hour: row.price_per_hour, memory_mib: row.memory_mib, count_max }
    }
}

/// The routes of this resource.
pub fn configure(config: &mut web::ServiceConfig) {
    config.service(web::resource("/v1/hardware").route(web::get().to(list))).service(
        web::resource("/v1/hardware/{name}")
            .route(web::get().to(get))
            .route(web::put().to(put))
            .route(web::delete().to(delete)),
    );
}

/// All hardware types, by name.
#[utoipa::path(get, path = "/v1/hardware", tag = "hardware", operation_id = "list_hardware", params(PageQuery),
    responses((status = 200, description = "The types.", body = [HardwareDocument])))]
pub async fn list(app: web::Data<App>, page: ListPage<String>) -> HandlerResult {
    let rows = rows::page(&mut *app.pool.acquire().await?, page.after.as_deref(), page.rows_max()).await?;
    Ok(page.answer(rows, |row| row.name.clone(), HardwareDocument::from))
}

/// One hardware type.
#[utoipa::path(get, path = "/v1/hardware/{name}", tag = "hardware", operation_id = "get_hardware", params(Name),
    responses((status = 200, description = "The type.", body = HardwareDocument,
        headers(("ETag" = String, description = "Its version."))), RefusalReply<404>))]
pub async fn get(app: web::Data<App>, Name { name }: Name) -> HandlerResult {
    let row = rows::get(&mut *app.pool.acquire().await?, &name).await?;
    let row = row.ok_or_else(|| Refusal::not_found(format!("hardware type {name}")))?;
    Ok(HttpResponse::Ok().insert_header(body::version_tag(row.version)).json(HardwareDocument::from(row)))
}

/// Registers a hardware type or replaces it.
#[utoipa::path(put, path = "/v1/hardware/{name}", tag = "hardware", operation_id = "put_hardware", params(Name, IfMatch),
    request_body(content = HardwareDocument, description = "The type."),
    responses(
        (status = 200, description = "It was replaced.", body = HardwareDocument,
            headers(("ETag" = String, description = "Its version."))),
        (status = 201, description = "It is new.", body = HardwareDocument,
            headers(("ETag" = String, description = "Its version."))),
        RefusalReply<412>))]
pub async fn put(app: web::Data<App>, Name { name }: Name, condition: Condition, document: Document) -> HandlerResult {
    let document: HardwareDocument = body::value(document.tree)?;
    if document.name.as_ref().is_some_and(|n| *n != name) {
        return Err(Refusal::value("/name", format!("expected {name}, as in the path, or nothing")));
    }
    for (pointer, value) in [("/price_per_hour", Some(document.price_per_hour)), ("/memory_mib", document.memory_mib)] {
        if value.is_some_and(|v| !(0.0..=NUMBER_MAX).contains(&v)) {
            let value = value.unwrap_or_default();
            return Err(Refusal::value(pointer, format!("{value}: expected a number of at least 0, at most {NUMBER_MAX}")));
        }
    }
    let count_max = document.count_max.map(|count| i32::try_from(count).ok().filter(|count| *count <= DEVICES_MAX));
    if count_max == Some(None) {
        let value = document.count_max.unwrap_or_default();
        return Err(Refusal::value("/count_max", format!("{value}: expected a whole number from 0 to {DEVICES_MAX}")));
    }
    let row = HardwareRow {
        name,
        price_per_hour: document.price_per_hour,
        memory_mib: document.memory_mib,
        count_max: count_max.flatten(),
        version: 0,
    };
    let version = rows::put(&mut *app.pool.acquire().await?, &row, &condition).await?;
    let mut response = body::written(version, &format!("hardware type {}", row.name))?;
    Ok(response.json(HardwareDocument::from(row)))
}

/// Deletes a hardware type. Its devices go on; from then on plans count 1 per hour for each of them.
#[utoipa::path(delete, path = "/v1/hardware/{name}", tag = "hardware", operation_id = "delete_hardware",
    params(Name, IfMatch), responses((status = 204, description = "It is gone."), RefusalReply<404>, RefusalReply<412>))]
pub async fn delete(app: web::Data<App>, Name { name }: Name, condition: Condition) -> HandlerResult {
    let deletion = rows::delete(&mut *app.pool.acquire().await?, &name, &condition).await?;
    body::deleted(deletion, &format!("hardware type {name}"))
}
