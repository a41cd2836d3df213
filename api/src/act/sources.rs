//! Which demand and which deployment does a source say, of a pipeline without agents?
//!
//! A source is a query to a listed Prometheus, or the newest value that a client has posted. A value that is too old is
//! unknown, and never zero.

use crate::app::prometheus_access::AccessError;
use crate::app::{App, now};
use crate::decide::deployed::UnknownSeries;
use crate::store::pushed_facts::{self, FactKind, PushedFactRow};
use apportion_prometheus::answer::SeriesSample;
use apportion_prometheus::{QueryError, Reading, SampleAge};
use apportion_wire::{
    DemandSourceSpec, DeploymentSourceSpec, PipelineSpec, PrometheusQuerySpec, PushedFactSpec, ReplanMode,
};
use serde_json::Value;
use std::collections::BTreeMap;

/// Why a source says nothing.
#[derive(Debug, thiserror::Error)]
pub enum FactSourceError {
    /// The server may not be asked, or cannot be.
    #[error("{0}")]
    Access(#[from] AccessError),
    /// The query has no usable answer.
    #[error("{0}")]
    Query(#[from] QueryError),
    /// The query for the deployment has no series.
    #[error("{query}: no series: expected a series for each group that runs: no answer is not no replica")]
    NoSeries {
        /// The query.
        query: String,
    },
    /// A series or a posted group is none of the pipeline.
    #[error("{0}")]
    Group(#[from] UnknownSeries),
    /// No client has posted anything.
    #[error("no client has posted it: expected POST /v1/pipelines/{pipeline}/{fact}")]
    NeverPushed {
        /// The pipeline.
        pipeline: String,
        /// The word of the fact.
        fact: &'static str,
    },
    /// The newest value is too old.
    #[error("the newest value was posted for {age_s:.0} s ago: expected at most {age_max_s:.0} s")]
    Expired {
        /// Its age.
        age_s: f64,
        /// The largest age.
        age_max_s: f64,
    },
    /// The database does not answer.
    #[error("the database does not answer: {0}")]
    Database(#[from] crate::store::Error),
}

impl FactSourceError {
    /// Whether the same source may say something later.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Query(error) => error.failure.is_temporary(),
            Self::Access(AccessError::Unreadable { .. }) => true,
            Self::Access(_) | Self::Group(_) => false,
            Self::NoSeries { .. } | Self::NeverPushed { .. } | Self::Expired { .. } | Self::Database(_) => true,
        }
    }
}

/// A demand as it was seen.
#[derive(Clone, Copy, Debug)]
pub struct DemandReading {
    /// Queries per second at the root.
    pub qps: f64,
    /// Age of the samples behind it.
    pub age_s: f64,
}

/// The source of demand of a pipeline that is only advised.
#[must_use]
pub fn source_of(spec: &PipelineSpec) -> Option<&DemandSourceSpec> {
    let settings = spec.replan.as_ref().filter(|settings| settings.mode == ReplanMode::Advisory.name());
    settings.and_then(|settings| settings.demand.as_ref())
}

/// Asks a source for the demand.
///
/// # Errors
/// If it says none.
pub async fn read_demand(app: &App, pipeline: &str, source: &DemandSourceSpec) -> Result<DemandReading, FactSourceError> {
    if let Some(query) = &source.prometheus {
        return ask_demand(app, query).await;
    }
    let pushed = newest(app, pipeline, FactKind::Demand, source.pushed.as_ref()).await?;
    Ok(DemandReading { qps: pushed.value["qps"].as_f64().unwrap_or_default(), age_s: age_s(&pushed) })
}

/// Asks a Prometheus for the demand.
///
/// # Errors
/// If it says none.
pub async fn ask_demand(app: &App, query: &PrometheusQuerySpec) -> Result<DemandReading, FactSourceError> {
    let client = app.prometheus.client_for(query).await?;
    let Reading { samples, age_s } = client.read_one(&query.query, SampleAge::AtMostSeconds(query.age_max_s)).await?;
    Ok(DemandReading { qps: samples.value, age_s: age_s.unwrap_or(0.0) })
}

/// Asks a source for the series of the deployed groups.
///
/// # Errors
/// If it says none.
pub async fn read_deployed(
    app: &App,
    pipeline: &str,
    source: &DeploymentSourceSpec,
) -> Result<Reading<Vec<SeriesSample>>, FactSourceError> {
    if let Some(query) = &source.prometheus {
        return ask_series(app, query).await;
    }
    let pushed = newest(app, pipeline, FactKind::Deployment, source.pushed.as_ref()).await?;
    let groups = pushed.value["groups"].as_array().map_or(&[][..], Vec::as_slice);
    Ok(Reading { samples: groups.iter().map(series_of).collect(), age_s: Some(age_s(&pushed)) })
}

/// Asks a Prometheus for the series of the deployed groups.
///
/// # Errors
/// If it says none.
pub async fn ask_series(app: &App, query: &PrometheusQuerySpec) -> Result<Reading<Vec<SeriesSample>>, FactSourceError> {
    let client = app.prometheus.client_for(query).await?;
    let reading = client.read_all(&query.query, SampleAge::AtMostSeconds(query.age_max_s)).await?;
    match reading.samples.is_empty() {
        true => Err(FactSourceError::NoSeries { query: query.query.clone() }),
        false => Ok(reading),
    }
}

/// A posted group, as a Prometheus would say it.
#[must_use]
pub fn series_of(group: &Value) -> SeriesSample {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let keys = ["task", "variant", "hardware", "batch"].into_iter().filter(|key| !group[key].is_null());
    let labels: BTreeMap<_, _> = keys.map(|key| (key.to_owned(), text(&group[key]))).collect();
    SeriesSample { labels, evaluated_at_s: 0.0, value: group["replicas"].as_f64().unwrap_or_default() }
}

async fn newest(
    app: &App,
    pipeline: &str,
    kind: FactKind,
    settings: Option<&PushedFactSpec>,
) -> Result<PushedFactRow, FactSourceError> {
    let row = pushed_facts::get(&mut *app.pool.acquire().await?, pipeline, kind).await?;
    let never = || FactSourceError::NeverPushed { pipeline: pipeline.to_owned(), fact: kind.name() };
    let row = row.ok_or_else(never)?;
    let (age_s, age_max_s) = (age_s(&row), settings.map_or(0.0, |pushed| pushed.age_max_s));
    if age_s > age_max_s { Err(FactSourceError::Expired { age_s, age_max_s }) } else { Ok(row) }
}

/// The age of a posted fact in seconds, by the database's clock.
#[must_use]
pub fn age_s(row: &PushedFactRow) -> f64 {
    (now() - row.seen_at).num_milliseconds().max(0) as f64 / 1e3
}
