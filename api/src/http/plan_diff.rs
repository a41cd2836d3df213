//! `/v1/plans/{id}/diff`: what does a plan change against another one, or against the plans in force?

use super::access::Principal;
use super::body::off_loop;
use super::plans::PlanPath;
use super::project_access::may_name;
use super::refusal::{HandlerResult, Refusal, RefusalReply};
use crate::app::App;
use crate::store::{self, PgConnection, owners::OwnedKind, plans as rows, plans::PlanRow};
use actix_web::http::StatusCode;
use actix_web::{HttpResponse, web};
use apportion_domain::Plan;
use apportion_wire::{BadInput, PlanDiffFile, PlanState, plan_from_tree};
use serde::Deserialize;
use serde_json::Value;
use utoipa::IntoParams;
use uuid::Uuid;

/// The word for the plans in force.
const TARGET: &str = "target";

/// The plan before.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PlanDiffQuery {
    /// The identifier of the plan before, or `target`: the plans in force, as far as they serve the pipelines of this plan.
    #[param(example = "target")]
    pub against: String,
}

/// A stored plan file with its identifier.
struct StoredFile {
    id: Uuid,
    file: Value,
}

impl StoredFile {
    /// The plan file of a row; the error is the sentence why there is none.
    fn of(row: PlanRow) -> Result<Self, NoFile> {
        let (id, state) = (row.id, row.state);
        match row.plan {
            Some(file) if state == PlanState::Succeeded => Ok(Self { id, file }),
            _ => Err(NoFile { id, state }),
        }
    }

    fn read(self) -> Result<Plan, BadInput> {
        plan_from_tree(&format!("plan {}", self.id), self.file)
    }
}

/// A plan without a plan file that could be compared.
#[derive(Debug, thiserror::Error)]
#[error("plan {id} is {state}: expected one that has succeeded")]
struct NoFile {
    id: Uuid,
    state: PlanState,
}

/// The plan before.
enum Before {
    /// One plan.
    Plan(StoredFile),
    /// The plans in force.
    Target(Vec<StoredFile>),
}

/// The routes of this resource.
pub fn configure(config: &mut web::ServiceConfig) {
    config.service(web::resource("/v1/plans/{id}/diff").route(web::get().to(get)));
}

/// What a plan changes against another one, or against the plans in force: each group that differs, as `apportion diff
/// --format json` prints them.
#[utoipa::path(get, path = "/v1/plans/{id}/diff", tag = "plans", operation_id = "diff_plans",
    params(PlanPath, PlanDiffQuery),
    responses((status = 200, description = "The changes.", body = PlanDiffFile), RefusalReply<404>, RefusalReply<409>))]
pub async fn get(
    app: web::Data<App>,
    client: Principal,
    path: web::Path<PlanPath>,
    query: web::Query<PlanDiffQuery>,
) -> HandlerResult {
    let PlanPath { id } = path.into_inner();
    let mut db = app.pool.acquire().await?;
    let row = rows::get(&mut db, id).await?.ok_or_else(|| Refusal::not_found(format!("plan {id}")))?;
    let after = StoredFile::of(row).map_err(|no| Refusal::new(StatusCode::CONFLICT, no.to_string()))?;
    let before = before(&mut db, client.project.as_deref(), &query.against).await?;
    drop(db);
    let changes = off_loop(move || compare(before, after)).await??;
    Ok(HttpResponse::Ok().json(changes))
}

/// The plan before. A client of one project names plans of this one alone, and the target has all projects.
async fn before(db: &mut PgConnection, project: Option<&str>, against: &str) -> Result<Before, Refusal> {
    let refused = |detail: String| Refusal::value("/against", detail);
    if against == TARGET {
        if project.is_some() {
            return Err(refused("the target has plans of all projects: expected the identifier of a plan".to_owned()));
        }
        let mut files = Vec::new();
        for id in store::target::get(db).await?.plans {
            let row = rows::get(db, id).await?.ok_or_else(|| refused(format!("plan {id} of the target is not there")))?;
            files.push(StoredFile::of(row).map_err(|no| refused(no.to_string()))?);
        }
        return Ok(Before::Target(files));
    }
    let expected = || refused(format!("{against:?}: expected the identifier of a plan, or {TARGET}"));
    let id: Uuid = against.parse().map_err(|_| expected())?;
    if !may_name(db, project, OwnedKind::Plan, against).await? {
        return Err(expected());
    }
    let row = rows::get(db, id).await?.ok_or_else(expected)?;
    StoredFile::of(row).map(Before::Plan).map_err(|no| refused(no.to_string()))
}

/// The changes from one plan to another. Of the plans in force, only pipelines of the other plan count: it replaces no
/// others.
fn compare(before: Before, after: StoredFile) -> Result<PlanDiffFile, BadInput> {
    let after = after.read()?;
    let before = match before {
        Before::Plan(file) => file.read()?,
        Before::Target(files) => {
            let mut pipelines = Vec::new();
            for file in files {
                pipelines.extend(file.read()?.pipelines);
            }
            pipelines.retain(|part| after.pipelines.iter().any(|ours| ours.name == part.name));
            Plan { pipelines, cost_per_hour: 0.0 }
        }
    };
    Ok(PlanDiffFile::from(&before.diff(&after)[..]))
}
