//! `/v1/pipelines/{name}/demand` and `/deployment`: facts about pipelines without agents, posted by clients or read from a
//! Prometheus.

use super::body::{self, Document, Name};
use super::refusal::{HandlerResult, Refusal, RefusalReply};
use crate::act::sources::{self, series_of, source_of};
use crate::app::{App, now};
use crate::decide::deployed::plan_of;
use crate::jobs::PlanFigures;
use crate::store::advice::AdviceRow;
use crate::store::pipelines::{self as rows, PipelineRow};
use crate::store::pushed_facts::{self, FactKind, PushedFactRow};
use crate::{documents, store};
use actix_web::http::StatusCode;
use actix_web::{HttpResponse, web};
use apportion_wire::{HardwareSpec, PipelineSpec};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Largest demand in queries per second.
const DEMAND_QPS_MAX: f64 = 1e9;
/// Largest age of a posted fact in seconds.
const AGE_S_MAX: f64 = 3_600.0;
/// Most groups of a posted deployment.
const GROUPS_MAX: usize = 1_000;

/// A demand that a client posts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DemandPost {
    /// Queries per second at the pipeline's root, 0 to 1e9.
    #[schema(minimum = 0, maximum = 1e9)]
    pub qps: f64,
    /// Age of the measurement in seconds, 0 to 3600; default 0.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 3600)]
    pub age_s: f64,
}

/// The demand of a pipeline without agents, as it was seen last.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct DemandDocument {
    /// The source: `prometheus` or `pushed`.
    pub source: String,
    /// Queries per second at the root; null before the first.
    pub qps: Option<f64>,
    /// The moment for which it holds.
    pub seen_at: Option<DateTime<Utc>>,
    /// Its age in seconds.
    pub age_s: Option<f64>,
    /// The largest age in seconds. An older demand is unknown, and the last advice stays.
    pub age_max_s: f64,
    /// Why the demand is unknown; null if it is known.
    pub unknown: Option<String>,
}

/// The replicas of one group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DeployedGroup {
    /// The task; it may be absent where the variant tells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// The variant.
    pub variant: String,
    /// The hardware type; it may be absent where the variant's profile has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<String>,
    /// The batch size; default: the largest of the profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<u32>,
    /// The replicas that run.
    pub replicas: u32,
}

/// A deployment that a client posts: all groups that run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DeploymentPost {
    /// The groups, at most 1,000.
    pub groups: Vec<DeployedGroup>,
    /// Age of the observation in seconds, 0 to 3600; default 0.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 3600)]
    pub age_s: f64,
}

/// The deployment of a pipeline without agents, and the effect of following the advice.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct DeploymentDocument {
    /// The groups that run; null before the first round that knew them.
    pub groups: Option<Vec<DeployedGroup>>,
    /// The moment for which they hold.
    pub seen_at: Option<DateTime<Utc>>,
    /// Age of that moment in seconds.
    pub age_s: Option<f64>,
    /// The demand under which both plans were replayed, in queries per second.
    pub demand_qps: Option<f64>,
    /// The figures of the deployment under this demand.
    pub deployed: Option<PlanFigures>,
    /// The figures of the advice under the same demand.
    pub advised: Option<PlanFigures>,
    /// Why the deployment is unknown; null if it is known.
    pub unknown: Option<String>,
}

/// The routes of this resource.
pub fn configure(config: &mut web::ServiceConfig) {
    config
        .service(
            web::resource("/v1/pipelines/{name}/demand")
                .route(web::get().to(get_demand))
                .route(web::post().to(post_demand)),
        )
        .service(
            web::resource("/v1/pipelines/{name}/deployment")
                .route(web::get().to(get_deployment))
                .route(web::post().to(post_deployment)),
        );
}

/// The demand of a pipeline without agents, with its age.
#[utoipa::path(get, path = "/v1/pipelines/{name}/demand", tag = "pipelines", operation_id = "get_demand", params(Name),
    responses((status = 200, description = "The demand as it was seen last.", body = DemandDocument), RefusalReply<404>))]
pub async fn get_demand(app: web::Data<App>, Name { name }: Name) -> HandlerResult {
    let mut db = app.pool.acquire().await?;
    let Advised { spec, .. } = advised(&mut db, &name).await?;
    Ok(HttpResponse::Ok().json(demand_document(&mut db, &spec).await?))
}

/// Posts the present demand. Its pipeline has the source of demand `pushed`. An older demand than the newest is ignored.
#[utoipa::path(post, path = "/v1/pipelines/{name}/demand", tag = "pipelines", operation_id = "post_demand", params(Name),
    request_body(content = DemandPost, description = "The demand."),
    responses((status = 200, description = "The newest demand.", body = DemandDocument), RefusalReply<404>,
        RefusalReply<409>))]
pub async fn post_demand(app: web::Data<App>, Name { name }: Name, document: Document) -> HandlerResult {
    let post: DemandPost = body::value(document.tree)?;
    if !(0.0..=DEMAND_QPS_MAX).contains(&post.qps) {
        return Err(Refusal::value("/qps", format!("{}: expected a number from 0 to {DEMAND_QPS_MAX:e}", post.qps)));
    }
    let seen_at = moment(post.age_s)?;
    let mut db = app.pool.acquire().await?;
    let Advised { spec, .. } = advised(&mut db, &name).await?;
    if source_of(&spec).is_none_or(|source| source.pushed.is_none()) {
        return Err(not_pushed(&name, "demand"));
    }
    pushed_facts::put(&mut db, &name, FactKind::Demand, &json!({"qps": post.qps}), seen_at).await?;
    Ok(HttpResponse::Ok().json(demand_document(&mut db, &spec).await?))
}

/// The deployment of a pipeline without agents, and the effect of following the advice.
#[utoipa::path(get, path = "/v1/pipelines/{name}/deployment", tag = "pipelines", operation_id = "get_deployment",
    params(Name),
    responses((status = 200, description = "The deployment as the last round saw it.", body = DeploymentDocument),
        RefusalReply<404>))]
pub async fn get_deployment(app: web::Data<App>, Name { name }: Name) -> HandlerResult {
    let mut db = app.pool.acquire().await?;
    advised(&mut db, &name).await?;
    let advice = store::advice::get(&mut db, &name).await?;
    Ok(HttpResponse::Ok().json(deployment_document(advice.as_ref())))
}

/// Posts the replicas that run now. Its pipeline has the source `pushed` of its deployment. The next round compares them
/// with the advice.
#[utoipa::path(post, path = "/v1/pipelines/{name}/deployment", tag = "pipelines", operation_id = "post_deployment",
    params(Name), request_body(content = DeploymentPost, description = "All groups that run."),
    responses((status = 202, description = "It is stored.", body = DeploymentPost), RefusalReply<404>,
        RefusalReply<409>))]
pub async fn post_deployment(app: web::Data<App>, Name { name }: Name, document: Document) -> HandlerResult {
    let post: DeploymentPost = body::value(document.tree)?;
    if post.groups.len() > GROUPS_MAX {
        return Err(Refusal::value("/groups", format!("{} groups: expected at most {GROUPS_MAX}", post.groups.len())));
    }
    let seen_at = moment(post.age_s)?;
    let mut db = app.pool.acquire().await?;
    let Advised { row, spec } = advised(&mut db, &name).await?;
    let source = spec.replan.as_ref().and_then(|replan| replan.deployed.as_ref());
    if source.is_none_or(|source| source.pushed.is_none()) {
        return Err(not_pushed(&name, "deployed"));
    }
    check_groups(&row, &post.groups)?;
    pushed_facts::put(&mut db, &name, FactKind::Deployment, &json!({"groups": post.groups}), seen_at).await?;
    Ok(HttpResponse::Accepted().json(post))
}

/// A pipeline with a source of demand.
struct Advised {
    row: PipelineRow,
    spec: PipelineSpec,
}

async fn advised(db: &mut store::PgConnection, name: &str) -> Result<Advised, Refusal> {
    let row = rows::get(db, name).await?.ok_or_else(|| Refusal::not_found(format!("pipeline {name}")))?;
    let spec = apportion_wire::pipeline_spec_from_tree("pipeline", row.spec.clone())?;
    match source_of(&spec) {
        Some(_) => Ok(Advised { row, spec }),
        None => Err(Refusal::not_found(format!("source of demand in the replan settings of pipeline {name}"))),
    }
}

fn not_pushed(name: &str, key: &str) -> Refusal {
    let detail = format!("pipeline {name} has another source: expected /replan/{key} to be {{\"pushed\": {{}}}}");
    Refusal::new(StatusCode::CONFLICT, detail)
}

/// The moment of a fact of this age.
fn moment(age_s: f64) -> Result<DateTime<Utc>, Refusal> {
    match (0.0..=AGE_S_MAX).contains(&age_s) {
        true => Ok(now() - chrono::Duration::milliseconds((age_s * 1e3) as i64)),
        false => Err(Refusal::value("/age_s", format!("{age_s}: expected a number from 0 to {AGE_S_MAX}"))),
    }
}

/// Refuses groups that the pipeline does not have. Without a profile they cannot be told yet.
fn check_groups(row: &PipelineRow, groups: &[DeployedGroup]) -> Result<(), Refusal> {
    if row.profile.is_none() {
        return Err(Refusal::new(StatusCode::CONFLICT, format!("pipeline {} has no profile yet: put one first", row.name)));
    }
    let spec = documents::measured(row)?;
    let profiled = spec.tasks.iter().flat_map(|t| &t.variants).flat_map(|v| v.profile.iter().flatten());
    let names: BTreeMap<String, ()> = profiled.map(|row| (row.hardware.clone(), ())).collect();
    let hardware = |name| HardwareSpec { name, price_per_hour: 1.0, count: None, memory_mib: None };
    let document = documents::problem_document(
        Default::default(),
        names.into_keys().map(hardware).collect(),
        vec![PipelineSpec { demand_qps: 1.0, ..spec }],
    )?;
    let problem = documents::problem(&document)?;
    for (index, group) in groups.iter().enumerate() {
        let series = series_of(&serde_json::to_value(group).expect("a group is JSON"));
        plan_of(&problem, &[series]).map_err(|error| {
            let key = error.at.rsplit('/').next().unwrap_or_default().replace("value", "replicas");
            Refusal::value(format!("/groups/{index}/{key}"), format!("{}: expected {}", error.found, error.expected))
        })?;
    }
    Ok(())
}

async fn demand_document(db: &mut store::PgConnection, spec: &PipelineSpec) -> Result<DemandDocument, Refusal> {
    let Some(source) = source_of(spec) else {
        return Err(Refusal::not_found(format!("source of demand of pipeline {}", spec.name)));
    };
    if let Some(query) = &source.prometheus {
        let row = store::advice::get(db, &spec.name).await?;
        let unknown = match &row {
            None => Some("no round has had an answer yet".to_owned()),
            Some(row) => row.unknown.clone(),
        };
        return Ok(DemandDocument {
            source: "prometheus".to_owned(),
            qps: row.as_ref().map(|row| row.demand_qps),
            seen_at: row.as_ref().map(|row| row.seen_at),
            age_s: row.as_ref().map(|row| seconds_since(row.seen_at)),
            age_max_s: query.age_max_s,
            unknown,
        });
    }
    let age_max_s = source.pushed.as_ref().map_or(0.0, |pushed| pushed.age_max_s);
    let row = pushed_facts::get(db, &spec.name, FactKind::Demand).await?;
    let expired = |row: &PushedFactRow| {
        let age_s = sources::age_s(row);
        (age_s > age_max_s).then(|| sources::FactSourceError::Expired { age_s, age_max_s }.to_string())
    };
    let never = || sources::FactSourceError::NeverPushed { pipeline: spec.name.clone(), fact: FactKind::Demand.name() };
    Ok(DemandDocument {
        source: "pushed".to_owned(),
        qps: row.as_ref().and_then(|row| row.value["qps"].as_f64()),
        seen_at: row.as_ref().map(|row| row.seen_at),
        age_s: row.as_ref().map(sources::age_s),
        age_max_s,
        unknown: row.as_ref().map_or_else(|| Some(never().to_string()), expired),
    })
}

fn seconds_since(at: DateTime<Utc>) -> f64 {
    (now() - at).num_milliseconds().max(0) as f64 / 1e3
}

fn deployment_document(advice: Option<&AdviceRow>) -> DeploymentDocument {
    let seen = advice.and_then(|row| row.deployment.clone()).unwrap_or_default();
    let read = |key: &str| -> Value { seen[key].clone() };
    let seen_at: Option<DateTime<Utc>> = serde_json::from_value(read("seen_at")).unwrap_or_default();
    let unknown = match advice {
        Some(row) if row.deployment_unknown.is_some() => row.deployment_unknown.clone(),
        Some(row) if row.deployment.is_some() => None,
        _ => Some("no round has known it yet".to_owned()),
    };
    DeploymentDocument {
        groups: serde_json::from_value(read("groups")).unwrap_or_default(),
        age_s: seen_at.map(seconds_since),
        seen_at,
        demand_qps: seen["demand_qps"].as_f64(),
        deployed: serde_json::from_value(read("deployed")).unwrap_or_default(),
        advised: serde_json::from_value(read("advised")).unwrap_or_default(),
        unknown,
    }
}
