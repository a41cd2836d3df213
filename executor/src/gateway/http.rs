//! How does the gateway answer HTTP?

use super::admission::AdmittedRequest;
use super::bodies::{OpenBody, Pace};
use super::connections::{CONNECTIONS_MAX, HANDSHAKE_MAX, IDLE_MAX, admit};
use super::inference::{self, check_wanted, output_specs, select};
use super::json::{self, AnswerHead, HEADER_LENGTH};
use super::refusal::{GatewayRefusal, RefusalCause};
use super::secure::{self, SecurePort};
use super::{BODY_BYTES_MAX, EXTENSIONS, Gateway, RETRY_AFTER_S, VARIANTS};
use super::{about, coding, find, metrics, unread, version};
use crate::agent::NodeView;
use crate::refused::ReachedLimit;
use crate::shares::{ClientShares, sender};
use crate::telemetry::IngressSpan;
use actix_web::dev::{Extensions, Server};
use actix_web::http::StatusCode;
use actix_web::http::header::{ACCEPT_ENCODING, CONTENT_LENGTH, HeaderValue, VARY};
use actix_web::rt::net::TcpStream;
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, error::PayloadError, web};
use apportion_node::node::request::RequestTerms;
use apportion_node::trace::TraceContext;
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use opentelemetry::KeyValue;
use serde_json::{Value, json};
use std::any::Any;
use std::net::{IpAddr, Ipv4Addr, Shutdown, TcpListener};
use std::os::fd::AsFd;
use std::sync::Arc;

/// The route of requests as spans name it, and the name of their spans.
const ROUTE: &str = "/v2/models/{pipeline}/infer";
const INFER: &str = "POST /v2/models/{pipeline}/infer";
/// The resource that says which pipelines there are.
const INDEX: &str = "/v2/repository/index";
/// Threads that read and write bodies.
const WORKERS: usize = 2;
/// Largest request for anything but inference, in bytes.
const PLAIN_BYTES_MAX: usize = 64 * 1024;

/// The server on a bound socket, with TLS or without; it runs when it is awaited.
///
/// # Errors
/// If the socket cannot be used.
pub fn serve(listener: TcpListener, gateway: Gateway) -> std::io::Result<Server> {
    let (connections, tls) = (gateway.connections.clone(), gateway.tls.clone());
    let data = web::Data::new(gateway);
    let app = move || {
        App::new()
            .app_data(data.clone())
            .wrap_fn(|request, service| unread::call(request, service, takes_body))
            .route("/v2", web::get().to(server_metadata))
            .route("/v2/health/live", web::get().to(live))
            .route("/v2/health/ready", web::get().to(ready))
            .route("/v2/models/stats", web::get().to(statistics))
            .route(INDEX, web::post().to(index))
            .service(web::scope("/v2/models/{pipeline}").configure(pipeline))
            .route("/metrics", web::get().to(metrics))
            .default_service(web::to(|| async { error(404, "there is no such resource") }))
    };
    if let Some(tls) = tls {
        return secure::server(app, listener, SecurePort { tls: tls.http, connections, workers: WORKERS });
    }
    let server = HttpServer::new(app).workers(WORKERS).tcp_nodelay(true).disable_signals();
    // Connections are counted here, before the server's own bound keeps others waiting.
    let server =
        server.on_connect(move |stream: &dyn Any, extensions: &mut Extensions| place(&connections, stream, extensions));
    let server = server.max_connections(CONNECTIONS_MAX).client_request_timeout(HANDSHAKE_MAX).keep_alive(IDLE_MAX);
    Ok(server.listen(listener)?.run())
}

/// Whether the resource at this path reads a body.
fn takes_body(path: &str) -> bool {
    path.ends_with("/infer") || path == INDEX
}

/// Gives a connection its place, which it keeps until it ends. A connection without a place is closed.
fn place(connections: &Arc<ClientShares>, stream: &dyn Any, extensions: &mut Extensions) {
    let Some(stream) = stream.downcast_ref::<TcpStream>() else { return };
    let place = stream.peer_addr().ok().and_then(|from| admit(connections, from.ip()));
    match place {
        Some(place) => _ = extensions.insert(place),
        // The server has it already: all that can be done is to end it from below.
        None => {
            let other = stream.as_fd().try_clone_to_owned().map(std::net::TcpStream::from);
            let _ended = other.and_then(|other| other.shutdown(Shutdown::Both));
        }
    }
}

/// Reads a body of at most `bytes_max`, as long as it comes in time and there is room for it.
async fn read(
    gateway: &Gateway,
    request: &HttpRequest,
    payload: &mut web::Payload,
    bytes_max: usize,
) -> Result<Bytes, GatewayRefusal> {
    let too_large = || {
        ReachedLimit::BodyBytes.count();
        let error = format!("the body is too large: expected at most {bytes_max} bytes");
        GatewayRefusal { cause: RefusalCause::TooLarge, error, reason: None }
    };
    let length = request.headers().get(CONTENT_LENGTH).and_then(|l| l.to_str().ok()?.parse::<usize>().ok());
    if length.is_some_and(|length| length > bytes_max) {
        return Err(too_large());
    }
    let mut reading = OpenBody::begin(&gateway.open_bytes, address(request));
    let (mut pace, mut first, mut all) = (Pace::begin(), Bytes::new(), BytesMut::new());
    loop {
        let chunk = match tokio::time::timeout_at(pace.deadline(), payload.next()).await {
            Ok(Some(Ok(chunk))) => chunk,
            Ok(Some(Err(error))) => return Err(broken_off(&error)),
            // A small body comes in one piece, which need not be copied.
            Ok(None) => return Ok(if all.is_empty() { first } else { all.freeze() }),
            Err(_) => {
                ReachedLimit::SlowBody.count();
                return Err(GatewayRefusal::slow());
            }
        };
        pace.came(chunk.len());
        if !reading.came(chunk.len()) {
            ReachedLimit::OpenBytes.count();
            return Err(GatewayRefusal::full("too many bytes of requests are being read"));
        }
        if first.is_empty() {
            first = chunk;
        } else {
            if all.is_empty() {
                all.extend_from_slice(&first);
            }
            all.extend_from_slice(&chunk);
        }
        if first.len().max(all.len()) > bytes_max {
            return Err(too_large());
        }
    }
}

/// Where a request comes from.
fn address(request: &HttpRequest) -> IpAddr {
    request.peer_addr().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |from| from.ip())
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

fn reply(body: Result<Value, GatewayRefusal>) -> HttpResponse {
    body.map_or_else(|refusal| refusal.respond(), |body| respond(200, &body))
}

impl GatewayRefusal {
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
        Err(reason) => respond(503, &json!({"ready": false, "reason": reason.to_string()})),
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

async fn index(gateway: web::Data<Gateway>, request: HttpRequest, mut payload: web::Payload) -> HttpResponse {
    let body = match read(&gateway, &request, &mut payload, PLAIN_BYTES_MAX).await {
        Ok(body) => body,
        Err(refusal) => return unread::unread(refusal.respond(), payload.into_inner()),
    };
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

async fn infer(gateway: web::Data<Gateway>, request: HttpRequest, mut payload: web::Payload) -> HttpResponse {
    let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
    let span = gateway.begin(gateway.caller(&header).as_ref(), INFER);
    let answer = answer(&gateway, &request, &mut payload, span.as_ref().map(IngressSpan::trace)).await;
    if let Some(span) = span {
        let (status, error) = answer.as_ref().map_or_else(|refusal| (refusal.cause.http(), Some(refusal)), |_| (200, None));
        let attributes = vec![
            KeyValue::new("http.request.method", "POST"),
            KeyValue::new("http.route", ROUTE),
            KeyValue::new("http.response.status_code", i64::from(status)),
            KeyValue::new("apportion.pipeline", named(&request).to_owned()),
        ];
        // A client's mistake is no error of the server's span: OpenTelemetry's semantic conventions for HTTP.
        span.end(attributes, error.filter(|_| status >= 500).map(GatewayRefusal::line));
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
            gateway.count_refused(named(&request), refusal.cause);
            unread::unread(refusal.respond(), payload.into_inner())
        }
    }
}

/// A request that has its place.
struct Ready {
    view: NodeView,
    id: Option<String>,
    outputs: Vec<inference::RequestedOutput>,
    form: inference::ElementForm,
    admitted: AdmittedRequest,
}

/// Reads a request's body and gives it its place; of the body, only its tensors are kept.
fn prepared(
    gateway: &Gateway,
    request: &HttpRequest,
    body: Bytes,
    trace: Option<TraceContext>,
) -> Result<Ready, GatewayRefusal> {
    let (name, view) = (named(request), gateway.view());
    let pipeline = find(&view, name)?;
    let body = coding::decoded(request, body, BODY_BYTES_MAX)?;
    let header = |name: &str| request.headers().get(name).map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned());
    let length = header(HEADER_LENGTH);
    let asked = json::read(&body, length.as_deref())?;
    let inputs = inference::inputs(asked.inputs, &pipeline.tasks[pipeline.root].inputs)?;
    inference::check_texts(&inputs, view.backend)?;
    let specs = output_specs(pipeline);
    check_wanted(&asked.outputs, &specs)?;
    json::check_forms(&asked.outputs, asked.settings.form, &specs)?;
    let terms = RequestTerms { trace, sender: sender(address(request)), ..asked.settings.terms(None) };
    // Tensors that came as bytes share the body, which is kept as long as they are.
    let kept = if length.is_some() { body.len() } else { 0 };
    let admitted = gateway.admit(name, inputs, terms, kept)?;
    Ok(Ready { id: asked.id, outputs: asked.outputs, form: asked.settings.form, admitted, view })
}

/// The body of the answer, and the length of its JSON if tensors follow. The variants that served come last, if the
/// request said what it needs.
async fn answer(
    gateway: &Gateway,
    request: &HttpRequest,
    payload: &mut web::Payload,
    trace: Option<TraceContext>,
) -> Result<(Vec<u8>, Option<usize>, Option<String>), GatewayRefusal> {
    let body = read(gateway, request, payload, BODY_BYTES_MAX).await?;
    let Ready { view, id, outputs: wanted, form, admitted } = prepared(gateway, request, body, trace)?;
    let name = named(request);
    let pipeline = find(&view, name)?;
    let served = gateway.serve(admitted).await?;
    let outputs = inference::outputs(&served.pieces, pipeline)?;
    let outputs = select(outputs, &wanted, form)?;
    let head = AnswerHead {
        name,
        version: &version(&view),
        id: id.as_deref(),
        outcome: if served.late { "late" } else { "ok" },
        latency_us: served.latency_ns / 1_000,
        dropped: served.dropped,
        chosen: served.chosen.as_ref(),
    };
    let (body, length) = json::write(&head, &outputs)?;
    Ok((body, length, served.chosen.map(|c| c.variants)))
}

/// A body that did not come in whole.
fn broken_off(error: &PayloadError) -> GatewayRefusal {
    GatewayRefusal::invalid(format!("the body did not come in whole: {error}"))
}

async fn metrics(gateway: web::Data<Gateway>) -> HttpResponse {
    HttpResponse::Ok()
        .content_type("application/openmetrics-text; version=1.0.0; charset=utf-8")
        .body(metrics::text(&gateway))
}
