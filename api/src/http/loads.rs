//! `/v1/arrivals`: the load of all pipelines in one answer.

use super::paging::{ListPage, PageQuery};
use super::pipelines::{ARRIVALS_SECONDS_MAX, ArrivalsQuery};
use super::refusal::{HandlerResult, Refusal};
use crate::app::{App, now};
use crate::store::arrivals;
use actix_web::web;
use serde::Serialize;
use utoipa::ToSchema;

/// Offered load and answers of one pipeline, added up.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct PipelineLoad {
    /// Its name.
    pub pipeline: String,
    /// Unix time of the newest second that is in the sums.
    pub newest_second: i64,
    /// Queries that arrived, shed ones included.
    pub offered: i64,
    /// Requests answered in time.
    pub ok: i64,
    /// Requests answered late.
    pub late: i64,
    /// Requests dropped.
    pub dropped: i64,
    /// Requests that failed.
    pub failed: i64,
}

/// The routes of this resource.
pub fn configure(config: &mut web::ServiceConfig) {
    config.service(web::resource("/v1/arrivals").route(web::get().to(list)));
}

/// Offered queries and answers of all pipelines, summed over the last seconds. Pipelines without any are left out.
#[utoipa::path(get, path = "/v1/arrivals", tag = "pipelines", operation_id = "list_loads",
    params(ArrivalsQuery, PageQuery),
    responses((status = 200, description = "The pipelines that had any, by name.", body = [PipelineLoad])))]
pub async fn list(app: web::Data<App>, page: ListPage<String, ArrivalsQuery>) -> HandlerResult {
    let seconds = page.filter.seconds.unwrap_or(60);
    if !(1..=ARRIVALS_SECONDS_MAX).contains(&seconds) {
        return Err(Refusal::value("seconds", format!("{seconds}: expected 1 to {ARRIVALS_SECONDS_MAX}")));
    }
    let to = now().timestamp() + 1;
    let (after, rows_max) = (page.after.as_deref(), page.rows_max());
    let rows = arrivals::sums(&mut *app.pool.acquire().await?, to - seconds, to, after, rows_max).await?;
    let load = |row: arrivals::ArrivalsRow| PipelineLoad {
        pipeline: row.pipeline,
        newest_second: row.second,
        offered: row.offered,
        ok: row.ok,
        late: row.late,
        dropped: row.dropped,
        failed: row.failed,
    };
    Ok(page.answer(rows, |row| row.pipeline.clone(), load))
}
