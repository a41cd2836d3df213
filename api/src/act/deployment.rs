//! Which replicas of a pipeline without agents are deployed, and what would following the advice change?

use super::apply::{ApplyError, fence};
use super::sources::{FactSourceError, read_deployed};
use crate::app::{App, now};
use crate::decide::deployed::plan_of;
use crate::decide::replacement::at_demand;
use crate::decide::replan::TRACE_S;
use crate::documents;
use crate::jobs::{FiguresError, figures_of};
use crate::store::{self, leases::HeldLease};
use apportion_domain::{PipelinePlan, Plan};
use apportion_wire::{BadInput, DeploymentSourceSpec, HardwareSpec, PipelineSpec, read_plan_for};
use serde_json::{Value, json};

/// Why there are no figures of the deployment.
#[derive(Debug, thiserror::Error)]
enum DeploymentError {
    #[error(transparent)]
    Source(#[from] FactSourceError),
    #[error(transparent)]
    Document(#[from] BadInput),
    #[error(transparent)]
    Figures(#[from] FiguresError),
}

/// Reads the deployment if the settings name a source of it, and notes its figures beside those of the advice, both under
/// the demand that was seen.
pub(super) async fn note_deployment(
    app: &App,
    lease: HeldLease,
    spec: PipelineSpec,
    seen_qps: f64,
    advised: Option<PipelinePlan>,
) -> Result<(), ApplyError> {
    let (name, source) = (spec.name.clone(), spec.replan.as_ref().and_then(|replan| replan.deployed.clone()));
    let Some((source, advised)) = source.zip(advised) else { return Ok(()) };
    let rows = store::hardware::list(&mut *app.pool.acquire().await?).await?;
    let hardware = rows.into_iter().map(|row| HardwareSpec {
        name: row.name,
        price_per_hour: row.price_per_hour,
        memory_mib: row.memory_mib,
        count: None,
    });
    let spec = PipelineSpec { demand_qps: seen_qps, ..spec };
    let found = compare(app, spec, hardware.collect(), &source, &advised).await;
    let mut tx = app.pool.begin().await?;
    fence(&mut tx, lease).await?;
    match &found {
        Ok(document) => store::advice::note_deployment(&mut tx, &name, Some(document), None).await?,
        Err(error) => {
            tracing::warn!(pipeline = name, %error, "the deployment is unknown");
            store::advice::note_deployment(&mut tx, &name, None, Some(&error.to_string())).await?;
        }
    }
    Ok(tx.commit().await?)
}

/// The deployment with its figures and those of the advice.
async fn compare(
    app: &App,
    spec: PipelineSpec,
    hardware: Vec<HardwareSpec>,
    source: &DeploymentSourceSpec,
    advised: &PipelinePlan,
) -> Result<Value, DeploymentError> {
    let (name, qps) = (spec.name.clone(), spec.demand_qps);
    let reading = read_deployed(app, &name, source).await?;
    let document = documents::problem_document(
        spec.replan.clone().unwrap_or_default().objective.unwrap_or_default(),
        hardware,
        vec![spec],
    )?;
    let problem = documents::problem(&document)?;
    let deployed = plan_of(&problem, &reading.samples).map_err(FactSourceError::Group)?;
    let groups = deployed["pipelines"][0]["assignments"].clone();
    let plan: Plan = read_plan_for(&problem, "the deployment", &deployed.to_string())?;
    let plans = vec![plan, at_demand(advised, &problem)];
    let figures = figures_of(problem, plans, vec![documents::steady(qps, TRACE_S)]).await?;
    let age_s = reading.age_s.unwrap_or(0.0);
    let seen_at = now() - chrono::Duration::milliseconds((age_s * 1e3) as i64);
    Ok(json!({"groups": groups, "seen_at": seen_at, "demand_qps": qps, "deployed": figures[0], "advised": figures[1]}))
}
