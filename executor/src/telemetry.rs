//! Which requests are traced, and how are their spans exported by OTLP (OpenTelemetry)?
//!
//! An agent without an endpoint has no [`Tracer`], and its requests have no trace.

use apportion_node::trace::{SpanActivity, TraceContext, TraceSpan};
use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceContextExt, TraceFlags, TraceId, TraceState};
use opentelemetry::{Context, InstrumentationScope, KeyValue};
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{
    BatchConfig, BatchSpanProcessor, IdGenerator, RandomIdGenerator, Sampler, SamplingDecision, ShouldSample, SpanData,
    SpanProcessor,
};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// What this library calls itself in spans.
const SCOPE: &str = "apportion";
/// The name of the service in spans, unless `OTEL_SERVICE_NAME` says otherwise.
const SERVICE_NAME: &str = "apportion-agent";

/// Why there are no traces.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The endpoint cannot be used.
    #[error("{endpoint:?} is no OTLP endpoint: {detail}: expected for example http://127.0.0.1:4317 (OTLP over gRPC)")]
    Endpoint {
        /// The endpoint.
        endpoint: String,
        /// What is wrong with it.
        detail: String,
    },
    /// The system has no thread for it.
    #[error("there is no thread for traces")]
    Thread(#[from] std::io::Error),
}

/// Where spans go, and which requests have some.
#[derive(Debug)]
pub struct Tracer {
    processor: BatchSpanProcessor,
    sampler: Sampler,
    ids: RandomIdGenerator,
    propagator: TraceContextPropagator,
    scope: InstrumentationScope,
    /// Its threads talk to the endpoint; the agent's own never wait for it.
    _runtime: Background,
}

/// A runtime that is dropped without waiting for it: its owner may be a task of another runtime, which must not block.
#[derive(Debug)]
struct Background(Option<tokio::runtime::Runtime>);

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// What a request says of the trace that it belongs to: nothing, most often.
#[derive(Clone, Debug, Default)]
pub struct CallerContext(Context);

/// The headers of a request.
struct Headers<'a>(&'a dyn Fn(&str) -> Option<&'a str>);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        (self.0)(key)
    }

    fn keys(&self) -> Vec<&str> {
        Vec::new()
    }
}

impl Tracer {
    /// Sends spans to this OTLP endpoint over gRPC. `ratio` of the requests that do not say whether they are sampled are.
    ///
    /// # Errors
    /// [`TelemetryError`] by cause. An endpoint where no collector listens is no error: spans are then lost.
    pub fn new(endpoint: &str, ratio: f64, agent: &str) -> Result<Arc<Self>, TelemetryError> {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).thread_name("telemetry").enable_all().build()?;
        // The exporter's connection lives in the runtime in which it is made.
        let runtime = Background(Some(runtime));
        let entered = runtime.0.as_ref().map(tokio::runtime::Runtime::enter);
        let exporter = SpanExporter::builder().with_tonic().with_endpoint(endpoint).build();
        drop(entered);
        let exporter =
            exporter.map_err(|error| TelemetryError::Endpoint { endpoint: endpoint.into(), detail: error.to_string() })?;
        let mut processor = BatchSpanProcessor::new(exporter, BatchConfig::default());
        let named = std::env::var("OTEL_SERVICE_NAME").ok().filter(|name| !name.is_empty());
        let resource = Resource::builder()
            .with_service_name(named.unwrap_or_else(|| SERVICE_NAME.into()))
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
            .with_attribute(KeyValue::new("apportion.agent", agent.to_string()));
        processor.set_resource(&resource.build());
        Ok(Arc::new(Self {
            processor,
            sampler: Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(ratio))),
            ids: RandomIdGenerator::default(),
            propagator: TraceContextPropagator::new(),
            scope: InstrumentationScope::builder(SCOPE).with_version(env!("CARGO_PKG_VERSION")).build(),
            _runtime: runtime,
        }))
    }

    /// What the headers say, by W3C Trace Context (`traceparent`, `tracestate`).
    pub fn caller<'a>(&self, header: &'a dyn Fn(&str) -> Option<&'a str>) -> CallerContext {
        CallerContext(self.propagator.extract_with_context(&Context::new(), &Headers(header)))
    }

    /// A request has come; none if it is not sampled.
    #[must_use]
    pub fn begin(self: &Arc<Self>, caller: &CallerContext, name: &'static str) -> Option<IngressSpan> {
        let above = caller.0.span().span_context().clone();
        let trace_id = if above.is_valid() { above.trace_id() } else { self.ids.new_trace_id() };
        let sampled = self.sampler.should_sample(Some(&caller.0), trace_id, name, &SpanKind::Server, &[], &[]);
        if sampled.decision != SamplingDecision::RecordAndSample {
            return None;
        }
        let (id, begun) = (self.ids.new_span_id(), SystemTime::now());
        Some(IngressSpan { tracer: self.clone(), name, trace_id, id, above, begun })
    }

    /// Sends out a span of an agent whose clock began at `started`.
    pub fn export(&self, span: TraceSpan, started: Instant) {
        // Spans are told by the wall clock as it is now, whatever it was when the agent began.
        let (now, uptime) = (SystemTime::now(), started.elapsed());
        let wall = |ns| now - uptime.saturating_sub(Duration::from_nanos(ns));
        let (name, kind, attributes) = describe(&span);
        self.end(SpanData {
            span_context: context(TraceId::from(span.trace.id), SpanId::from(span.id), TraceState::NONE),
            parent_span_id: SpanId::from(span.trace.parent),
            // The span above a visit may be another agent's, and then it is a hop.
            parent_span_is_remote: false,
            span_kind: kind,
            name,
            start_time: wall(span.begun_ns),
            end_time: wall(span.ended_ns),
            attributes,
            dropped_attributes_count: 0,
            events: Default::default(),
            links: Default::default(),
            status: status(span.error),
            instrumentation_scope: self.scope.clone(),
        });
    }

    fn end(&self, span: SpanData) {
        self.processor.on_end(span);
    }

    /// Sends out what has ended, and ends. It waits for the endpoint for some seconds at most, so no thread that has other
    /// work should call it.
    pub fn close(&self) {
        if let Err(error) = self.processor.shutdown() {
            tracing::warn!(%error, "the last spans may be lost");
        }
    }
}

fn context(trace: TraceId, id: SpanId, state: TraceState) -> SpanContext {
    SpanContext::new(trace, id, TraceFlags::SAMPLED, false, state)
}

fn status(error: Option<String>) -> Status {
    error.map_or(Status::Unset, Status::error)
}

/// Name, kind and attributes of a span.
fn describe(span: &TraceSpan) -> (Cow<'static, str>, SpanKind, Vec<KeyValue>) {
    let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    match &span.what {
        SpanActivity::Hop { task, to } => {
            let attributes =
                vec![KeyValue::new("apportion.task", task.clone()), KeyValue::new("apportion.agent.to", number(*to))];
            (Cow::Borrowed("hop"), SpanKind::Client, attributes)
        }
        SpanActivity::Visit(visit) => {
            let mut attributes = vec![
                KeyValue::new("apportion.pipeline", visit.pipeline.clone()),
                KeyValue::new("apportion.task", visit.task.clone()),
                KeyValue::new("apportion.variant", visit.variant.clone()),
                // Replicas that a steward adds have numbers above 2^62.
                KeyValue::new("apportion.replica", visit.replica.to_string()),
            ];
            if let Some(batch) = &visit.batch {
                let us = |d: Duration| number(d.as_micros() as u64);
                let waited = Duration::from_nanos(batch.begun_ns.saturating_sub(span.begun_ns));
                attributes.extend([
                    KeyValue::new("apportion.batch_size", number(batch.size as u64)),
                    KeyValue::new("apportion.queueing_us", us(waited.saturating_sub(batch.wait))),
                    KeyValue::new("apportion.batch_wait_us", us(batch.wait)),
                    KeyValue::new("apportion.execution_us", us(batch.execution)),
                ]);
            }
            (format!("task {}", visit.task).into(), SpanKind::Server, attributes)
        }
    }
}

/// The span of a request at the gateway, until its answer.
#[derive(Debug)]
pub struct IngressSpan {
    tracer: Arc<Tracer>,
    name: &'static str,
    trace_id: TraceId,
    id: SpanId,
    above: SpanContext,
    begun: SystemTime,
}

impl IngressSpan {
    /// What its queries carry.
    #[must_use]
    pub fn trace(&self) -> TraceContext {
        let id = u128::from_be_bytes(self.trace_id.to_bytes());
        TraceContext { id, parent: u64::from_be_bytes(self.id.to_bytes()) }
    }

    /// The request is answered; `error` says why it is refused.
    pub fn end(self, attributes: Vec<KeyValue>, error: Option<String>) {
        let above = self.above;
        let (is_remote, id) = (above.is_valid(), above.span_id());
        self.tracer.end(SpanData {
            span_context: context(self.trace_id, self.id, above.trace_state().clone()),
            parent_span_id: id,
            parent_span_is_remote: is_remote,
            span_kind: SpanKind::Server,
            name: Cow::Borrowed(self.name),
            start_time: self.begun,
            end_time: SystemTime::now(),
            attributes,
            dropped_attributes_count: 0,
            events: Default::default(),
            links: Default::default(),
            status: status(error),
            instrumentation_scope: self.tracer.scope.clone(),
        });
    }
}
