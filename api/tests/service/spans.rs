//! Requests, plans and rounds have spans, which go to a real OTLP receiver: the public protocol's service.

use crate::support::{PATIENCE, problem, service_on_config};
use apportion_api::TracesConfig;
use opentelemetry_proto::tonic::collector::trace::v1 as collector;
use opentelemetry_proto::tonic::common::v1::any_value::Value as SpanValue;
use opentelemetry_proto::tonic::trace::v1::{Span, span::SpanKind};
use serde_json::json;
use std::sync::{Arc, Mutex};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";

#[derive(Clone, Default)]
struct Receiver(Arc<Mutex<Vec<Span>>>);

#[tonic::async_trait]
impl collector::trace_service_server::TraceService for Receiver {
    async fn export(
        &self,
        request: Request<collector::ExportTraceServiceRequest>,
    ) -> Result<Response<collector::ExportTraceServiceResponse>, Status> {
        let resources = request.into_inner().resource_spans.into_iter();
        let spans = resources.flat_map(|of| of.scope_spans).flat_map(|scope| scope.spans);
        self.0.lock().expect("no panic").extend(spans);
        Ok(Response::new(Default::default()))
    }
}

/// A receiver with its endpoint.
async fn receiver() -> (Receiver, String) {
    let received = Receiver::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let endpoint = format!("http://{}", listener.local_addr().expect("its address"));
    let service = collector::trace_service_server::TraceServiceServer::new(received.clone());
    tokio::spawn(
        tonic::transport::Server::builder().add_service(service).serve_with_incoming(TcpListenerStream::new(listener)),
    );
    (received, endpoint)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The text of an attribute.
fn text(span: &Span, key: &str) -> Option<String> {
    let found = span.attributes.iter().find(|attribute| attribute.key == key)?;
    match found.value.as_ref()?.value.as_ref()? {
        SpanValue::StringValue(text) => Some(text.clone()),
        SpanValue::IntValue(number) => Some(number.to_string()),
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_and_plans_have_spans() {
    let (received, endpoint) = receiver().await;
    let s = service_on_config(|config| config.traces = Some(TracesConfig { endpoint, ratio: 1.0 })).await;
    let (status, plan) = s.post("/v1/plans", &json!({"problem": problem(30.0)})).await;
    assert_eq!(status, 200, "{plan:#}");
    let id = plan["id"].as_str().expect("an identifier");
    let asked = s.client.get(format!("{}/v1/plans/{id}", s.base)).header("traceparent", format!("00-{TRACE}-{CALLER}-01"));
    assert_eq!(asked.send().await.expect("an answer").status(), 200);
    let missing = s.client.get(format!("{}/v1/nothing", s.base)).header("traceparent", format!("00-{TRACE}-{CALLER}-00"));
    assert_eq!(missing.send().await.expect("an answer").status(), 404);
    // The last spans are sent when the service stops.
    tokio::time::timeout(PATIENCE, s.running.stop()).await.expect("it stops");
    let spans = std::mem::take(&mut *received.0.lock().expect("no panic"));
    let one = |name: &str| {
        let found: Vec<&Span> = spans.iter().filter(|span| span.name == name).collect();
        assert_eq!(found.len(), 1, "{name}: {spans:?}");
        found[0]
    };
    let read = one("GET /v1/plans/{id}");
    assert_eq!((hex(&read.trace_id), hex(&read.parent_span_id)), (TRACE.to_owned(), CALLER.to_owned()));
    assert_eq!(text(read, "http.response.status_code").as_deref(), Some("200"));
    assert_eq!(read.kind(), SpanKind::Server);
    assert_eq!(text(one("plan"), "apportion.plan").as_deref(), Some(id));
    assert_eq!(one("POST /v1/plans").kind(), SpanKind::Server);
    let of_caller = spans.iter().filter(|span| hex(&span.trace_id) == TRACE).count();
    assert_eq!(of_caller, 1, "the caller did not want the other one");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_malformed_endpoint_is_refused() {
    let (url, dir) = (crate::support::new_database().await, crate::support::open_dir());
    let mut config = crate::support::config_on(&url, &dir);
    config.traces = Some(TracesConfig { endpoint: "no endpoint".into(), ratio: 1.0 });
    let error = apportion_api::serve(config).await.err().expect("it does not start");
    assert!(error.to_string().starts_with("\"no endpoint\" is no OTLP endpoint"), "{error}");
}
