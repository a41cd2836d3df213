//! `/v1/pipelines/{name}/times`: the times of the file beside those that agents measured.

use super::body::Name;
use super::refusal::{HandlerResult, Refusal, RefusalReply};
use crate::act::times;
use crate::app::App;
use crate::decide::measured::{FileTime, FleetTimes, MeasuredLoad, MeasuredTime, compare_times};
use crate::documents;
use crate::store::pipelines as rows;
use actix_web::{HttpResponse, web};
use apportion_wire::PipelineSpec;
use serde::Serialize;
use utoipa::ToSchema;

/// The times of a pipeline's file with its profile, each beside the agents' measurement.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct TimesDocument {
    /// The time of a hop.
    pub network_ms: NetworkTimes,
    /// The times of loads, one for each variant.
    pub load_ms: Vec<VariantLoadTimes>,
    /// Sentences about times that are 0 in the file, and about those that are far from their measurement.
    pub warnings: Vec<String>,
}

/// The time of a hop in the file, and the measured one.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct NetworkTimes {
    /// The file's `network_ms`; null if it has none, or 0.
    pub given: Option<f64>,
    /// The median over the links between live agents; null without a measurement.
    pub measured: Option<MeasuredTime>,
    /// The value that plans use: the given one, else the measured one, else 0.
    pub used: f64,
}

/// The time of a variant's load in the file or the profile, and the measured one.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct VariantLoadTimes {
    /// The variant's task.
    pub task: String,
    /// The variant.
    pub variant: String,
    /// `load_ms` of the file or the profile; null if there is none, or 0.
    pub given: Option<f64>,
    /// The median of the last loads, downloads included; null without a measurement.
    pub measured: Option<MeasuredLoad>,
    /// The value that plans use: the given one, else the measured one, else 0.
    pub used: f64,
}

/// The routes of this resource.
pub fn configure(config: &mut web::ServiceConfig) {
    config.service(web::resource("/v1/pipelines/{name}/times").route(web::get().to(get)));
}

/// The times of hops and loads: those of the file or profile, and those that agents measured.
#[utoipa::path(get, path = "/v1/pipelines/{name}/times", tag = "pipelines", operation_id = "get_times", params(Name),
    responses((status = 200, description = "The times.", body = TimesDocument), RefusalReply<404>))]
pub async fn get(app: web::Data<App>, Name { name }: Name) -> HandlerResult {
    let mut db = app.pool.acquire().await?;
    let row = rows::get(&mut db, &name).await?.ok_or_else(|| Refusal::not_found(format!("pipeline {name}")))?;
    let measured = times::read(&mut db).await?;
    Ok(HttpResponse::Ok().json(document(&documents::measured(&row)?, &measured)))
}

fn document(spec: &PipelineSpec, measured: &FleetTimes) -> TimesDocument {
    let compared = compare_times(spec, measured);
    let mut hop = NetworkTimes { given: None, measured: None, used: 0.0 };
    let mut load_ms = Vec::new();
    for time in &compared {
        let (given, used) = (time.given_ms, time.used_ms());
        match &time.of {
            FileTime::Network => hop = NetworkTimes { given, measured: time.measured.clone(), used },
            FileTime::Load { task, variant } => load_ms.push(VariantLoadTimes {
                task: task.clone(),
                variant: variant.clone(),
                given,
                measured: MeasuredLoad::of(measured.loads_of(&spec.name, task, variant)),
                used,
            }),
        }
    }
    let warnings = compared.iter().filter_map(|time| time.warning(&spec.name)).collect();
    TimesDocument { network_ms: hop, load_ms, warnings }
}
