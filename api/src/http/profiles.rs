//! `/v1/pipelines/{name}/profiles`: the measurements of a pipeline.

use super::body::{self, Document, IfMatch, IfNoneMatch, Name, off_loop};
use super::refusal::{HandlerResult, Refusal, RefusalReply};
use crate::act::slot_backends;
use crate::app::{App, now};
use crate::documents::{self, ProfileExtent};
use crate::store::Condition;
use crate::store::pipelines as rows;
use actix_web::dev::Payload;
use actix_web::http::{StatusCode, header};
use actix_web::{FromRequest, HttpRequest, HttpResponse, web};
use apportion_wire::{AccuracyUnit, BadInput, MeasuredRow, MeasuredVariant, ProfileCsvRow, ProfileSet};
use futures::future::LocalBoxFuture;

/// The routes of this resource.
pub fn configure(config: &mut web::ServiceConfig) {
    config.service(
        web::resource("/v1/pipelines/{name}/profiles")
            .route(web::get().to(get))
            .route(web::put().to(put))
            .route(web::delete().to(delete)),
    );
}

/// The measurements of a pipeline.
#[utoipa::path(get, path = "/v1/pipelines/{name}/profiles", tag = "pipelines", operation_id = "get_profiles", params(Name),
    responses((status = 200, description = "The profiles.", body = ProfileSet,
        headers(("ETag" = String, description = "Their version."))), RefusalReply<404>))]
pub async fn get(app: web::Data<App>, Name { name }: Name) -> HandlerResult {
    let row = rows::get(&mut *app.pool.acquire().await?, &name).await?;
    let row = row.ok_or_else(|| Refusal::not_found(format!("pipeline {name}")))?;
    let (Some(profile), Some(version)) = (row.profile, row.profile_version) else {
        return Err(Refusal::not_found(format!("profile of pipeline {name}")));
    };
    let shown = off_loop(move || documents::shown_profile(&row.spec, profile)).await?;
    Ok(HttpResponse::Ok().insert_header(body::version_tag(version)).json(shown))
}

/// A profile from a client: a JSON document, or a profile file.
pub enum ProfileUpload {
    /// JSON.
    Json(Document),
    /// CSV.
    Csv(body::Body<{ body::DOCUMENT_BYTES_MAX }>),
}

impl FromRequest for ProfileUpload {
    type Error = Refusal;
    type Future = LocalBoxFuture<'static, Result<Self, Refusal>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let content = request.headers().get(header::CONTENT_TYPE).and_then(|t| t.to_str().ok()).unwrap_or_default();
        if content.starts_with("text/csv") {
            let body = body::Body::from_request(request, payload);
            return Box::pin(async move { Ok(Self::Csv(body.await?)) });
        }
        let document = Document::from_request(request, payload);
        Box::pin(async move { Ok(Self::Json(document.await?)) })
    }
}

impl ProfileUpload {
    async fn read(self, pipeline: String) -> Result<ProfileSet, Refusal> {
        // The body keeps its room until it is parsed.
        let read = move || -> Result<ProfileSet, Refusal> {
            match self {
                Self::Json(document) => Ok(apportion_wire::profile_set_from_tree("profiles", document.tree)?),
                Self::Csv(body) => {
                    let text = body::text(&body.bytes)?;
                    from_csv(apportion_wire::read_profile_csv("profiles", text, AccuracyUnit::Fraction)?, &pipeline)
                }
            }
        };
        off_loop(read).await?
    }
}

/// Registers measurements, as JSON or as a profile file in CSV (`text/csv`). They are merged with the registered ones. Rows
/// replace those of the same task, variant, hardware type and share; the rest is replaced by variant, path and task.
/// Everything else stays.
#[utoipa::path(put, path = "/v1/pipelines/{name}/profiles", tag = "pipelines", operation_id = "put_profiles",
    params(Name, IfMatch, IfNoneMatch),
    request_body(content((ProfileSet = "application/json"), (String = "text/csv")), description = "What was measured."),
    responses((status = 200, description = "All that is registered now.", body = ProfileSet,
        headers(("ETag" = String, description = "Its version."))), RefusalReply<404>, RefusalReply<412>))]
pub async fn put(app: web::Data<App>, Name { name }: Name, condition: Condition, sent: ProfileUpload) -> HandlerResult {
    let sent = sent.read(name.clone()).await?;
    let mut tx = app.pool.begin().await?;
    // Locked, so that two profilers that end at once keep the measurements of both.
    let row = rows::lock(&mut tx, &name).await?.ok_or_else(|| Refusal::not_found(format!("pipeline {name}")))?;
    let rows = sent.rows.clone();
    let merge = move || -> Result<_, BadInput> {
        let document = documents::merged_profile(&row, sent, ProfileExtent::Complete)?;
        let registered = apportion_wire::pipeline_spec_from_tree("pipeline", row.spec.clone())?;
        Ok((row.spec, registered, document))
    };
    let (spec, registered, document) = off_loop(merge).await??;
    if let Some(refusal) = slot_backends::refuse_rows(&mut tx, &registered, &rows).await? {
        return Err(refusal.into());
    }
    let version = rows::put_profile(&mut tx, &name, &document, &condition, now()).await?;
    let mut response = body::written(version, &format!("the profile of pipeline {name}"))?;
    tx.commit().await?;
    let shown = off_loop(move || documents::shown_profile(&spec, document)).await?;
    Ok(response.status(StatusCode::OK).json(shown))
}

/// Forgets all that was measured of a pipeline.
#[utoipa::path(delete, path = "/v1/pipelines/{name}/profiles", tag = "pipelines", operation_id = "delete_profiles",
    params(Name, IfMatch), responses((status = 204, description = "It is gone."), RefusalReply<404>, RefusalReply<412>))]
pub async fn delete(app: web::Data<App>, Name { name }: Name, condition: Condition) -> HandlerResult {
    let deletion = rows::delete_profile(&mut *app.pool.acquire().await?, &name, &condition).await?;
    body::deleted(deletion, &format!("profile of pipeline {name}"))
}

/// The rows of a profile file as a profile: all of this pipeline, each variant's accuracy from its first row that has
/// one.
fn from_csv(rows: Vec<ProfileCsvRow>, pipeline: &str) -> Result<ProfileSet, Refusal> {
    let mut set = ProfileSet::default();
    for (i, row) in rows.into_iter().enumerate() {
        if row.pipeline != pipeline {
            // The header is line 1.
            return Err(Refusal::value(
                format!("line {}", i + 2),
                format!("{}: expected pipeline {pipeline}", row.pipeline),
            ));
        }
        let is_known = |v: &MeasuredVariant| v.task == row.task && v.variant == row.variant;
        if row.accuracy.is_some() && !set.variants.iter().any(is_known) {
            let (task, variant) = (row.task.clone(), row.variant.clone());
            set.variants.push(MeasuredVariant { task, variant, accuracy: row.accuracy, ..MeasuredVariant::default() });
        }
        set.rows.push(MeasuredRow {
            task: row.task,
            variant: row.variant,
            hardware: row.hardware,
            share: 1.0,
            batch: row.batch,
            latency_ms: row.latency_ms,
            p99_ms: row.p99_ms,
            measured: None,
        });
    }
    Ok(set)
}
