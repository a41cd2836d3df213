//! `/v1/audit`: who asked for which change.

use super::paging::{ListPage, PageQuery};
use super::refusal::HandlerResult;
use crate::app::App;
use crate::store::audit::{self as rows, AuditRow};
use actix_web::web;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

/// A request for a change that was made or refused. Requests without a valid token are in the log alone.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct AuditEntry {
    /// Its identifier.
    pub id: Uuid,
    /// When it was made.
    pub made_at: DateTime<Utc>,
    /// The name of the client.
    pub who: String,
    /// Its token; null: none of the table.
    pub token: Option<Uuid>,
    /// The method.
    pub method: String,
    /// The path.
    pub path: String,
    /// The status of the answer; 499 if the client left before it. Then the change may have been made.
    pub status: i32,
    /// The reason in the header `Apportion-Why` of the request; null if it had none.
    pub why: Option<String>,
    /// The resource before the change, without secrets. Null if there was none, if nothing has changed, if the operation is
    /// on no single resource, or if the form could not be read. More than 8 KiB are left out: then it has `version` and
    /// `sha256`.
    #[schema(value_type = Option<Object>)]
    pub before: Option<Value>,
    /// The resource after the change, in the same form.
    #[schema(value_type = Option<Object>)]
    pub after: Option<Value>,
}

/// The part of the audit that is asked for.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct AuditQuery {
    /// Only entries before this one, by `id`.
    pub before: Option<Uuid>,
    /// Only requests of clients with this name.
    pub who: Option<String>,
}

/// The routes of this resource.
pub fn configure(config: &mut web::ServiceConfig) {
    config.service(web::resource("/v1/audit").route(web::get().to(list)));
}

/// Requests for changes, the newest first.
#[utoipa::path(get, path = "/v1/audit", tag = "access", operation_id = "list_audit",
    params(AuditQuery, PageQuery),
    responses((status = 200, description = "The entries.", body = [AuditEntry])))]
pub async fn list(app: web::Data<App>, page: ListPage<Uuid, AuditQuery>) -> HandlerResult {
    let before = page.filter.before.into_iter().chain(page.after).min();
    let who = page.filter.who.as_deref();
    let rows = rows::list(&mut *app.pool.acquire().await?, who, before, page.rows_max()).await?;
    let entry = |row: AuditRow| {
        let AuditRow { id, made_at, who, token, method, path, status, why, before, after } = row;
        AuditEntry { id, made_at, who, token, method, path, status, why, before, after }
    };
    Ok(page.answer(rows, |row| row.id, entry))
}
