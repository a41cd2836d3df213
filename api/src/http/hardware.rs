//! `/v1/hardware`: hardware types with their prices.

use super::body;
use super::refusal::{Answer, Refusal};
use crate::app::App;
use crate::store::hardware::{self as rows, HardwareRow};
use actix_web::{HttpResponse, web};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A hardware type; its name is in the path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HardwareDocument {
    /// Its name; when given in a body it must be the path's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Price of one device, at least 0.
    pub price_per_hour: f64,
    /// Memory of one device; null is not limited.
    #[serde(default)]
    pub memory_mib: Option<f64>,
}

impl From<HardwareRow> for HardwareDocument {
    fn from(row: HardwareRow) -> Self {
        Self { name: Some(row.name), price_per_hour: row.price_per_hour, memory_mib: row.memory_mib }
    }
}

/// Routes of this resource.
pub fn configure(config: &mut web::ServiceConfig) {
    config.service(web::resource("/v1/hardware").route(web::get().to(list))).service(
        web::resource("/v1/hardware/{name}")
            .route(web::get().to(get))
            .route(web::put().to(put))
            .route(web::delete().to(delete)),
    );
}

/// All hardware types.
#[utoipa::path(get, path = "/v1/hardware", tag = "hardware", responses((status = 200, body = [HardwareDocument])))]
pub async fn list(app: web::Data<App>) -> Answer {
    let rows = rows::list(&mut *app.pool.acquire().await?).await?;
    Ok(HttpResponse::Ok().json(rows.into_iter().map(HardwareDocument::from).collect::<Vec<_>>()))
}

/// One hardware type.
#[utoipa::path(get, path = "/v1/hardware/{name}", tag = "hardware", params(("name" = String, Path)),
    responses((status = 200, body = HardwareDocument), (status = 404, body = Refusal)))]
pub async fn get(app: web::Data<App>, name: web::Path<String>) -> Answer {
    let row = rows::get(&mut *app.pool.acquire().await?, &name).await?;
    let row = row.ok_or_else(|| Refusal::not_found(format!("hardware type {name}")))?;
    Ok(HttpResponse::Ok().json(HardwareDocument::from(row)))
}

/// Registers a hardware type or replaces it.
#[utoipa::path(put, path = "/v1/hardware/{name}", tag = "hardware", params(("name" = String, Path)),
    request_body = HardwareDocument,
    responses((status = 200, body = HardwareDocument), (status = 201, body = HardwareDocument), (status = 400, body = Refusal),
        (status = 422, body = Refusal)))]
pub async fn put(app: web::Data<App>, name: web::Path<String>, bytes: web::Bytes) -> Answer {
    body::name(&name)?;
    let document: HardwareDocument = body::value(body::tree(&bytes)?)?;
    if document.name.as_ref().is_some_and(|n| *n != *name) {
        return Err(Refusal::value("/name", format!("expected {name}, as in the path, or nothing")));
    }
    for (pointer, value) in [("/price_per_hour", Some(document.price_per_hour)), ("/memory_mib", document.memory_mib)] {
        if value.is_some_and(|v| !(0.0..=1e12).contains(&v)) {
            return Err(Refusal::value(pointer, format!("{}: expected a number of at least 0", value.unwrap_or_default())));
        }
    }
    let row =
        HardwareRow { name: name.into_inner(), price_per_hour: document.price_per_hour, memory_mib: document.memory_mib };
    let created = rows::put(&mut *app.pool.acquire().await?, &row).await?;
    let mut response = if created { HttpResponse::Created() } else { HttpResponse::Ok() };
    Ok(response.json(HardwareDocument::from(row)))
}

/// Forgets a hardware type.
#[utoipa::path(delete, path = "/v1/hardware/{name}", tag = "hardware", params(("name" = String, Path)),
    responses((status = 204), (status = 404, body = Refusal)))]
pub async fn delete(app: web::Data<App>, name: web::Path<String>) -> Answer {
    match rows::delete(&mut *app.pool.acquire().await?, &name).await? {
        true => Ok(HttpResponse::NoContent().finish()),
        false => Err(Refusal::not_found(format!("hardware type {name}"))),
    }
}
