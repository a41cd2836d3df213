//! Which Prometheus does a command line name, and what does it answer?

use crate::args;
use anyhow::Context;
use apportion_prometheus::answer::SeriesSample;
use apportion_prometheus::{BearerToken, PrometheusClient, PrometheusServer, QueryError, Reading, SampleAge, ServerError};
use apportion_support::exit::Failure;
use apportion_support::input;
use apportion_wire::BadInput;
use clap::Args;
use std::time::Duration;

/// The arguments that name a Prometheus.
#[derive(Args, Debug)]
pub struct PrometheusArgs {
    /// The Prometheus that answers the queries, or another server of its HTTP API: http://10.0.0.4:9090.
    #[arg(long, value_name = "URL")]
    prometheus: Option<String>,
    /// File with the bearer token that the server asks for.
    #[arg(long, value_name = "FILE", requires = "prometheus")]
    token_file: Option<String>,
    /// File with the authorities that vouch for an https server, as PEM. Without it: the authorities of this machine.
    #[arg(long, value_name = "FILE", requires = "prometheus")]
    ca: Option<String>,
    /// Time for one answer.
    #[arg(long, default_value = "10s", value_parser = args::duration)]
    timeout: Duration,
    /// Largest age of the samples that a query reads, or `any`: then their age is not asked.
    #[arg(long, value_name = "AGE", default_value = "90s", value_parser = sample_age)]
    age_max: SampleAge,
}

/// Parses the largest age of samples.
fn sample_age(text: &str) -> Result<SampleAge, args::ArgumentError> {
    match text {
        "any" => Ok(SampleAge::Any),
        _ => args::duration(text).map(|age| SampleAge::AtMostSeconds(age.as_secs_f64())),
    }
}

/// A Prometheus that answers.
pub struct MetricsSource {
    client: PrometheusClient,
    runtime: tokio::runtime::Runtime,
    age_max: SampleAge,
}

impl PrometheusArgs {
    /// The Prometheus of the command line, if there is one.
    ///
    /// # Errors
    /// If its URL, its token or its authorities are wrong.
    pub fn connect(&self) -> Result<Option<MetricsSource>, Failure> {
        let Some(url) = &self.prometheus else { return Ok(None) };
        let wrong = |option: &str| {
            let option = option.to_owned();
            move |e: ServerError| Failure::BadInput(format!("{option}: {e}"))
        };
        let token = self.token_file.as_deref().map(|file| {
            let text = input::read_text(file)?;
            BearerToken::parse(&text).map_err(wrong(&format!("--token-file {file}")))
        });
        let server = PrometheusServer {
            url: url.clone(),
            token: token.transpose()?,
            authorities: self.ca.as_deref().map(input::read_bytes).transpose()?,
            timeout: self.timeout,
        };
        let option =
            self.ca.as_ref().map_or_else(|| "--prometheus".to_owned(), |file| format!("--prometheus, --ca {file}"));
        let client = PrometheusClient::new(server).map_err(wrong(&option))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        Ok(Some(MetricsSource { client, runtime: runtime.context("starting the runtime")?, age_max: self.age_max }))
    }
}

impl MetricsSource {
    /// The number of a query with one series. `option` names the query in an error.
    ///
    /// # Errors
    /// If the query has no usable answer.
    pub fn read_one(&self, option: &str, promql: &str) -> Result<Reading<SeriesSample>, Failure> {
        self.runtime.block_on(self.client.read_one(promql, self.age_max)).map_err(|e| failure(option, &e))
    }

    /// The numbers of a query with any series.
    ///
    /// # Errors
    /// If the query has no usable answer.
    pub fn read_all(&self, option: &str, promql: &str) -> Result<Reading<Vec<SeriesSample>>, Failure> {
        self.runtime.block_on(self.client.read_all(promql, self.age_max)).map_err(|e| failure(option, &e))
    }
}

/// A query that may succeed later has broken; another one is wrong.
fn failure(option: &str, error: &QueryError) -> Failure {
    match error.failure.is_temporary() {
        true => Failure::Broken(anyhow::anyhow!("{option}: {error}")),
        false => Failure::BadInput(format!("{option}: {error}")),
    }
}

/// The Prometheus that an option needs.
///
/// # Errors
/// If the command line names none.
pub fn needed<'a>(source: Option<&'a MetricsSource>, option: &str, text: &str) -> Result<&'a MetricsSource, Failure> {
    source.ok_or_else(|| BadInput::one(option, text, "a query without a server", "--prometheus URL beside it").into())
}
