//! Requests through two agents whose spans go to a real OTLP receiver: the public protocol's service.

use crate::support::agents::Agent;
use crate::support::control::Control;
use crate::support::{Group, target};
use apportion_executor::agent::AgentCommand;
use apportion_executor::gateway::proto::grpc_inference_service_client::GrpcInferenceServiceClient;
use apportion_executor::gateway::proto::model_infer_request::InferInputTensor;
use apportion_executor::gateway::proto::{InferTensorContents, ModelInferRequest};
use apportion_executor::telemetry::Tracer;
use opentelemetry_proto::tonic::collector::trace::v1 as collector;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::trace::v1::{Span, span::SpanKind, status::StatusCode};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";

/// Spans, each with the name of the agent that sent it.
#[derive(Clone, Default)]
struct Receiver(Arc<Mutex<Vec<(String, Span)>>>);

#[tonic::async_trait]
impl collector::trace_service_server::TraceService for Receiver {
    async fn export(
        &self,
        request: Request<collector::ExportTraceServiceRequest>,
    ) -> Result<Response<collector::ExportTraceServiceResponse>, Status> {
        for of in request.into_inner().resource_spans {
            let agent = text(&of.resource.expect("who speaks").attributes, "apportion.agent");
            let spans = of.scope_spans.into_iter().flat_map(|scope| scope.spans);
            self.0.lock().expect("no panic").extend(spans.map(|span| (agent.clone(), span)));
        }
        Ok(Response::new(Default::default()))
    }
}

fn value<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a Value> {
    let found = attributes.iter().find(|a| a.key == key)?;
    found.value.as_ref()?.value.as_ref()
}

fn text(attributes: &[KeyValue], key: &str) -> String {
    match value(attributes, key) {
        Some(Value::StringValue(text)) => text.clone(),
        other => panic!("{key} is {other:?} in {attributes:?}"),
    }
}

fn number(span: &Span, key: &str) -> i64 {
    match value(&span.attributes, key) {
        Some(Value::IntValue(number)) => *number,
        other => panic!("{key} is {other:?} in {span:?}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// A receiver, and two agents: `one` has the task `split`, `two` the task `sum`.
struct Traced {
    received: Receiver,
    agents: Vec<(Agent, Arc<Tracer>)>,
    _control: Control,
    _state: tempfile::TempDir,
}

impl Traced {
    /// Agents that trace this part of the requests that do not say whether they are sampled.
    async fn start(ratio: f64) -> Self {
        let received = Receiver::default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let endpoint = format!("http://{}", listener.local_addr().expect("its address"));
        let service = collector::trace_service_server::TraceServiceServer::new(received.clone());
        let server = tonic::transport::Server::builder().add_service(service);
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        let state = tempfile::tempdir().expect("a folder");
        let control = Control::start(&["split", "sum"]).await;
        let mut agents = Vec::new();
        for name in ["one", "two"] {
            let tracer = Tracer::new(&endpoint, ratio, name).expect("an endpoint");
            agents.push((Agent::start_traced(name, &control.url, state.path(), tracer.clone()), tracer));
            crate::support::until("it is known", || (control.heard(name).number > 0).then_some(())).await;
        }
        let addresses: Vec<(u64, String)> = (1..).zip(agents.iter().map(|(agent, _)| agent.data.clone())).collect();
        let groups = [
            Group { id: 1, task: 0, variant: "split", agents: &[1] },
            Group { id: 2, task: 1, variant: "sum", agents: &[2] },
        ];
        control.send(target(1, &addresses, &groups));
        agents[0].0.ready("toy").await;
        Self { received, agents, _control: control, _state: state }
    }

    /// Sends a request over HTTP whose row `split` makes two queries of; gives its status.
    async fn post(&self, pipeline: &str, traceparent: Option<String>) -> u16 {
        let input = json!({"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [2.0, 5.0]});
        let url = format!("http://{}/v2/models/{pipeline}/infer", self.agents[0].0.http);
        let mut request = reqwest::Client::new().post(url).json(&json!({"inputs": [input]}));
        if let Some(traceparent) = traceparent {
            request = request.header("traceparent", traceparent);
        }
        request.send().await.expect("an answer").status().as_u16()
    }

    /// All spans, once nothing is under way any more.
    async fn spans(self) -> Vec<(String, Span)> {
        for (agent, tracer) in self.agents {
            loop {
                let (reply, unfinished) = tokio::sync::oneshot::channel();
                assert!(agent.handle.commands.send(AgentCommand::Unfinished(reply)).await.is_ok(), "the loop runs");
                if unfinished.await == Ok(0) {
                    break;
                }
            }
            tokio::task::spawn_blocking(move || tracer.close()).await.expect("no panic");
        }
        std::mem::take(&mut self.received.0.lock().expect("no panic"))
    }
}

/// The spans of one request through `split` and twice through `sum`, the first by this name: they hang together as they
/// should.
fn check_request(spans: &[(String, Span)], ingress: &str) {
    assert_eq!(spans.len(), 6, "{spans:?}");
    let all = |agent: &str, name: &str| {
        let found = spans.iter().filter(|(of, span)| of == agent && span.name == name);
        found.map(|(_, span)| span).collect::<Vec<&Span>>()
    };
    let one = |agent: &str, name: &str| match all(agent, name)[..] {
        [span] => span,
        ref others => panic!("{name} of {agent}: {others:?}"),
    };
    let (ingress, split) = (one("one", ingress), one("one", "task split"));
    assert_eq!(split.parent_span_id, ingress.span_id);
    let (hops, sums) = (all("one", "hop"), all("two", "task sum"));
    assert!(hops.len() == 2 && hops.iter().all(|hop| hop.parent_span_id == split.span_id), "{hops:?}");
    let ids = |spans: &[&Span]| spans.iter().map(|s| s.span_id.clone()).collect::<BTreeSet<_>>();
    let parents: BTreeSet<_> = sums.iter().map(|s| s.parent_span_id.clone()).collect();
    assert_eq!((sums.len(), parents), (2, ids(&hops)), "each visit hangs below its own hop");
    for (_, span) in spans {
        assert_eq!(span.trace_id, ingress.trace_id);
        assert!(span.start_time_unix_nano <= span.end_time_unix_nano, "{span:?}");
        assert!(span.status.as_ref().is_none_or(|s| s.code() == StatusCode::Unset), "{span:?}");
    }
    assert_eq!(ids(&spans.iter().map(|(_, s)| s).collect::<Vec<_>>()).len(), 6, "each has a number of its own");
    for visit in std::iter::once(split).chain(sums) {
        assert!(number(visit, "apportion.batch_size") >= 1);
        let parts = ["apportion.queueing_us", "apportion.batch_wait_us", "apportion.execution_us"];
        let parts: Vec<i64> = parts.iter().map(|key| number(visit, key)).collect();
        let whole = (visit.end_time_unix_nano - visit.start_time_unix_nano).div_ceil(1_000);
        assert!(parts.iter().all(|p| *p >= 0) && parts.iter().sum::<i64>() <= whole as i64, "{parts:?} of {whole} us");
    }
    assert!(ingress.kind() == SpanKind::Server && hops[0].kind() == SpanKind::Client);
}

#[tokio::test]
async fn spans_of_two_agents_join_the_callers_trace() {
    let traced = Traced::start(0.0).await;
    assert_eq!(traced.post("toy", Some(format!("00-{TRACE}-{CALLER}-01"))).await, 200);
    let spans = traced.spans().await;
    check_request(&spans, "POST /v2/models/{pipeline}/infer");
    let ingress = spans.iter().map(|(_, span)| span).find(|s| s.name.starts_with("POST")).expect("checked");
    assert_eq!((hex(&ingress.trace_id), hex(&ingress.parent_span_id)), (TRACE.into(), CALLER.into()));
    assert_eq!(number(ingress, "http.response.status_code"), 200);
    assert_eq!(text(&ingress.attributes, "apportion.pipeline"), "toy");
}

#[tokio::test]
async fn a_grpc_call_says_its_trace_in_its_metadata() {
    let traced = Traced::start(0.0).await;
    let address = format!("http://{}", traced.agents[0].0.grpc);
    let mut client = GrpcInferenceServiceClient::connect(address).await.expect("a connection");
    let contents = Some(InferTensorContents { fp32_contents: vec![2.0, 5.0], ..Default::default() });
    let (name, datatype, shape) = ("x".into(), "FP32".into(), vec![1, 2]);
    let input = InferInputTensor { name, datatype, shape, contents, ..Default::default() };
    let message = ModelInferRequest { model_name: "toy".into(), inputs: vec![input], ..Default::default() };
    let mut request = Request::new(message);
    let header = format!("00-{TRACE}-{CALLER}-01").parse().expect("ASCII");
    request.metadata_mut().insert("traceparent", header);
    client.model_infer(request).await.expect("an answer");
    let spans = traced.spans().await;
    check_request(&spans, "inference.GRPCInferenceService/ModelInfer");
    assert!(spans.iter().all(|(_, span)| hex(&span.trace_id) == TRACE));
    assert!(spans.iter().any(|(_, span)| hex(&span.parent_span_id) == CALLER));
}

#[tokio::test]
async fn sampling_follows_the_ratio_and_the_callers_no() {
    let traced = Traced::start(1.0).await;
    for no in ["00", "02"].map(|flags| format!("00-{TRACE}-{CALLER}-{flags}")) {
        assert_eq!(traced.post("toy", Some(no)).await, 200);
    }
    // What is no trace context is as good as none.
    assert_eq!(traced.post("toy", Some("00-nothing-01".into())).await, 200);
    let spans = traced.spans().await;
    check_request(&spans, "POST /v2/models/{pipeline}/infer");
    assert!(spans.iter().all(|(_, span)| hex(&span.trace_id) != TRACE));
    let none = Traced::start(0.0).await;
    assert_eq!(none.post("toy", None).await, 200);
    assert_eq!(none.spans().await, [], "a ratio of 0 traces nothing");
}

#[tokio::test]
async fn a_refused_request_has_its_span_too() {
    let traced = Traced::start(1.0).await;
    assert_eq!(traced.post("other", None).await, 404);
    let spans = traced.spans().await;
    let [(agent, span)] = &spans[..] else { panic!("{spans:?}") };
    assert_eq!((agent.as_str(), number(span, "http.response.status_code")), ("one", 404));
    assert!(span.parent_span_id.is_empty(), "nobody called");
}

#[tokio::test]
async fn an_invalid_endpoint_is_refused() {
    for wrong in ["::", "https://127.0.0.1:4317"] {
        let error = Tracer::new(wrong, 1.0, "one").expect_err(wrong).to_string();
        assert!(error.contains(wrong) && error.contains("http://127.0.0.1:4317"), "{error}");
    }
}
