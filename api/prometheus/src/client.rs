//! How is a Prometheus asked, and how old is its number?

use crate::answer::{SeriesSample, only_sample, read_refusal, read_samples};
use crate::failure::{QueryError, QueryFailure, ServerError, quoted};
use crate::limits::{ANSWER_BYTES_MAX, QUERY_BYTES_MAX, SELECTORS_MAX};
use crate::server::{PrometheusServer, query_address, tls};
use crate::source_series::source_series;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, LOCATION};
use http::{HeaderValue, Request};
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use std::error::Error;

/// Asks one server.
#[derive(Clone, Debug)]
pub struct PrometheusClient {
    server: PrometheusServer,
    address: String,
    client: Client<HttpsConnector<HttpConnector>, Empty<Bytes>>,
}

/// How old samples may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SampleAge {
    /// Their age is not asked.
    Any,
    /// At most this many seconds.
    AtMostSeconds(f64),
}

/// The answer to a query.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading<T> {
    /// One sample, or all of them.
    pub samples: T,
    /// Age of the samples that the query reads, in seconds: of its selectors, the one with the oldest newest sample. `None`
    /// if it was not asked, or if the query reads no series.
    pub age_s: Option<f64>,
}

impl PrometheusClient {
    /// A client of a server. It connects at the first query.
    ///
    /// # Errors
    /// If the URL or the authorities are wrong.
    pub fn new(server: PrometheusServer) -> Result<Self, ServerError> {
        let address = query_address(&server.url)?;
        let https = HttpsConnectorBuilder::new().with_tls_config(tls(&server)?).https_or_http().enable_http1().build();
        Ok(Self { server, address, client: Client::builder(TokioExecutor::new()).build(https) })
    }

    /// The number of a query with one series.
    ///
    /// # Errors
    /// If there is no answer, another number of series, no number of at least 0, or if its samples are too old.
    pub async fn read_one(&self, promql: &str, age: SampleAge) -> Result<Reading<SeriesSample>, QueryError> {
        let reading = self.read_all(promql, age).await?;
        let samples = only_sample(reading.samples).map_err(|failure| self.error(promql, failure))?;
        Ok(Reading { samples, age_s: reading.age_s })
    }

    /// The numbers of a query with any series.
    ///
    /// # Errors
    /// As [`Self::read_one`].
    pub async fn read_all(&self, promql: &str, age: SampleAge) -> Result<Reading<Vec<SeriesSample>>, QueryError> {
        let all = async {
            let samples = self.samples(promql).await?;
            let evaluated_at_s = samples.iter().map(|s| s.evaluated_at_s).fold(f64::MAX, f64::min);
            let age_s = match age {
                // An answer without a series has an error of its own.
                SampleAge::AtMostSeconds(age_max_s) if !samples.is_empty() => {
                    self.age_s(promql, evaluated_at_s, age_max_s).await?
                }
                _ => None,
            };
            Ok(Reading { samples, age_s })
        };
        // One time limit for all requests together.
        let limit = self.server.timeout;
        let done = tokio::time::timeout(limit, all).await.unwrap_or(Err(QueryFailure::TimeOut(limit)));
        done.map_err(|failure| self.error(promql, failure))
    }

    fn error(&self, promql: &str, failure: QueryFailure) -> QueryError {
        QueryError { query: quoted(promql), server: self.server.url.clone(), failure }
    }

    /// The age of the samples that an expression reads, by Prometheus' clock alone. An old answer of a cache counts too:
    /// its evaluation lies before that of the age.
    async fn age_s(&self, promql: &str, evaluated_at_s: f64, age_max_s: f64) -> Result<Option<f64>, QueryFailure> {
        let mut oldest = None;
        for series in source_series(promql).into_iter().take(SELECTORS_MAX) {
            let newest = self.samples(&format!("max(timestamp({series}))")).await?;
            let Ok(newest) = only_sample(newest) else { return Err(QueryFailure::Gone { series: quoted(&series) }) };
            let cached_s = (newest.evaluated_at_s - evaluated_at_s).max(0.0);
            let age_s = (newest.evaluated_at_s - newest.value).max(cached_s);
            if age_s > age_max_s {
                return Err(QueryFailure::Stale { series: quoted(&series), age_s, age_max_s });
            }
            oldest = Some(age_s.max(oldest.unwrap_or(0.0)));
        }
        Ok(oldest)
    }

    async fn samples(&self, promql: &str) -> Result<Vec<SeriesSample>, QueryFailure> {
        read_samples(&self.ask(promql).await?)
    }

    /// The body of a successful answer.
    async fn ask(&self, promql: &str) -> Result<Bytes, QueryFailure> {
        if promql.trim().is_empty() || promql.len() > QUERY_BYTES_MAX {
            return Err(QueryFailure::QueryLength(promql.len()));
        }
        let uri = format!("{}?query={}", self.address, utf8_percent_encode(promql, NON_ALPHANUMERIC));
        let mut request = Request::get(uri).header(ACCEPT, HeaderValue::from_static("application/json"));
        if let Some(token) = &self.server.token {
            request = request.header(AUTHORIZATION, token.header());
        }
        let request = request.body(Empty::new()).map_err(|e| unreachable(&e))?;
        let response = self.client.request(request).await.map_err(|e| unreachable(&e))?;
        let status = response.status();
        let elsewhere = response.headers().get(LOCATION).map(|to| quoted(&String::from_utf8_lossy(to.as_bytes())));
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX)
            .collect()
            .await
            .map_err(|e| if e.is::<LengthLimitError>() { QueryFailure::TooLong } else { unreachable(e.as_ref()) })?;
        let body = body.to_bytes();
        if status.is_success() {
            return Ok(body);
        }
        let said = match elsewhere {
            Some(to) => format!("the server redirects to {to}: expected its own URL"),
            None => read_refusal(&body),
        };
        Err(QueryFailure::Refused { status: status.as_u16(), said })
    }
}

/// The causes of a failure, in one line.
fn unreachable(error: &(dyn Error + 'static)) -> QueryFailure {
    let (mut causes, mut next) = (String::new(), Some(error));
    while let Some(cause) = next {
        let colon = if causes.is_empty() { "" } else { ": " };
        causes += &format!("{colon}{cause}");
        next = cause.source();
    }
    QueryFailure::Unreachable { causes: quoted(&causes) }
}
