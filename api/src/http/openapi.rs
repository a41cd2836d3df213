//! How is the interface described? `/openapi.json` (OpenAPI 3.1), and a page at `/docs` that works offline.

use super::entity_tags::EntityTags;
use super::paging::LinkHeaders;
use super::refusal::{Refusal, RefusalReply, RefusedValue};
use super::{
    access, agents, audit, comparisons, decisions, demand, drift, events, explanations, files, frontiers, hardware, health,
    holds, loads, machines, metrics, pipelines, plan_diff, plans, profile_jobs, profiles, projects, schedules, simulations,
    target, times, tokens, traces, webhooks,
};
use actix_web::http::Method;
use actix_web::{HttpResponse, web};
use utoipa::openapi::extensions::Extensions;
use utoipa::openapi::path::{Operation, ParameterIn};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{Ref, RefOr, Schema};
use utoipa::{IntoResponses, Modify, OpenApi};
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
        projects::list,
        projects::get,
        projects::put,
        projects::delete,
        pipelines::list,
        pipelines::get,
        pipelines::put,
        pipelines::delete,
        pipelines::live_arrivals,
        loads::list,
        times::get,
        drift::get,
        demand::get_demand,
        demand::post_demand,
        demand::get_deployment,
        demand::post_deployment,
        profiles::get,
        profiles::put,
        profiles::delete,
        profile_jobs::list,
        profile_jobs::post,
        profile_jobs::get,
        profile_jobs::cancel,
        profile_jobs::delete,
        files::list,
        files::get,
        files::head,
        files::put,
        files::delete,
        traces::list,
        traces::post,
        traces::get,
        traces::delete,
        plans::list,
        plans::post,
        plans::get,
        plans::delete,
        plans::stop,
        explanations::get,
        plan_diff::get,
        simulations::list,
        simulations::post,
        simulations::get,
        simulations::get_of_plan,
        simulations::cancel,
        simulations::delete,
        frontiers::list,
        frontiers::post,
        frontiers::get,
        frontiers::cancel,
        frontiers::delete,
        comparisons::list,
        comparisons::post,
        comparisons::get,
        comparisons::cancel,
        comparisons::delete,
        agents::list,
        agents::get,
        agents::delete,
        machines::list,
        target::get,
        target::put,
        target::history,
        target::former,
        target::diff,
        target::rollback,
        holds::list,
        holds::get_fleet,
        holds::get_pipeline,
        holds::put_fleet,
        holds::put_pipeline,
        holds::delete_fleet,
        holds::delete_pipeline,
        schedules::list,
        schedules::get,
        schedules::put,
        schedules::delete,
        webhooks::list,
        webhooks::get,
        webhooks::put,
        webhooks::delete,
        decisions::list,
        events::list,
        events::get,
        events::stream,
        access::get,
        tokens::list,
        tokens::get,
        tokens::post,
        tokens::delete,
        audit::list,
        audit::stream,
        health::livez,
        health::readyz,
        metrics::metrics
    ),
    components(schemas(Refusal, RefusedValue)),
    modifiers(&CommonRefusals, &NeededScopes, &LinkHeaders, &EntityTags),
    tags(
        (name = "hardware", description = "Hardware types with their prices."),
        (name = "projects", description = "The limits of teams, and who has devices first."),
        (name = "pipelines", description = "Pipelines, what was measured of them, and their load."),
        (name = "files", description = "Model files by digest."),
        (name = "traces", description = "Loads that plans must hold on."),
        (name = "plans", description = "Asking for plans and reading them."),
        (name = "analyses", description = "Simulations, frontiers and comparisons, which run as jobs."),
        (name = "fleet", description = "Agents, what they are to do, and what was decided about it."),
        (name = "access", description = "Tokens, what they allow, and who asked for which change."),
        (name = "health", description = "Whether the service works, and its figures.")
    )
)]
pub struct Description;

/// Adds the refusals that depend on the inputs of an operation only.
struct CommonRefusals;

impl Modify for CommonRefusals {
    fn modify(&self, description: &mut utoipa::openapi::OpenApi) {
        name_may_be_left_out(description);
        for (path, item) in &mut description.paths.paths {
            // It reads nothing.
            if path == "/livez" {
                continue;
            }
            let is_limited = access::has_rate_limit(&Method::GET, Some(path));
            let operations = [&mut item.get, &mut item.put, &mut item.post, &mut item.delete];
            for operation in operations.into_iter().flatten() {
                add_refusals(operation);
                if is_limited {
                    operation.responses.responses.extend(RefusalReply::<429>::responses());
                }
            }
        }
    }
}

/// The name of the security scheme.
const TOKEN_SCHEME: &str = "token";

/// Says of each operation which scope it needs, in `x-scope`.
struct NeededScopes;

impl Modify for NeededScopes {
    fn modify(&self, description: &mut utoipa::openapi::OpenApi) {
        let about =
            "A token of `POST /v1/tokens`. A service that listens on loopback alone also serves requests without one.";
        let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some(about)).build();
        if let Some(components) = &mut description.components {
            components.add_security_scheme(TOKEN_SCHEME, SecurityScheme::Http(scheme));
        }
        for (path, item) in &mut description.paths.paths {
            let operations = [
                (Method::GET, &mut item.get),
                (Method::HEAD, &mut item.head),
                (Method::PUT, &mut item.put),
                (Method::POST, &mut item.post),
                (Method::DELETE, &mut item.delete),
            ];
            for (method, operation) in operations {
                if let (Some(operation), Some(scope)) = (operation, access::needed_scope(&method, Some(path))) {
                    operation.security = Some(vec![SecurityRequirement::new(TOKEN_SCHEME, Vec::<String>::new())]);
                    operation.extensions = Some(Extensions::builder().add("x-scope", scope.name()).build());
                }
            }
        }
    }
}

/// The name of a registered pipeline is in the path, so its body may leave it out.
fn name_may_be_left_out(description: &mut utoipa::openapi::OpenApi) {
    const BODY: &str = "RegisteredPipeline";
    let put = description.paths.paths.get_mut("/v1/pipelines/{name}").and_then(|item| item.put.as_mut());
    let schemas = description.components.as_mut().map(|c| &mut c.schemas);
    let (Some(put), Some(schemas)) = (put, schemas) else { return };
    let Some(RefOr::T(Schema::Object(mut body))) = schemas.get("PipelineSpec").cloned() else { return };
    body.required.retain(|key| key != "name");
    body.description = Some("A pipeline as it is registered: its name may be left out, for the path has it.".into());
    schemas.insert(BODY.into(), Schema::Object(body).into());
    if let Some(RefOr::T(body)) = &mut put.request_body {
        for content in body.content.values_mut() {
            if let RefOr::T(content) = content {
                content.schema = Some(Ref::from_schema_name(BODY).into());
            }
        }
    }
}

fn add_refusals(operation: &mut Operation) {
    let mut add = |refused: std::collections::BTreeMap<_, _>| {
        for (status, response) in refused {
            operation.responses.responses.entry(status).or_insert(response);
        }
    };
    add(RefusalReply::<500>::responses());
    add(RefusalReply::<503>::responses());
    let has_body = operation.request_body.is_some();
    let parameters = operation.parameters.as_deref().unwrap_or_default();
    let has = |place: &ParameterIn| parameters.iter().any(|p| matches!(p, RefOr::T(p) if p.parameter_in == *place));
    add(RefusalReply::<401>::responses());
    add(RefusalReply::<403>::responses());
    add(RefusalReply::<421>::responses());
    if has_body {
        add(RefusalReply::<408>::responses());
        add(RefusalReply::<415>::responses());
        add(RefusalReply::<413>::responses());
    }
    if has_body || has(&ParameterIn::Query) || has(&ParameterIn::Header) {
        add(RefusalReply::<400>::responses());
    }
    if has_body || has(&ParameterIn::Path) || has(&ParameterIn::Query) {
        add(RefusalReply::<422>::responses());
    }
    // A malformed identifier names nothing.
    if has(&ParameterIn::Path) {
        add(RefusalReply::<404>::responses());
    }
}

/// The description as the repository keeps it.
#[must_use]
pub fn document() -> String {
    let mut text = Description::openapi().to_pretty_json().expect("the description is JSON");
    text.push('\n');
    text
}

/// The routes of this resource.
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
