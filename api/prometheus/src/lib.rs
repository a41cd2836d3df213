//! Which number does a Prometheus answer to a query, and how old is it?
//!
//! Example: `sum(rate(nv_inference_request_success[1m]))` is 61.3 per second, from samples that are 4 s old. An answer that
//! is no such number is an error: no series, several series, NaN, a negative number, or samples that are too old. It never
//! becomes zero.
//!
//! What belongs here: the instant queries of the HTTP API (`/api/v1/query`), their bounds, and the age of their samples.
//! What never does: the meaning of a number for a plan. The commonest addition is a check of an answer: a variant of
//! [`QueryFailure`], and a row in the tests of [`answer`].

pub mod answer;
mod client;
mod failure;
pub mod limits;
mod server;
mod source_series;

pub use client::{PrometheusClient, Reading, SampleAge};
pub use failure::{QueryError, QueryFailure, ServerError};
pub use server::{BearerToken, PrometheusServer, origin};
pub use source_series::source_series;
