//! `/v1/projects`: projects with their quotas and priorities.

use super::body::{self, Document, IfMatch, IfNoneMatch, Name};
use super::objects::{object, object_or_null};
use super::paging::{ListPage, PageQuery, PrefixQuery};
use super::refusal::{HandlerResult, Refusal, RefusalReply};
use crate::app::{App, now};
use crate::decide::project_storage::{STORAGE_LIMIT_MAX, StorageQuota};
use crate::decide::projects::ProjectQuota;
use crate::store::project_storage::{self, ProjectStorageRow};
use crate::store::projects::{self as rows, ProjectRow};
use crate::store::{Condition, Deletion, tokens};
use actix_web::http::StatusCode;
use actix_web::{HttpResponse, web};
use apportion_wire::PRIORITY_MAX;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Most devices that a quota names.
const QUOTA_DEVICES_MAX: u32 = 1_000_000;
/// Highest cost per hour that a quota names.
const QUOTA_COST_MAX: f64 = 1e12;
/// Most hardware types of one quota.
const QUOTA_TYPES_MAX: usize = 256;

/// A project; its name is in the path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProjectDocument {
    /// Its name; in a body it must be that of the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Which projects have devices first, -1000 to 1000: those with the higher number; default 0.
    #[serde(default)]
    #[schema(minimum = -1000, maximum = 1000)]
    pub priority: i64,
    /// The limits of its pipelines together; default: none.
    #[serde(default, deserialize_with = "object")]
    pub quota: ProjectQuota,
    /// The limits of what its tokens store; default: those of `StorageQuota`.
    #[serde(default, deserialize_with = "object", skip_serializing_if = "StorageQuota::is_default")]
    pub storage: StorageQuota,
    /// What its tokens have stored. Only the answer about one project has it. A body may have it, and it is not read.
    #[serde(default, deserialize_with = "object_or_null", skip_serializing_if = "Option::is_none")]
    pub stored: Option<ProjectStorage>,
}

/// What the tokens of a project have stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProjectStorage {
    /// Bytes of model files. A file counts for the project whose token stored it first.
    pub file_bytes: i64,
    /// Rows of traces.
    pub trace_rows: i64,
}

impl From<ProjectStorageRow> for ProjectStorage {
    fn from(row: ProjectStorageRow) -> Self {
        let ProjectStorageRow { file_bytes, trace_rows } = row;
        Self { file_bytes, trace_rows }
    }
}

impl From<ProjectRow> for ProjectDocument {
    fn from(row: ProjectRow) -> Self {
        let quota = serde_json::from_value(row.quota).unwrap_or_default();
        let storage = row.storage.and_then(|storage| serde_json::from_value(storage).ok()).unwrap_or_default();
        Self { name: Some(row.name), priority: row.priority, quota, storage, stored: None }
    }
}

/// The routes of this resource.
pub fn configure(config: &mut web::ServiceConfig) {
    config.service(web::resource("/v1/projects").route(web::get().to(list))).service(
        web::resource("/v1/projects/{name}")
            .route(web::get().to(get))
            .route(web::put().to(put))
            .route(web::delete().to(delete)),
    );
}

/// All projects, by name. The project `default` is there if it was written.
#[utoipa::path(get, path = "/v1/projects", tag = "projects", operation_id = "list_projects",
    params(PrefixQuery, PageQuery),
    responses((status = 200, description = "The projects.", body = [ProjectDocument])))]
pub async fn list(app: web::Data<App>, page: ListPage<String, PrefixQuery>) -> HandlerResult {
    let (prefix, after) = (page.filter.prefix.as_deref(), page.after.as_deref());
    let rows = rows::page(&mut *app.pool.acquire().await?, prefix, after, page.rows_max()).await?;
    Ok(page.answer(rows, |row| row.name.clone(), ProjectDocument::from))
}

/// One project, with what its tokens have stored.
#[utoipa::path(get, path = "/v1/projects/{name}", tag = "projects", operation_id = "get_project", params(Name),
    responses((status = 200, description = "The project.", body = ProjectDocument,
        headers(("ETag" = String, description = "Its version."))), RefusalReply<404>))]
pub async fn get(app: web::Data<App>, Name { name }: Name) -> HandlerResult {
    let mut db = app.pool.acquire().await?;
    let row = rows::get(&mut db, &name).await?;
    let row = row.ok_or_else(|| Refusal::not_found(format!("project {name}")))?;
    let stored = project_storage::used(&mut db, &name).await?;
    let tag = body::version_tag(row.version);
    let document = ProjectDocument { stored: Some(stored.into()), ..ProjectDocument::from(row) };
    Ok(HttpResponse::Ok().insert_header(tag).json(document))
}

/// Writes a project or replaces it. A target that exceeds a smaller quota stays, until a round or a person replaces it.
#[utoipa::path(put, path = "/v1/projects/{name}", tag = "projects", operation_id = "put_project",
    params(Name, IfMatch, IfNoneMatch),
    request_body(content = ProjectDocument, description = "The project."),
    responses(
        (status = 200, description = "It was replaced.", body = ProjectDocument,
            headers(("ETag" = String, description = "Its version."))),
        (status = 201, description = "It is new.", body = ProjectDocument,
            headers(("ETag" = String, description = "Its version."))),
        RefusalReply<412>))]
pub async fn put(app: web::Data<App>, Name { name }: Name, condition: Condition, document: Document) -> HandlerResult {
    let row = checked_row(name, body::value(document.tree)?)?;
    let what = format!("project {}", row.name);
    let row = rows::put(&mut *app.pool.acquire().await?, &row, &condition).await?;
    let mut response = body::written(row.as_ref().map(|row| row.version), &what)?;
    Ok(response.json(row.map(ProjectDocument::from)))
}

/// The row of a document whose values are allowed.
fn checked_row(name: String, document: ProjectDocument) -> Result<ProjectRow, Refusal> {
    let ProjectDocument { name: own, priority, quota, storage, stored: _ } = document;
    if own.is_some_and(|own| own != name) {
        return Err(Refusal::value("/name", format!("expected {name}, as in the path, or nothing")));
    }
    if !(-PRIORITY_MAX..=PRIORITY_MAX).contains(&priority) {
        let expected = format!("expected a whole number from -{PRIORITY_MAX} to {PRIORITY_MAX}");
        return Err(Refusal::value("/priority", format!("{priority}: {expected}")));
    }
    if quota.hardware.len() > QUOTA_TYPES_MAX {
        let found = quota.hardware.len();
        return Err(Refusal::value("/quota/hardware", format!("{found} types: expected at most {QUOTA_TYPES_MAX}")));
    }
    let of_type = quota.hardware.iter().map(|(name, count)| (format!("/quota/hardware/{name}"), *count));
    let mut counts = of_type.chain(quota.devices.map(|count| ("/quota/devices".to_owned(), count)));
    if let Some((pointer, count)) = counts.find(|(_, count)| *count > QUOTA_DEVICES_MAX) {
        return Err(Refusal::value(pointer, format!("{count}: expected a whole number from 0 to {QUOTA_DEVICES_MAX}")));
    }
    if let Some(cost) = quota.cost_per_hour.filter(|cost| !(0.0..=QUOTA_COST_MAX).contains(cost)) {
        let expected = format!("expected a number of at least 0, at most {QUOTA_COST_MAX}, or null");
        return Err(Refusal::value("/quota/cost_per_hour", format!("{cost}: {expected}")));
    }
    check_storage(storage)?;
    let quota = serde_json::to_value(&quota).expect("a quota is JSON");
    let storage = (!storage.is_default()).then(|| serde_json::to_value(storage).expect("a quota is JSON"));
    Ok(ProjectRow { name, priority, quota, storage, ..ProjectRow::default() })
}

/// Refuses limits that no disk has.
fn check_storage(storage: StorageQuota) -> Result<(), Refusal> {
    for (member, limit) in [("file_bytes", storage.file_bytes), ("trace_rows", storage.trace_rows)] {
        if let Some(limit) = limit.filter(|limit| *limit > STORAGE_LIMIT_MAX) {
            let expected = format!("expected a whole number from 0 to {STORAGE_LIMIT_MAX}, or null");
            return Err(Refusal::value(format!("/storage/{member}"), format!("{limit}: {expected}")));
        }
    }
    Ok(())
}

/// Deletes a project. One that a pipeline names stays, and so does one with tokens that count. Its plans, traces and model
/// files are no project's alone from then on.
#[utoipa::path(delete, path = "/v1/projects/{name}", tag = "projects", operation_id = "delete_project",
    params(Name, IfMatch),
    responses((status = 204, description = "It is gone."), RefusalReply<404>, RefusalReply<409>, RefusalReply<412>))]
pub async fn delete(app: web::Data<App>, Name { name }: Name, condition: Condition) -> HandlerResult {
    let what = format!("project {name}");
    let mut tx = app.pool.begin().await?;
    // From here on no pipeline can begin to name it. The next statement sees those that did.
    if !rows::lock(&mut tx, &name).await? {
        return Err(Refusal::not_found(&what));
    }
    if let Some(pipeline) = rows::first_pipeline(&mut tx, &name).await? {
        let detail = format!("{what} has pipelines, {pipeline} among them: let them name another project first");
        return Err(Refusal::new(StatusCode::CONFLICT, detail));
    }
    if tokens::has_bound(&mut tx, &name, now()).await? {
        let detail = format!("{what} has tokens that count: revoke them first (GET /v1/tokens?project={name})");
        return Err(Refusal::new(StatusCode::CONFLICT, detail));
    }
    let deleted = rows::delete(&mut tx, &name, &condition).await?;
    if deleted == Deletion::Done {
        // A new project with this name must not have them.
        rows::release(&mut tx, &name).await?;
    }
    tx.commit().await?;
    body::deleted(deleted, &what)
}
