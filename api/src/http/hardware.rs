//! `/v1/hardware`: hardware types with their prices.

use super::body::{self, Document, IfMatch, IfNoneMatch, Name};
use super::paging::{ListPage, PageQuery, PrefixQuery};
use super::refusal::{HandlerResult, Refusal, RefusalReply};
use crate::app::App;
use crate::store::Condition;
use crate::store::hardware::{self as rows, HardwareRow};
use actix_web::{HttpResponse, web};
use apportion_substrates::{SubstrateKind, ZONES_MAX};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Most devices of a type for pipelines without agents.
const DEVICES_MAX: i32 = 100_000;
/// Largest price and memory.
const NUMBER_MAX: f64 = 1e12;
/// Longest expected time from a wish for a machine to its agent, in seconds: a week.
const PROVISION_S_MAX: f64 = 604_800.0;
/// Most expected losses of one machine in an hour.
const HAZARD_MAX: f64 = 60.0;

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
    /// Most devices for pipelines without agents, 0 to 100,000; null is no device. With a substrate: the most devices that
    /// all agents may have together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 100_000)]
    pub count_max: Option<u32>,
    /// The substrate that is asked for machines with such devices: `local`, `slurm` or `kubernetes`; null: none is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub substrate: Option<String>,
    /// Seconds from the wish for a machine until its agent comes, as expected, 0 to 604,800. Default: as measured, or 60.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 604_800)]
    pub provision_s: Option<f64>,
    /// The same as a moving mean of the machines that came; null before the first. A write does not read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(read_only)]
    pub provision_measured_s: Option<f64>,
    /// The zones in which machines of it are asked for: always in that with the fewest. At most 64, and each one in the
    /// file of `--machines` for this type. Empty: they stand anywhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 64)]
    pub zones: Vec<String>,
    /// Its machines are spot machines, which their provider may take back; null: they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spot: Option<SpotDocument>,
}

/// How spot machines are lost.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SpotDocument {
    /// Expected losses of one machine in an hour, 0 to 60. So many more machines are asked for that those needed are there
    /// on average.
    #[schema(minimum = 0, maximum = 60)]
    pub hazard_per_hour: f64,
}

impl From<HardwareRow> for HardwareDocument {
    fn from(row: HardwareRow) -> Self {
        let count_max = row.count_max.and_then(|count| u32::try_from(count).ok());
        Self {
            name: Some(row.name),
            price_per_hour: row.price_per_hour,
            memory_mib: row.memory_mib,
            count_max,
            substrate: row.substrate,
            provision_s: row.provision_s,
            provision_measured_s: row.provision_measured_s,
            zones: row.zones,
            spot: row.hazard_per_hour.map(|hazard_per_hour| SpotDocument { hazard_per_hour }),
        }
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
#[utoipa::path(get, path = "/v1/hardware", tag = "hardware", operation_id = "list_hardware",
    params(PrefixQuery, PageQuery),
    responses((status = 200, description = "The types.", body = [HardwareDocument])))]
pub async fn list(app: web::Data<App>, page: ListPage<String, PrefixQuery>) -> HandlerResult {
    let (prefix, after) = (page.filter.prefix.as_deref(), page.after.as_deref());
    let rows = rows::page(&mut *app.pool.acquire().await?, prefix, after, page.rows_max()).await?;
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
#[utoipa::path(put, path = "/v1/hardware/{name}", tag = "hardware", operation_id = "put_hardware",
    params(Name, IfMatch, IfNoneMatch),
    request_body(content = HardwareDocument, description = "The type."),
    responses(
        (status = 200, description = "It was replaced.", body = HardwareDocument,
            headers(("ETag" = String, description = "Its version."))),
        (status = 201, description = "It is new.", body = HardwareDocument,
            headers(("ETag" = String, description = "Its version."))),
        RefusalReply<412>))]
pub async fn put(app: web::Data<App>, Name { name }: Name, condition: Condition, document: Document) -> HandlerResult {
    let document: HardwareDocument = body::value(document.tree)?;
    let row = checked_row(&app, name, document)?;
    let what = format!("hardware type {}", row.name);
    let row = rows::put(&mut *app.pool.acquire().await?, &row, &condition).await?;
    let mut response = body::written(row.as_ref().map(|row| row.version), &what)?;
    Ok(response.json(row.map(HardwareDocument::from)))
}

/// The row of a document whose values are allowed.
fn checked_row(app: &App, name: String, document: HardwareDocument) -> Result<HardwareRow, Refusal> {
    if document.name.as_ref().is_some_and(|n| *n != name) {
        return Err(Refusal::value("/name", format!("expected {name}, as in the path, or nothing")));
    }
    let numbers = [
        ("/price_per_hour", Some(document.price_per_hour), NUMBER_MAX),
        ("/memory_mib", document.memory_mib, NUMBER_MAX),
        ("/provision_s", document.provision_s, PROVISION_S_MAX),
        ("/spot/hazard_per_hour", document.spot.map(|spot| spot.hazard_per_hour), HAZARD_MAX),
    ];
    for (pointer, value, most) in numbers {
        if let Some(value) = value.filter(|value| !(0.0..=most).contains(value)) {
            return Err(Refusal::value(pointer, format!("{value}: expected a number of at least 0, at most {most}")));
        }
    }
    let count_max = document.count_max.map(|count| i32::try_from(count).ok().filter(|count| *count <= DEVICES_MAX));
    if count_max == Some(None) {
        let value = document.count_max.unwrap_or_default();
        return Err(Refusal::value("/count_max", format!("{value}: expected a whole number from 0 to {DEVICES_MAX}")));
    }
    if let Some(substrate) = &document.substrate {
        check_substrate(app, &name, substrate)?;
    }
    check_zones(app, &name, &document)?;
    Ok(HardwareRow {
        name,
        price_per_hour: document.price_per_hour,
        memory_mib: document.memory_mib,
        count_max: count_max.flatten(),
        substrate: document.substrate,
        provision_s: document.provision_s,
        zones: document.zones,
        hazard_per_hour: document.spot.map(|spot| spot.hazard_per_hour),
        ..HardwareRow::default()
    })
}

/// Refuses a substrate that this service does not have, or that does not have the type.
fn check_substrate(app: &App, hardware: &str, substrate: &str) -> Result<(), Refusal> {
    let refused = |expected: String| Err(Refusal::value("/substrate", format!("{substrate:?}: expected {expected}")));
    let Some(substrates) = &app.substrates else {
        return refused("`apportion serve --machines FILE`, or no such member".into());
    };
    let Some(kind) = SubstrateKind::named(substrate).filter(|kind| substrates.kinds().any(|known| known == *kind)) else {
        let known: Vec<_> = substrates.kinds().map(SubstrateKind::name).collect();
        return refused(format!("one of the file of --machines: {}", known.join(", ")));
    };
    match substrates.devices_each(kind, hardware) {
        Some(_) => Ok(()),
        None => refused(format!("/{substrate}/hardware/{hardware} in the file of --machines")),
    }
}

/// Refuses zones in which the substrate cannot ask for machines of the type.
fn check_zones(app: &App, hardware: &str, document: &HardwareDocument) -> Result<(), Refusal> {
    let zones = &document.zones;
    if zones.len() > ZONES_MAX {
        return Err(Refusal::value("/zones", format!("{} zones: expected at most {ZONES_MAX}", zones.len())));
    }
    let kind = document.substrate.as_deref().and_then(SubstrateKind::named);
    let known = match (&app.substrates, kind) {
        (Some(substrates), Some(kind)) => substrates.zones(kind, hardware),
        _ => Vec::new(),
    };
    for (at, zone) in zones.iter().enumerate() {
        let expected = match &document.substrate {
            None => "a substrate, which is asked for machines there, or no zones".to_owned(),
            Some(substrate) if !known.contains(zone) => {
                format!("one of /{substrate}/hardware/{hardware}/zones in the file of --machines: [{}]", known.join(", "))
            }
            Some(_) if zones[..at].contains(zone) => "each zone once".to_owned(),
            Some(_) => continue,
        };
        return Err(Refusal::value(format!("/zones/{at}"), format!("{zone:?}: expected {expected}")));
    }
    Ok(())
}

/// Deletes a hardware type. Its devices go on; from then on plans count 1 per hour for each of them.
#[utoipa::path(delete, path = "/v1/hardware/{name}", tag = "hardware", operation_id = "delete_hardware",
    params(Name, IfMatch), responses((status = 204, description = "It is gone."), RefusalReply<404>, RefusalReply<412>))]
pub async fn delete(app: web::Data<App>, Name { name }: Name, condition: Condition) -> HandlerResult {
    let deletion = rows::delete(&mut *app.pool.acquire().await?, &name, &condition).await?;
    body::deleted(deletion, &format!("hardware type {name}"))
}
