//! The HTTP resources.

use super::oip;
use crate::agent::{Handle, View};
use crate::node::Event;
use crate::node::request::Answer;
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, dev::Server, web};
use serde_json::{Value, json};
use std::fmt::Write;
use std::net::TcpListener;
use tokio::sync::oneshot;

/// Largest body in bytes.
pub const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Threads that read and write bodies.
const WORKERS: usize = 2;
/// What a client that comes too early is told to wait, in seconds.
const RETRY_AFTER_S: &str = "1";

/// The server on a bound socket; it runs when it is awaited.
///
/// # Errors
/// If the socket cannot be used.
pub fn serve(listener: TcpListener, handle: Handle) -> std::io::Result<Server> {
    let data = web::Data::new(handle);
    let app = move || {
        App::new()
            .app_data(data.clone())
            .app_data(web::PayloadConfig::new(BODY_BYTES_MAX))
            .route("/v2", web::get().to(server_metadata))
            .route("/v2/health/live", web::get().to(live))
            .route("/v2/health/ready", web::get().to(ready))
            .route("/v2/models/{pipeline}", web::get().to(metadata))
            .route("/v2/models/{pipeline}/versions/{version}", web::get().to(metadata))
            .route("/v2/models/{pipeline}/ready", web::get().to(pipeline_ready))
            .route("/v2/models/{pipeline}/versions/{version}/ready", web::get().to(pipeline_ready))
            .route("/v2/models/{pipeline}/infer", web::post().to(infer))
            .route("/v2/models/{pipeline}/versions/{version}/infer", web::post().to(infer))
            .route("/metrics", web::get().to(metrics))
            .default_service(web::to(|| async { error(404, "there is no such resource") }))
    };
    Ok(HttpServer::new(app).workers(WORKERS).disable_signals().listen(listener)?.run())
}

fn respond(status: u16, body: &Value) -> HttpResponse {
    let status = actix_web::http::StatusCode::from_u16(status).expect("a status of this file");
    let mut response = HttpResponse::build(status);
    if status == 503 {
        response.insert_header(("Retry-After", RETRY_AFTER_S));
    }
    response.json(body)
}

fn error(status: u16, text: &str) -> HttpResponse {
    respond(status, &json!({"error": text}))
}

async fn server_metadata() -> HttpResponse {
    respond(200, &json!({"name": "apportion", "version": env!("CARGO_PKG_VERSION"), "extensions": []}))
}

async fn live() -> HttpResponse {
    respond(200, &json!({"live": true}))
}

async fn ready(handle: web::Data<Handle>) -> HttpResponse {
    let ready = {
        let view = handle.view.borrow();
        view.layout.fence.is_some() && view.layout.pipelines.keys().all(|p| view.ready.contains(p))
    };
    respond(if ready { 200 } else { 503 }, &json!({"ready": ready}))
}

/// The pipeline that the path names.
fn named(request: &HttpRequest) -> &str {
    request.match_info().get("pipeline").unwrap_or_default()
}

fn unknown(view: &View, name: &str) -> HttpResponse {
    let names: Vec<&str> = view.layout.pipelines.keys().map(String::as_str).collect();
    error(404, &format!("there is no pipeline {name} here: expected one of [{}]", names.join(", ")))
}

async fn metadata(handle: web::Data<Handle>, request: HttpRequest) -> HttpResponse {
    let name = named(&request);
    let view = handle.view.borrow().clone();
    let Some(pipeline) = view.layout.pipelines.get(name) else { return unknown(&view, name) };
    let spec =
        |name: &str, s: &crate::tensor::TensorSpec| json!({"name": name, "datatype": s.datatype.name(), "shape": s.shape});
    let inputs: Vec<Value> = pipeline.tasks[pipeline.root].inputs.iter().map(|s| spec(&s.name, s)).collect();
    let outputs: Vec<Value> = oip::output_specs(pipeline).iter().map(|(name, s)| spec(name, s)).collect();
    let generation = view.layout.fence.map_or(0, |f| f.generation.0).to_string();
    let body = json!({
        "name": name, "versions": [generation], "platform": "apportion_pipeline", "inputs": inputs, "outputs": outputs,
    });
    respond(200, &body)
}

async fn pipeline_ready(handle: web::Data<Handle>, request: HttpRequest) -> HttpResponse {
    let name = named(&request);
    let view = handle.view.borrow().clone();
    if !view.layout.pipelines.contains_key(name) {
        return unknown(&view, name);
    }
    let ready = view.ready.contains(name);
    respond(if ready { 200 } else { 503 }, &json!({"name": name, "ready": ready}))
}

async fn infer(handle: web::Data<Handle>, request: HttpRequest, body: web::Bytes) -> HttpResponse {
    let name = named(&request).to_string();
    let view = handle.view.borrow().clone();
    let Some(pipeline) = view.layout.pipelines.get(&name) else { return unknown(&view, &name) };
    let body: oip::Body<'_> = match serde_json::from_slice(&body) {
        Ok(body) => body,
        Err(e) => return error(400, &format!("the body is no inference request: {e}")),
    };
    let inputs = match oip::inputs(&body, &pipeline.tasks[pipeline.root].inputs) {
        Ok(inputs) => inputs,
        Err(e) => return error(400, &e),
    };
    let (reply, answer) = oneshot::channel();
    if handle.events.send(Event::Arrive { pipeline: name.clone(), inputs, reply }).await.is_err() {
        return error(503, "the agent is stopping");
    }
    let reason = |status, text: &str, reason: &str| respond(status, &json!({"error": text, "reason": reason}));
    match answer.await {
        Ok(Answer::Done { pieces, late, latency_ns }) => match oip::outputs(&pieces, pipeline) {
            Ok(outputs) => {
                let outputs: Vec<Value> = outputs.iter().map(|t| oip::output(t, &t.name)).collect();
                let outcome = if late { "late" } else { "ok" };
                let parameters = json!({"outcome": outcome, "latency_us": latency_ns / 1_000});
                let mut body_out = json!({"model_name": name, "outputs": outputs, "parameters": parameters});
                if let Some(id) = body.id {
                    body_out["id"] = Value::from(id);
                }
                respond(200, &body_out)
            }
            Err(e) => reason(500, "the request failed", &e),
        },
        Ok(Answer::NotReady(why)) => reason(503, "the pipeline is not ready", &why),
        Ok(Answer::Dropped(why)) => reason(503, "the request was dropped", &why),
        Ok(Answer::Failed(why)) => reason(500, "the request failed", &why),
        Ok(Answer::GivenUp) => reason(504, "the request failed", "parts of it never came back"),
        Err(_) => error(503, "the agent is stopping"),
    }
}

async fn metrics(handle: web::Data<Handle>) -> HttpResponse {
    let mut text = String::from("# TYPE apportion_replica_queries gauge\n");
    for (replica, queries) in &handle.view.borrow().queues {
        writeln!(text, "apportion_replica_queries{{replica=\"{replica}\"}} {queries}").expect("a string takes all");
    }
    text.push_str("# TYPE apportion_requests_total counter\n");
    for (pipeline, outcomes) in handle.view.borrow().totals.iter() {
        for (outcome, count) in ["ok", "late", "dropped", "failed"].iter().zip(outcomes) {
            let labels = format!("pipeline=\"{pipeline}\",outcome=\"{outcome}\"");
            writeln!(text, "apportion_requests_total{{{labels}}} {count}").expect("a string takes all");
        }
    }
    HttpResponse::Ok().content_type("text/plain; version=0.0.4").body(text)
}
