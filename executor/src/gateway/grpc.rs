//! How does the gateway answer the gRPC service `inference.GRPCInferenceService`?

use super::admission::AdmittedRequest;
use super::inference::{self, check_wanted, output_specs, select};
use super::meter::{MessageSizes, MeteredService};
use super::prescan::{ENVELOPE_BYTES_MAX, PLAIN_BYTES_MAX};
use super::proto::grpc_inference_service_server::{GrpcInferenceService, GrpcInferenceServiceServer};
use super::proto::infer_parameter::ParameterChoice;
use super::proto::{self, ModelInferRequest, ModelInferResponse, ModelStreamInferResponse};
use super::refusal::GatewayRefusal;
use super::{BODY_BYTES_MAX, EXTENSIONS, Gateway, RETRY_AFTER_S, VARIANTS};
use super::{about, connections, contents, find, version};
use crate::agent::NodeView;
use crate::shares::sender;
use crate::telemetry::{CallerContext, IngressSpan};
use apportion_node::node::request::RequestTerms;
use apportion_node::trace::TraceContext;
use futures::stream::{BoxStream, Stream, StreamExt};
use opentelemetry::KeyValue;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::codec::CompressionEncoding;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status, Streaming};

/// Most requests of one stream that wait for their answers. The stream is read on when one of them is answered.
pub const STREAM_REQUESTS_MAX: usize = 256;
/// Most calls at once of one connection; the client keeps others waiting.
pub const CALLS_MAX: u32 = 1_024;
/// Most bytes of the headers of one call.
pub const HEADERS_BYTES_MAX: u32 = 16 * 1024;
/// How often a connection is asked whether its client is there, and how long that may take to say so.
const PING: Duration = Duration::from_secs(30);
const PING_MAX: Duration = Duration::from_secs(10);
/// The parameter of an answer that says which variants served.
const PARAMETER_VARIANTS: &str = "variants";
/// The methods as spans name them, and the names of their spans.
const INFER: &str = "inference.GRPCInferenceService/ModelInfer";
const STREAM_INFER: &str = "inference.GRPCInferenceService/ModelStreamInfer";
/// Tells a client, in milliseconds, when to try again (gRPC's retry design, A6).
const PUSHBACK: &str = "grpc-retry-pushback-ms";

/// Serves on a bound socket until `stop` is cancelled; what has begun is then finished.
///
/// # Errors
/// If the socket cannot be used.
pub async fn serve(
    listener: TcpListener,
    gateway: Gateway,
    stop: CancellationToken,
) -> Result<(), tonic::transport::Error> {
    let tls = gateway.tls.as_ref().map(|tls| tls.grpc.clone());
    let incoming = connections::incoming(listener, gateway.connections.clone(), tls);
    let open_bytes = gateway.open_bytes.clone();
    let sizes = MessageSizes { infer: BODY_BYTES_MAX + ENVELOPE_BYTES_MAX, other: PLAIN_BYTES_MAX };
    let service = GrpcInferenceServiceServer::new(gateway)
        .max_decoding_message_size(sizes.infer)
        .accept_compressed(CompressionEncoding::Gzip)
        .accept_compressed(CompressionEncoding::Deflate)
        .send_compressed(CompressionEncoding::Gzip);
    let server = tonic::transport::Server::builder()
        .http2_adaptive_window(Some(true))
        .max_concurrent_streams(CALLS_MAX)
        .http2_max_header_list_size(HEADERS_BYTES_MAX)
        .http2_keepalive_interval(Some(PING))
        .http2_keepalive_timeout(Some(PING_MAX))
        .add_service(MeteredService::new(service, open_bytes, sizes));
    server.serve_with_incoming_shutdown(incoming, stop.cancelled_owned()).await
}

impl From<GatewayRefusal> for Status {
    fn from(refusal: GatewayRefusal) -> Self {
        let mut metadata = MetadataMap::new();
        if refusal.cause.passes() {
            metadata.insert(PUSHBACK, (RETRY_AFTER_S * 1_000).into());
        }
        Status::with_metadata(refusal.cause.grpc(), refusal.line(), metadata)
    }
}

/// What a call's metadata say of its trace.
fn caller(gateway: &Gateway, metadata: &MetadataMap) -> Option<CallerContext> {
    gateway.caller(&|name| metadata.get(name).and_then(|value| value.to_str().ok()))
}

/// The time that gRPC itself gives a call (`grpc-timeout`: at most eight digits and a unit), in nanoseconds.
fn call_timeout_ns(metadata: &MetadataMap) -> Option<u64> {
    let text = metadata.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let ns = match unit {
        "n" => 1,
        "u" => 1_000,
        "m" => 1_000_000,
        "S" => 1_000_000_000,
        "M" => 60_000_000_000,
        "H" => 3_600_000_000_000,
        _ => return None,
    };
    digits.parse::<u64>().ok().filter(|_| digits.len() <= 8)?.checked_mul(ns)
}

/// What a call says beside its message.
#[derive(Clone)]
struct Call {
    /// The time that gRPC itself gives it, in nanoseconds.
    timeout_ns: Option<u64>,
    caller: Option<CallerContext>,
    method: &'static str,
    /// Whose it is, in a number.
    sender: u64,
}

impl Call {
    fn of<T>(gateway: &Gateway, request: &Request<T>, method: &'static str) -> Self {
        let sender = request.remote_addr().map_or(0, |address| sender(address.ip()));
        Self { timeout_ns: None, caller: caller(gateway, request.metadata()), method, sender }
    }
}

/// A request that was read: it has its place, or it is refused.
struct Begun {
    name: String,
    id: String,
    span: Option<IngressSpan>,
    ready: Result<Ready, GatewayRefusal>,
}

/// A request that has its place.
struct Ready {
    view: NodeView,
    outputs: Vec<inference::RequestedOutput>,
    form: inference::ElementForm,
    admitted: AdmittedRequest,
}

/// Reads a request and gives it its place. Nothing is waited for here, so that no more messages are in memory than have
/// places.
fn begin(gateway: &Gateway, message: ModelInferRequest, call: &Call) -> Begun {
    let (name, id) = (message.model_name.clone(), message.id.clone());
    let span = gateway.begin(call.caller.as_ref(), call.method);
    let ready = ready(gateway, message, call, span.as_ref().map(IngressSpan::trace));
    Begun { name, id, span, ready }
}

fn ready(
    gateway: &Gateway,
    message: ModelInferRequest,
    call: &Call,
    trace: Option<TraceContext>,
) -> Result<Ready, GatewayRefusal> {
    let view = gateway.view();
    let name = message.model_name.clone();
    let pipeline = find(&view, &name)?;
    let asked = contents::read(message)?;
    let inputs = inference::inputs(asked.inputs, &pipeline.tasks[pipeline.root].inputs)?;
    inference::check_texts(&inputs, view.backend)?;
    check_wanted(&asked.outputs, &output_specs(pipeline))?;
    let terms = RequestTerms { trace, sender: call.sender, ..asked.settings.terms(call.timeout_ns) };
    let admitted = gateway.admit(&name, inputs, terms, 0)?;
    Ok(Ready { outputs: asked.outputs, form: asked.form, admitted, view })
}

async fn answer(gateway: &Gateway, name: &str, id: String, ready: Ready) -> Result<ModelInferResponse, GatewayRefusal> {
    let Ready { view, outputs: wanted, form, admitted } = ready;
    let pipeline = find(&view, name)?;
    let served = gateway.serve(admitted).await?;
    let outputs = inference::outputs(&served.pieces, pipeline)?;
    let outputs = select(outputs, &wanted, form)?.into_iter().map(|selected| selected.tensor).collect();
    let (outputs, raw_output_contents) = contents::write(outputs, form);
    let outcome = if served.late { "late" } else { "ok" };
    let parameter = |value| proto::InferParameter { parameter_choice: Some(value) };
    let latency_us = i64::try_from(served.latency_ns / 1_000).unwrap_or(i64::MAX);
    let parameters = [
        ("outcome".to_string(), parameter(ParameterChoice::StringParam(outcome.into()))),
        ("latency_us".to_string(), parameter(ParameterChoice::Int64Param(latency_us))),
    ];
    let mut parameters = std::collections::HashMap::from(parameters);
    if served.dropped > 0 {
        let dropped = i64::from(served.dropped);
        parameters.insert("dropped".to_string(), parameter(ParameterChoice::Int64Param(dropped)));
    }
    if let Some(chosen) = served.chosen {
        parameters.insert("accuracy".to_string(), parameter(ParameterChoice::DoubleParam(chosen.accuracy)));
        parameters.insert(PARAMETER_VARIANTS.to_string(), parameter(ParameterChoice::StringParam(chosen.variants)));
    }
    let model_version = version(&view);
    Ok(ModelInferResponse { model_name: name.into(), model_version, id, parameters, outputs, raw_output_contents })
}

/// Answers a request that was read; a refusal is counted, and the request has its span.
async fn end(gateway: &Gateway, begun: Begun, method: &'static str) -> Result<ModelInferResponse, GatewayRefusal> {
    let Begun { name, id, span, ready } = begun;
    let answer = match ready {
        Ok(ready) => answer(gateway, &name, id, ready).await,
        Err(refusal) => Err(refusal),
    };
    if let Some(span) = span {
        let code = answer.as_ref().err().map_or(tonic::Code::Ok, |refusal| refusal.cause.grpc());
        let attributes = vec![
            KeyValue::new("rpc.system.name", "grpc"),
            KeyValue::new("rpc.method", method),
            KeyValue::new("rpc.response.status_code", code as i64),
            KeyValue::new("apportion.pipeline", name.clone()),
        ];
        let error = answer.as_ref().err().filter(|refusal| refusal.cause.http() >= 500);
        span.end(attributes, error.map(GatewayRefusal::line));
    }
    answer.inspect_err(|refusal| gateway.count_refused(&name, refusal.cause))
}

/// Answers the requests of a stream in their order; up to [`STREAM_REQUESTS_MAX`] of them run at once. A refused
/// request is answered with its error, and the stream goes on. Only a malformed message ends it.
fn answers<S>(gateway: Gateway, call: Call, requests: S) -> BoxStream<'static, Result<ModelStreamInferResponse, Status>>
where
    S: Stream<Item = Result<ModelInferRequest, Status>> + Send + 'static,
{
    let one = move |request: Result<ModelInferRequest, Status>| {
        let gateway = gateway.clone();
        let begun = request.map(|message| begin(&gateway, message, &call));
        async move {
            let begun = begun?;
            let (name, id) = (begun.name.clone(), begun.id.clone());
            let last = proto::InferParameter { parameter_choice: Some(ParameterChoice::BoolParam(true)) };
            let (error_message, mut response) = match end(&gateway, begun, STREAM_INFER).await {
                Ok(response) => (String::new(), response),
                // The client tells by the id which of its requests it was.
                Err(refusal) => {
                    (refusal.line(), ModelInferResponse { model_name: name, id, ..ModelInferResponse::default() })
                }
            };
            // Triton's mark of a request's last answer: here every request has one.
            response.parameters.insert("triton_final_response".into(), last);
            Ok(ModelStreamInferResponse { error_message, infer_response: Some(response) })
        }
    };
    requests.map(one).buffered(STREAM_REQUESTS_MAX).boxed()
}

type Replied<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl GrpcInferenceService for Gateway {
    async fn server_live(&self, _: Request<proto::ServerLiveRequest>) -> Replied<proto::ServerLiveResponse> {
        Ok(Response::new(proto::ServerLiveResponse { live: true }))
    }

    async fn server_ready(&self, _: Request<proto::ServerReadyRequest>) -> Replied<proto::ServerReadyResponse> {
        Ok(Response::new(proto::ServerReadyResponse { ready: self.check_ready().is_ok() }))
    }

    async fn model_ready(&self, request: Request<proto::ModelReadyRequest>) -> Replied<proto::ModelReadyResponse> {
        let name = request.into_inner().name;
        let view = self.view();
        find(&view, &name)?;
        Ok(Response::new(proto::ModelReadyResponse { ready: view.ready.contains(&name) }))
    }

    async fn server_metadata(&self, _: Request<proto::ServerMetadataRequest>) -> Replied<proto::ServerMetadataResponse> {
        Ok(Response::new(proto::ServerMetadataResponse {
            name: "apportion".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            extensions: EXTENSIONS.map(str::to_string).into(),
        }))
    }

    async fn model_metadata(&self, request: Request<proto::ModelMetadataRequest>) -> Replied<proto::ModelMetadataResponse> {
        Ok(Response::new(about::metadata(&self.view(), &request.into_inner().name)?))
    }

    async fn model_config(&self, request: Request<proto::ModelConfigRequest>) -> Replied<proto::ModelConfigResponse> {
        let config = about::config(&self.view(), &request.into_inner().name)?;
        Ok(Response::new(proto::ModelConfigResponse { config: Some(config) }))
    }

    async fn model_statistics(
        &self,
        request: Request<proto::ModelStatisticsRequest>,
    ) -> Replied<proto::ModelStatisticsResponse> {
        let name = request.into_inner().name;
        let one = (!name.is_empty()).then_some(name.as_str());
        Ok(Response::new(proto::ModelStatisticsResponse { model_stats: about::statistics(self, one)? }))
    }

    async fn repository_index(
        &self,
        request: Request<proto::RepositoryIndexRequest>,
    ) -> Replied<proto::RepositoryIndexResponse> {
        let models = about::index(&self.view(), request.into_inner().ready);
        Ok(Response::new(proto::RepositoryIndexResponse { models }))
    }

    async fn model_infer(&self, request: Request<ModelInferRequest>) -> Replied<ModelInferResponse> {
        let timeout_ns = call_timeout_ns(request.metadata());
        let call = Call { timeout_ns, ..Call::of(self, &request, INFER) };
        let answer = end(self, begin(self, request.into_inner(), &call), INFER).await?;
        let variants = answer.parameters.get(PARAMETER_VARIANTS).and_then(|p| match &p.parameter_choice {
            Some(ParameterChoice::StringParam(variants)) => variants.parse().ok(),
            _ => None,
        });
        let mut response = Response::new(answer);
        if let Some(variants) = variants {
            response.metadata_mut().insert(VARIANTS, variants);
        }
        Ok(response)
    }

    type ModelStreamInferStream = BoxStream<'static, Result<ModelStreamInferResponse, Status>>;

    async fn model_stream_infer(
        &self,
        request: Request<Streaming<ModelInferRequest>>,
    ) -> Replied<Self::ModelStreamInferStream> {
        let call = Call::of(self, &request, STREAM_INFER);
        Ok(Response::new(answers(self.clone(), call, request.into_inner())))
    }
}
