//! The HTTP resources.

use super::inference::{self, check_wanted, output_specs, select};
use super::json::{self, HEADER_LENGTH, Head};
use super::refusal::{Cause, Refusal};
use super::{BODY_BYTES_MAX, EXTENSIONS, Gateway, RETRY_AFTER_S, VARIANTS, about, coding, find, metrics, version};
use crate::node::request::Terms;
use crate::telemetry::Ingress;
use crate::trace::Trace;
use actix_web::http::StatusCode;
use actix_web::http::header::{ACCEPT_ENCODING, HeaderValue, VARY};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, dev::Server, error::PayloadError, web};
use opentelemetry::KeyValue;
use serde_json::{Value, json};
use std::net::TcpListener;

/// The route of requests as spans name it, and the name of their spans.
const ROUTE: &str = "/v2/models/{pipeline}/infer";
const INFER: &str = "POST /v2/models/{pipeline}/infer";
/// Threads that read and write bodies.
const WORKERS: usize = 2;
/// The server on a bound socket; it runs when it is awaited.
///
/// # Errors
/// If the socket cannot be used.
pub fn serve(listener: TcpListener, gateway: Gateway) -> std::io::Result<Server> {
    let data = web::Data::new(gateway);
    let app = move || {
        App::new()
            .app_data(data.clone())
            .app_data(web::PayloadConfig::new(BODY_BYTES_MAX))
            .route("/v2", web::get().to(server_metadata))
            .route("/v2/health/live", web::get().to(live))
            .route("/v2/health/ready", web::get().to(ready))
            .route("/v2/models/stats", web::get().to(statistics))
            .route("/v2/repository/index", web::post().to(index))
            .service(web::scope("/v2/models/{pipeline}").configure(pipeline))
            .route("/metrics", web::get().to(metrics))
            .default_service(web::to(|| async { error(404, "there is no such resource") }))
    };
    Ok(HttpServer::new(app).workers(WORKERS).tcp_nodelay(true).disable_signals().listen(listener)?.run())
}

/// The resources of one pipeline, of any version of it.
fn pipeline(resources: &mut web::ServiceConfig) {
    for version in ["", "/versions/{version}"] {
        let at = |rest: &str| format!("{version}{rest}");
        resources
            .route(&at(""), web::get().to(metadata))
            .route(&at("/config"), web::get().to(config))
            .route(&at("/stats"), web::get().to(statistics))
            .route(&at("/ready"), web::get().to(pipeline_ready))
            .route(&at("/infer"), web::post().to(infer));
    }
}

fn respond(status: u16, body: &Value) -> HttpResponse {
    let status = StatusCode::from_u16(status).expect("a status of this folder");
    let mut response = HttpResponse::build(status);
    if [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE].contains(&status) {
        response.insert_header(("Retry-After", RETRY_AFTER_S));
    }
    response.json(body)
}

fn error(status: u16, text: &str) -> HttpResponse {
    respond(status, &json!({"error": text}))
}

fn reply(body: Result<Value, Refusal>) -> HttpResponse {
    body.map_or_else(|refusal| refusal.respond(), |body| respond(200, &body))
}

impl Refusal {
    fn respond(&self) -> HttpResponse {
        let mut body = json!({"error": self.error});
        if let Some(reason) = &self.reason {
            body["reason"] = reason.as_str().into();
        }
        respond(self.cause.http(), &body)
    }
}

async fn server_metadata(gateway: web::Data<Gateway>) -> HttpResponse {
    let (version, view) = (env!("CARGO_PKG_VERSION"), gateway.view());
    let mut about =
        json!({"name": "apportion", "version": version, "extensions": EXTENSIONS, "backend": view.backend.name()});
    if let Some(provider) = view.provider {
        about["provider"] = provider.name().into();
    }
    respond(200, &about)
}

async fn live() -> HttpResponse {
    respond(200, &json!({"live": true}))
}

async fn ready(gateway: web::Data<Gateway>) -> HttpResponse {
    match gateway.check_ready() {
        Ok(()) => respond(200, &json!({"ready": true})),
        Err(reason) => respond(503, &json!({"ready": false, "reason": reason})),
    }
}

/// The pipeline that the path names.
fn named(request: &HttpRequest) -> &str {
    request.match_info().get("pipeline").unwrap_or_default()
}

async fn metadata(gateway: web::Data<Gateway>, request: HttpRequest) -> HttpResponse {
    let name = named(&request);
    reply(about::metadata(&gateway.view(), name).map(|m| about::metadata_json(&m)))
}

async fn config(gateway: web::Data<Gateway>, request: HttpRequest) -> HttpResponse {
    reply(about::config(&gateway.view(), named(&request)).map(|c| about::config_json(&c)))
}

async fn statistics(gateway: web::Data<Gateway>, request: HttpRequest) -> HttpResponse {
    let one = request.match_info().get("pipeline");
    reply(about::statistics(&gateway, one).map(|all| about::statistics_json(&all)))
}

#[derive(serde::Deserialize)]
struct IndexRequest {
    #[serde(default)]
    ready: bool,
}

async fn index(gateway: web::Data<Gateway>, body: web::Bytes) -> HttpResponse {
    let asked = if body.is_empty() { Ok(IndexRequest { ready: false }) } else { serde_json::from_slice(&body) };
    match asked {
        Ok(asked) => respond(200, &about::index_json(&about::index(&gateway.view(), asked.ready))),
        Err(e) => error(400, &format!("the body is no request for the index: {e}: expected {{\"ready\": true or false}}")),
    }
}

async fn pipeline_ready(gateway: web::Data<Gateway>, request: HttpRequest) -> HttpResponse {
    let name = named(&request);
    let view = gateway.view();
    if let Err(refusal) = find(&view, name) {
        return refusal.respond();
    }
    let ready = view.ready.contains(name);
    respond(if ready { 200 } else { 503 }, &json!({"name": name, "ready": ready}))
}

async fn infer(
    gateway: web::Data<Gateway>,
    request: HttpRequest,
    body: Result<web::Bytes, actix_web::Error>,
) -> HttpResponse {
    let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
    let span = gateway.begin(gateway.caller(&header).as_ref(), INFER);
    let answer = answer(&gateway, &request, body, span.as_ref().map(Ingress::trace)).await;
    if let Some(span) = span {
        let (status, error) = answer.as_ref().map_or_else(|refusal| (refusal.cause.http(), Some(refusal)), |_| (200, None));
        let attributes = vec![
            KeyValue::new("http.request.method", "POST"),
            KeyValue::new("http.route", ROUTE),
            KeyValue::new("http.response.status_code", i64::from(status)),
            KeyValue::new("apportion.pipeline", named(&request).to_owned()),
        ];
        // A client's mistake is no error of the server's span: OpenTelemetry's semantic conventions for HTTP.
        span.end(attributes, error.filter(|_| status >= 500).map(Refusal::line));
    }
    match answer {
        Ok((body, length, variants)) => {
            let mut response = HttpResponse::Ok();
            // Names that no header can have are in the body alone.
            if let Some(variants) = variants.and_then(|v| HeaderValue::try_from(v).ok()) {
                response.insert_header((VARIANTS, variants));
            }
            match length {
                Some(length) => response.content_type("application/octet-stream").insert_header((HEADER_LENGTH, length)),
                None => response.content_type("application/json"),
            };
            let (body, encoding) = coding::encoded(&request, body).await;
            if let Some(encoding) = encoding {
                response.insert_header(encoding).insert_header((VARY, ACCEPT_ENCODING.as_str()));
            }
            response.body(body)
        }
        Err(refusal) => {
            gateway.ledger.refused(named(&request), refusal.cause);
            refusal.respond()
        }
    }
}

/// The body of the answer, the length of its JSON if tensors follow, and the variants that served, if the request said what it needs.
async fn answer(
    gateway: &Gateway,
    request: &HttpRequest,
    body: Result<web::Bytes, actix_web::Error>,
    trace: Option<Trace>,
) -> Result<(Vec<u8>, Option<usize>, Option<String>), Refusal> {
    let name = named(request);
    let view = gateway.view();
    let pipeline = find(&view, name)?;
    let body = coding::decoded(request, body.map_err(|e| unread(&e))?, BODY_BYTES_MAX)?;
    let header = |name: &str| request.headers().get(name).map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned());
    let length = header(HEADER_LENGTH);
    let asked = json::read(&body, length.as_deref()).map_err(Refusal::invalid)?;
    let inputs = inference::inputs(asked.inputs, &pipeline.tasks[pipeline.root].inputs).map_err(Refusal::invalid)?;
    let specs = output_specs(pipeline);
    check_wanted(&asked.outputs, &specs).map_err(Refusal::invalid)?;
    json::check_forms(&asked.outputs, asked.settings.binary, &specs).map_err(Refusal::invalid)?;
    let terms = Terms { trace, ..asked.settings.terms(None) };
    let served = gateway.infer(name, inputs, terms).await?;
    let outputs = inference::outputs(&served.pieces, pipeline).map_err(Refusal::failed)?;
    let outputs = select(outputs, &asked.outputs, asked.settings.binary)?;
    let head = Head {
        name,
        version: &version(&view),
        id: asked.id.as_deref(),
        outcome: if served.late { "late" } else { "ok" },
        latency_us: served.latency_ns / 1_000,
        dropped: served.dropped,
        chosen: served.chosen.as_ref(),
    };
    let (body, length) = json::write(&head, &outputs).map_err(Refusal::invalid)?;
    Ok((body, length, served.chosen.map(|c| c.variants)))
}

/// A body that did not come in whole.
fn unread(error: &actix_web::Error) -> Refusal {
    match error.as_error::<PayloadError>() {
        Some(PayloadError::Overflow) => {
            let error = format!("the body is too large: expected at most {BODY_BYTES_MAX} bytes");
            Refusal { cause: Cause::TooLarge, error, reason: None }
        }
        _ => Refusal::invalid(format!("the body did not come in whole: {error}")),
    }
}

async fn metrics(gateway: web::Data<Gateway>) -> HttpResponse {
    HttpResponse::Ok().content_type("text/plain; version=0.0.4; charset=utf-8").body(metrics::text(&gateway))
}
