//! Where do the spans of the service go, by the arguments of `apportion serve`?

use crate::args;
use apportion_api::TracesConfig;
use clap::Args;

/// The arguments about spans.
#[derive(Args, Debug)]
pub struct TracesArgs {
    /// Where spans of requests, plans and rounds go: an OTLP endpoint over gRPC, for example http://127.0.0.1:4317
    /// [default: no spans].
    #[arg(long, value_name = "URL", env = "OTEL_EXPORTER_OTLP_ENDPOINT")]
    otlp_endpoint: Option<String>,
    /// How much of the work that does not say whether it is sampled has spans, from 0 to 1.
    #[arg(long, value_name = "PART", env = "OTEL_TRACES_SAMPLER_ARG", default_value_t = 1.0, value_parser = args::gap)]
    trace_ratio: f64,
}

impl TracesArgs {
    /// The configuration. An empty variable of the environment counts as a missing one.
    pub fn read(self) -> Option<TracesConfig> {
        let endpoint = self.otlp_endpoint.filter(|endpoint| !endpoint.is_empty())?;
        Some(TracesConfig { endpoint, ratio: self.trace_ratio })
    }
}
