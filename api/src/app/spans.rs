//! Which work of the service has spans, and how are they exported by OTLP (OpenTelemetry)?
//!
//! A service without an endpoint has no exporter, and its work has no spans. Agents export theirs by themselves.

use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::{Span as _, SpanKind, Status, Tracer as _, TracerProvider as _};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider, Span};
use std::sync::Arc;

/// The name of this library in spans.
const SCOPE: &str = "apportion";
/// The name of the service in spans, unless `OTEL_SERVICE_NAME` says otherwise.
const SERVICE_NAME: &str = "apportion";
/// Requests that get an error of this status and above are errors in their spans.
const ERROR_STATUS_MIN: u16 = 500;

/// Where spans go, and which work has some.
#[derive(Clone, Debug, PartialEq)]
pub struct TracesConfig {
    /// The OTLP endpoint, over gRPC.
    pub endpoint: String,
    /// The part of the work that has spans, from 0 to 1. A caller's `traceparent` says so for its request.
    pub ratio: f64,
}

/// Why there are no spans.
#[derive(Debug, thiserror::Error)]
pub enum TracesError {
    /// The endpoint cannot be used.
    #[error("{endpoint:?} is no OTLP endpoint: {detail}: expected for example http://127.0.0.1:4317 (OTLP over gRPC)")]
    Endpoint {
        /// The endpoint.
        endpoint: String,
        /// What is wrong with it.
        detail: String,
    },
}

/// Begins and exports the spans of a service process.
#[derive(Clone, Debug, Default)]
pub struct ServiceSpans(Option<Arc<OpenSpans>>);

#[derive(Debug)]
struct OpenSpans {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
    propagator: TraceContextPropagator,
}

/// What a request says of the trace that it belongs to (W3C Trace Context).
#[derive(Clone, Debug, Default)]
pub struct TraceHeaders {
    /// The header `traceparent`.
    pub traceparent: Option<String>,
    /// The header `tracestate`.
    pub tracestate: Option<String>,
}

impl Extractor for TraceHeaders {
    fn get(&self, key: &str) -> Option<&str> {
        match key {
            "traceparent" => self.traceparent.as_deref(),
            "tracestate" => self.tracestate.as_deref(),
            _ => None,
        }
    }

    fn keys(&self) -> Vec<&str> {
        vec!["traceparent", "tracestate"]
    }
}

/// The span of a request, until its answer.
pub struct RequestSpan {
    span: Span,
    method: String,
}

impl RequestSpan {
    /// The request is answered. `route` is the pattern of its path, if it has one.
    pub fn end(mut self, route: Option<String>, status: u16) {
        if let Some(route) = route {
            self.span.update_name(format!("{} {route}", self.method));
            self.span.set_attribute(KeyValue::new("http.route", route));
        }
        self.span.set_attribute(KeyValue::new("http.request.method", self.method));
        self.span.set_attribute(KeyValue::new("http.response.status_code", i64::from(status)));
        if status >= ERROR_STATUS_MIN {
            self.span.set_status(Status::error(format!("status {status}")));
        }
        self.span.end();
    }
}

impl ServiceSpans {
    /// Exports spans to an endpoint; without one, there are none. Call it in the runtime of the service.
    ///
    /// # Errors
    /// [`TracesError`]. An endpoint where no collector listens is no error: spans are then lost.
    pub fn open(config: Option<&TracesConfig>) -> Result<Self, TracesError> {
        let Some(TracesConfig { endpoint, ratio }) = config else { return Ok(Self::default()) };
        let exporter = SpanExporter::builder().with_tonic().with_endpoint(endpoint.clone()).build();
        let exporter =
            exporter.map_err(|error| TracesError::Endpoint { endpoint: endpoint.clone(), detail: error.to_string() })?;
        let named = std::env::var("OTEL_SERVICE_NAME").ok().filter(|name| !name.is_empty());
        let resource = Resource::builder()
            .with_service_name(named.unwrap_or_else(|| SERVICE_NAME.to_owned()))
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
            .build();
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(*ratio))))
            .with_resource(resource)
            .build();
        let tracer = provider.tracer(SCOPE);
        Ok(Self(Some(Arc::new(OpenSpans { provider, tracer, propagator: TraceContextPropagator::new() }))))
    }

    /// A request has come; `None` without an endpoint.
    #[must_use]
    pub fn begin_request(&self, method: &str, headers: &TraceHeaders) -> Option<RequestSpan> {
        let open = self.0.as_ref()?;
        let above = open.propagator.extract_with_context(&Context::new(), headers);
        let builder = open.tracer.span_builder(method.to_owned()).with_kind(SpanKind::Server);
        Some(RequestSpan { span: builder.start_with_context(&open.tracer, &above), method: method.to_owned() })
    }

    /// Does work that has a span of its own, with one attribute. It ends with the work, also if that is given up.
    pub async fn during<T>(self, name: &'static str, attribute: KeyValue, work: impl Future<Output = T>) -> T {
        let begin = |open: &Arc<OpenSpans>| {
            let builder = open.tracer.span_builder(name).with_kind(SpanKind::Internal).with_attributes([attribute]);
            builder.start_with_context(&open.tracer, &Context::new())
        };
        let span = self.0.as_ref().map(begin);
        let done = work.await;
        if let Some(mut span) = span {
            span.end();
        }
        done
    }

    /// Exports what has ended, and ends. It waits for the endpoint for some seconds at most.
    pub async fn close(&self) {
        let Some(open) = self.0.clone() else { return };
        match tokio::task::spawn_blocking(move || open.provider.shutdown()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the last spans may be lost"),
            Err(error) => tracing::warn!(%error, "the last spans are lost"),
        }
    }
}
