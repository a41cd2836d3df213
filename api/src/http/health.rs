//! Is the service alive, and is it ready?

use super::refusal::{HandlerResult, Refusal};
use crate::app::App;
use crate::store;
use actix_web::http::StatusCode;
use actix_web::http::header::ContentType;
use actix_web::{HttpResponse, web};
use std::time::{Duration, Instant};

/// A database that takes longer to read one row is not ready.
const DATABASE_MAX: Duration = Duration::from_secs(2);

/// The routes of this resource.
pub fn configure(config: &mut web::ServiceConfig) {
    config
        .service(web::resource("/livez").route(web::get().to(livez)))
        .service(web::resource("/readyz").route(web::get().to(readyz)));
}

/// Answers while the process runs.
#[utoipa::path(get, path = "/livez", tag = "health", operation_id = "livez",
    responses((status = 200, description = "It lives.", body = String, content_type = "text/plain")))]
pub async fn livez() -> HttpResponse {
    HttpResponse::Ok().content_type(ContentType::plaintext()).body("live\n")
}

/// Answers 200 while every part of the service works and the database answers; else 503 with the parts that do not.
#[utoipa::path(get, path = "/readyz", tag = "health", operation_id = "readyz",
    responses((status = 200, description = "It can work.", body = String, content_type = "text/plain")))]
pub async fn readyz(app: web::Data<App>) -> HandlerResult {
    let mut wrong: Vec<String> = app.parts.failure().map(|broken| broken.to_string()).into_iter().collect();
    let silent = app.parts.silent(Instant::now());
    wrong.extend(
        silent.iter().map(|(part, since)| format!("part {} was last alive {} s ago", part.name(), since.as_secs())),
    );
    let read = async {
        let mut db = app.pool.acquire().await?;
        store::target::get(&mut db).await?;
        store::is_read_only(&mut db).await
    };
    match tokio::time::timeout(DATABASE_MAX, read).await {
        Ok(Ok(false)) => {}
        Ok(Ok(true)) => wrong.push("the database is read-only".into()),
        Ok(Err(error)) => {
            tracing::warn!(%error, "not ready");
            wrong.push("the database does not answer; the service's log says why".into());
        }
        Err(_) => wrong.push(format!("the database has not answered for {} s", DATABASE_MAX.as_secs())),
    }
    if wrong.is_empty() {
        return Ok(HttpResponse::Ok().content_type(ContentType::plaintext()).body("ready\n"));
    }
    Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, wrong.join("; ")))
}
