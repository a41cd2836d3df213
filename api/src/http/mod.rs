//! How does the service answer HTTP?
//!
//! There is one file for each resource. A handler parses the request, opens a transaction, enqueues a job and answers.
//!
//! What never belongs here: SQL, calls of solvers. The commonest addition is a resource. Its file has the handlers, each
//! with its `utoipa::path`, and a `configure` that this module and [`openapi`] name.

pub mod access;
pub mod agents;
pub mod analyses;
pub mod audit;
mod audited;
pub mod body;
pub mod comparisons;
pub mod decisions;
pub mod demand;
pub mod drift;
pub mod entity_tags;
pub mod events;
pub mod explanations;
pub mod files;
pub mod follow;
pub mod frontiers;
pub mod hardware;
pub mod health;
pub mod holds;
pub mod idempotency;
pub mod intake;
pub mod limits;
pub mod loads;
pub mod machines;
pub mod metrics;
mod objects;
pub mod openapi;
pub mod page;
pub mod paging;
pub mod pipelines;
pub mod plan_diff;
pub mod planned_problem;
pub mod plans;
pub mod profile_jobs;
pub mod profiles;
mod project_access;
mod project_storage;
pub mod projects;
pub mod refusal;
pub mod schedules;
mod secure;
pub mod simulations;
pub mod target;
pub mod times;
pub mod tokens;
pub mod traces;
pub mod webhooks;
pub mod weight;

use crate::app::App;
use crate::app::parts::{ServicePart, panic_message};
use crate::app::spans::TraceHeaders;
use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{Server, ServiceRequest, ServiceResponse};
use actix_web::http::{KeepAlive, StatusCode, header};
use actix_web::middleware::{Next, from_fn};
use actix_web::{App as WebApp, HttpServer, web};
use apportion_tls::ServerTls;
use futures::FutureExt;
use limits::{HEAD_TIMEOUT, SHUTDOWN_S, WORKERS};
use refusal::Refusal;
use std::net::TcpListener;
use std::panic::AssertUnwindSafe;

pub use limits::CONNECTIONS_MAX;

/// The server on a bound socket, with TLS or without; await or spawn it.
///
/// A connection serves one request, because the framework limits the time of the first head only. A second request could be
/// sent as slowly as its client likes.
///
/// # Errors
/// If the socket cannot be used.
pub fn server(app: App, listener: TcpListener, tls: Option<ServerTls>) -> std::io::Result<Server> {
    let rooms = web::Data::new(body::BodyMemory::default());
    let streams = web::Data::new(follow::StreamRooms::default());
    let explanations = web::Data::new(explanations::ExplanationRooms::default());
    let build = move || {
        WebApp::new()
            .app_data(web::Data::new(app.clone()))
            .app_data(rooms.clone())
            .app_data(streams.clone())
            .app_data(explanations.clone())
            .wrap(from_fn(entity_tags::answers_have_tags))
            .wrap(from_fn(access::check_access))
            .wrap(from_fn(refusals_are_documents))
            .wrap(from_fn(intake::bodies_keep_coming))
            .wrap(from_fn(requests_have_spans))
            .configure(routes)
    };
    if let Some(tls) = tls {
        return secure::server(build, listener, tls);
    }
    let server = HttpServer::new(build)
        .workers(WORKERS)
        .max_connections(CONNECTIONS_MAX / WORKERS)
        .keep_alive(KeepAlive::Disabled)
        // A client that closes its end has left, and its request is dropped.
        .h1_allow_half_closed(false)
        .client_request_timeout(HEAD_TIMEOUT)
        .shutdown_timeout(SHUTDOWN_S)
        .disable_signals()
        .listen(listener)?;
    Ok(server.run())
}

fn routes(config: &mut web::ServiceConfig) {
    config
        .configure(hardware::configure)
        .configure(projects::configure)
        .configure(profiles::configure)
        .configure(profile_jobs::configure)
        .configure(pipelines::configure)
        .configure(loads::configure)
        .configure(times::configure)
        .configure(drift::configure)
        .configure(demand::configure)
        .configure(files::configure)
        .configure(traces::configure)
        .configure(plans::configure)
        .configure(explanations::configure)
        .configure(plan_diff::configure)
        .configure(simulations::configure)
        .configure(frontiers::configure)
        .configure(comparisons::configure)
        .configure(agents::configure)
        .configure(machines::configure)
        .configure(target::configure)
        .configure(holds::configure)
        .configure(schedules::configure)
        .configure(webhooks::configure)
        .configure(decisions::configure)
        .configure(events::configure)
        .configure(access::configure)
        .configure(tokens::configure)
        .configure(audit::configure)
        .configure(health::configure)
        .configure(metrics::configure)
        .configure(openapi::configure)
        .configure(page::configure);
}

/// Gives each request a span, if the service exports spans.
async fn requests_have_spans(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, actix_web::Error> {
    let header = |name: &str| Some(request.headers().get(name)?.to_str().ok()?.to_owned());
    let span = request.app_data::<web::Data<App>>().and_then(|app| {
        let headers = TraceHeaders { traceparent: header("traceparent"), tracestate: header("tracestate") };
        app.spans.begin_request(request.method().as_str(), &headers)
    });
    let response = next.call(request).await?.map_into_boxed_body();
    if let Some(span) = span {
        span.end(response.request().match_pattern(), response.status().as_u16());
    }
    Ok(response)
}

/// Gives the framework's own errors (unknown path, wrong method, body too large) the form of a [`Refusal`].
async fn refusals_are_documents(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, actix_web::Error> {
    let (method, path) = (request.method().clone(), request.path().to_string());
    let app = request.app_data::<web::Data<App>>().cloned();
    let answering = AssertUnwindSafe(next.call(request)).catch_unwind().await;
    let response = answering.unwrap_or_else(|panic| {
        // The process ends, because a handler that panics may leave a broken state.
        let why = format!("{method} {path}: {}", panic_message(&*panic));
        app.iter().for_each(|app| app.parts.fail(ServicePart::Http, why.as_str()));
        Err(Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "the service broke down and starts again").into())
    });
    let response = response?.map_into_boxed_body();
    let status = response.status();
    let is_ours = |r: &ServiceResponse| {
        r.headers().get(header::CONTENT_TYPE).is_some_and(|t| t.as_bytes().starts_with(refusal::MEDIA_TYPE.as_bytes()))
    };
    if !(status.is_client_error() || status.is_server_error()) || is_ours(&response) {
        return Ok(response);
    }
    let said = response.response().error().map(ToString::to_string).unwrap_or_default();
    let detail = match status.as_u16() {
        404 => format!("there is nothing at {path}"),
        405 => format!("{method} is not possible at {path}"),
        _ => said,
    };
    let allow = response.headers().get(header::ALLOW).cloned();
    let mut document = actix_web::ResponseError::error_response(&Refusal::new(status, detail));
    if let Some(allow) = allow {
        document.headers_mut().insert(header::ALLOW, allow);
    }
    Ok(response.into_response(document))
}
