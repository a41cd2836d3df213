//! `/v1/pipelines/{name}/drift`: the figures of the profile beside those that agents measure.

use super::body::Name;
use super::refusal::{HandlerResult, Refusal, RefusalReply};
use crate::act::drift;
use crate::act::figures::{MeasuredFigure, measured_figures};
use crate::app::App;
use crate::decide::correction::{drift_warning, is_corrected};
use crate::decide::drift::{FigureKind, MeasuredWindow, PERIOD_S, ProfileDrift, ProfileFigure};
use crate::documents;
use crate::store::pipelines as rows;
use actix_web::{HttpResponse, web};
use apportion_wire::PipelineSpec;
use chrono::{DateTime, Utc};
use serde::Serialize;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// The figures of a pipeline's profile in service.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct DriftDocument {
    /// Whether plans count with the drifts: `correct_profiles` of the `replan` settings.
    pub corrected: bool,
    /// The figures that were measured or that drift.
    pub figures: Vec<FigureDocument>,
    /// A sentence about each drift.
    pub warnings: Vec<String>,
}

/// A figure of the profile.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct FigureDocument {
    /// `latency` (the time of a batch) or `fanout` (queries that a query makes at a child).
    pub kind: String,
    /// The variant's task.
    pub task: String,
    /// The variant.
    pub variant: String,
    /// The hardware type of a latency; null for a fan-out.
    pub hardware: Option<String>,
    /// The child task of a fan-out; null for a latency.
    pub child: Option<String>,
    /// The measurement; null with too few batches or queries in the last windows.
    pub measured: Option<FigureMeasurement>,
    /// The drift; null without one.
    pub drift: Option<FigureDrift>,
}

/// What agents measured of a figure.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct FigureMeasurement {
    /// Mean of the profile over what was run: milliseconds for each batch, or queries for each query.
    pub profile: f64,
    /// The same as it was measured, over all agents.
    pub measured: f64,
    /// Measured over profile, as the agents agree on it.
    pub ratio: f64,
    /// Batches of a latency, queries of a fan-out.
    pub count: u64,
    /// Seconds over which it was measured.
    pub seconds: i64,
}

/// A figure that differs from its profile.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct FigureDrift {
    /// The factor on the profile, rounded to two digits after the point.
    pub factor: f64,
    /// When it began.
    pub since: DateTime<Utc>,
}

/// The routes of this resource.
pub fn configure(config: &mut web::ServiceConfig) {
    config.service(web::resource("/v1/pipelines/{name}/drift").route(web::get().to(get)));
}

/// The latencies and fan-outs of the profile beside those that agents measure, with the drifts.
#[utoipa::path(get, path = "/v1/pipelines/{name}/drift", tag = "pipelines", operation_id = "get_drift", params(Name),
    responses((status = 200, description = "The figures.", body = DriftDocument), RefusalReply<404>))]
pub async fn get(app: web::Data<App>, Name { name }: Name) -> HandlerResult {
    let mut db = app.pool.acquire().await?;
    let row = rows::get(&mut db, &name).await?.ok_or_else(|| Refusal::not_found(format!("pipeline {name}")))?;
    let spec = documents::measured(&row)?;
    let measured = measured_figures(&mut db, &spec).await?;
    let drifts = drift::read(&mut db, Some(&name)).await?;
    Ok(HttpResponse::Ok().json(document(&spec, measured, drifts)))
}

fn document(spec: &PipelineSpec, measured: Vec<MeasuredFigure>, drifts: Vec<ProfileDrift>) -> DriftDocument {
    let warnings = drifts.iter().map(|drift| drift_warning(spec, drift)).collect();
    let mut figures: BTreeMap<ProfileFigure, FigureDocument> = BTreeMap::new();
    for MeasuredFigure { figure, window, .. } in measured {
        let document = figures.entry(figure.clone()).or_insert_with(|| figure_document(figure));
        document.measured = measurement(&window);
    }
    for ProfileDrift { figure, factor, since, .. } in drifts {
        let document = figures.entry(figure.clone()).or_insert_with(|| figure_document(figure));
        document.drift = Some(FigureDrift { factor, since });
    }
    DriftDocument { corrected: is_corrected(spec), figures: figures.into_values().collect(), warnings }
}

fn figure_document(figure: ProfileFigure) -> FigureDocument {
    let ProfileFigure { kind, task, variant, at } = figure;
    let (hardware, child) = match kind {
        FigureKind::Latency => (Some(at), None),
        FigureKind::Fanout => (None, Some(at)),
    };
    FigureDocument { kind: kind.name().to_owned(), task, variant, hardware, child, measured: None, drift: None }
}

fn measurement(window: &MeasuredWindow) -> Option<FigureMeasurement> {
    Some(FigureMeasurement {
        profile: window.expected_mean()?,
        measured: window.measured_mean()?,
        ratio: window.ratio(),
        count: window.count(),
        seconds: (window.end - window.begin) * PERIOD_S,
    })
}
