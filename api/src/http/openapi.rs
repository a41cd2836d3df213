//! The interface's own description: `/openapi.json` (OpenAPI 3.1) and a page at `/docs` that works offline.

use super::{agents, decisions, files, hardware, health, pipelines, plans, profiles, target, traces};
use actix_web::{HttpResponse, web};
use utoipa::OpenApi;
use utoipa_swagger_ui::SwaggerUi;

/// The description.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Apportion",
        description = "Plans inference pipelines, proves the plans, and has agents carry them out.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    paths(
        hardware::list,
        hardware::get,
        hardware::put,
        hardware::delete,
        pipelines::list,
        pipelines::get,
        pipelines::put,
        pipelines::delete,
        pipelines::live_arrivals,
        profiles::get,
        profiles::put,
        files::get,
        files::put,
        traces::list,
        traces::post,
        traces::get,
        plans::list,
        plans::post,
        plans::get,
        plans::delete,
        agents::list,
        target::get,
        target::put,
        target::history,
        decisions::list,
        health::livez,
        health::readyz,
        health::metrics
    )
)]
pub struct Description;

/// The description as the repository keeps it.
#[must_use]
pub fn document() -> String {
    let mut text = Description::openapi().to_pretty_json().expect("the description is JSON");
    text.push('\n');
    text
}

/// Routes of this resource.
pub fn configure(config: &mut web::ServiceConfig) {
    config
        .service(web::resource("/openapi.json").route(web::get().to(openapi)))
        .service(web::resource("/docs").route(web::get().to(to_page)))
        .service(SwaggerUi::new("/docs/{_:.*}").config(utoipa_swagger_ui::Config::from("/openapi.json")));
}

async fn openapi() -> HttpResponse {
    HttpResponse::Ok().content_type("application/json").body(document())
}

async fn to_page() -> HttpResponse {
    HttpResponse::Found().insert_header(("Location", "/docs/")).finish()
}
