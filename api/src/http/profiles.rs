//! `/v1/pipelines/{name}/profiles`: what was measured of a pipeline.

use super::body;
use super::refusal::{Answer, Refusal};
use crate::app::{App, now};
use crate::store::pipelines as rows;
use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse, web};
use apportion_wire::{AccuracyUnit, MeasuredRow, MeasuredVariant, ProfileCsvRow, ProfileSet};

/// Routes of this resource.
pub fn configure(config: &mut web::ServiceConfig) {
    config.service(web::resource("/v1/pipelines/{name}/profiles").route(web::get().to(get)).route(web::put().to(put)));
}

/// What was measured of a pipeline.
#[utoipa::path(get, path = "/v1/pipelines/{name}/profiles", tag = "pipelines", params(("name" = String, Path)),
    responses((status = 200, body = ProfileSet), (status = 404, body = Refusal)))]
pub async fn get(app: web::Data<App>, name: web::Path<String>) -> Answer {
    let row = rows::get(&mut *app.pool.acquire().await?, &name).await?;
    let row = row.ok_or_else(|| Refusal::not_found(format!("pipeline {name}")))?;
    let profile = row.profile.ok_or_else(|| Refusal::not_found(format!("profile of pipeline {name}")))?;
    Ok(HttpResponse::Ok().json(profile))
}

/// Registers what was measured, as JSON or as a profile file in CSV (`text/csv`), and replaces what was there.
#[utoipa::path(put, path = "/v1/pipelines/{name}/profiles", tag = "pipelines", params(("name" = String, Path)),
    request_body(content((ProfileSet = "application/json"), (String = "text/csv"))),
    responses((status = 200, body = ProfileSet), (status = 400, body = Refusal), (status = 404, body = Refusal),
        (status = 422, body = Refusal)))]
pub async fn put(app: web::Data<App>, name: web::Path<String>, request: HttpRequest, bytes: web::Bytes) -> Answer {
    let content = request.headers().get(header::CONTENT_TYPE).and_then(|t| t.to_str().ok()).unwrap_or_default();
    let profiles = if content.starts_with("text/csv") {
        from_csv(apportion_wire::read_profile_csv("profiles", body::text(&bytes)?, AccuracyUnit::Fraction)?, &name)?
    } else {
        apportion_wire::profile_set_from_tree("profiles", body::tree(&bytes)?)?
    };
    let mut tx = app.pool.begin().await?;
    let row = rows::get(&mut tx, &name).await?.ok_or_else(|| Refusal::not_found(format!("pipeline {name}")))?;
    let spec = apportion_wire::pipeline_spec_from_tree("pipeline", row.spec)?;
    fits(&spec, &profiles)?;
    let document = serde_json::to_value(&profiles).expect("a profile is JSON");
    rows::put_profile(&mut tx, &name, &document, now()).await?;
    tx.commit().await?;
    Ok(HttpResponse::Ok().json(document))
}

/// The profile speaks of the pipeline's own variants, and together they make a valid pipeline.
fn fits(spec: &apportion_wire::PipelineSpec, profiles: &ProfileSet) -> Result<(), Refusal> {
    let known = |task: &str, variant: &str| {
        spec.tasks.iter().any(|t| t.name == task && t.variants.iter().any(|v| v.name == variant))
    };
    let stranger = profiles.rows.iter().position(|r| !known(&r.task, &r.variant));
    if let Some(i) = stranger {
        let row = &profiles.rows[i];
        let detail = format!("{}/{}: expected a task and a variant of pipeline {}", row.task, row.variant, spec.name);
        return Err(Refusal::value(format!("/rows/{i}"), detail));
    }
    crate::documents::facts(&spec.with_profiles(profiles))?;
    Ok(())
}

/// The rows of a profile file as a profile: all of this pipeline, each variant's accuracy from its first row that has one.
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
        });
    }
    Ok(set)
}
