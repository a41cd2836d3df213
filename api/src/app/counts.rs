//! How often did this process fail or refuse something since its start?

use std::sync::atomic::{AtomicU64, Ordering};

/// A count that only rises.
pub struct Count {
    name: &'static str,
    help: &'static str,
    value: AtomicU64,
}

impl Count {
    const fn new(name: &'static str, help: &'static str) -> Self {
        Self { name, help, value: AtomicU64::new(0) }
    }

    /// Its name in the metrics, without prefix.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Its meaning in one sentence.
    #[must_use]
    pub fn help(&self) -> &'static str {
        self.help
    }

    /// Its value.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.value.load(Ordering::Relaxed)
    }

    /// Adds one.
    pub(crate) fn increment(&self) {
        self.value.fetch_add(1, Ordering::Relaxed);
    }
}

/// Panics of planners, checker and estimator.
pub static PANICS: Count = Count::new("planner_panics_total", "Panics of planners, checker and estimator.");
/// Jobs whose worker let the lease expire.
pub static DEATHS: Count = Count::new("job_deaths_total", "Jobs taken over from a worker that is silent.");
/// Planners that did not stop in time when they were cancelled.
pub static ABANDONED: Count = Count::new("jobs_abandoned_total", "Planners that did not stop when they were told to.");
/// Steps of jobs that were tried again because the database was unavailable.
pub static RETRIES: Count = Count::new("job_retries_total", "Steps of jobs tried again since the database was away.");

/// Requests without a token, where one is required.
pub static WITHOUT_TOKEN: Count = Count::new("requests_without_token_total", "Requests refused for lack of a token.");
/// Requests with a token that is unknown, wrong, expired or revoked.
pub static WRONG_TOKEN: Count =
    Count::new("requests_wrong_token_total", "Requests refused for a token that does not count.");
/// Requests whose token does not allow the operation.
pub static OUT_OF_SCOPE: Count = Count::new("requests_out_of_scope_total", "Requests that their token does not allow.");
/// Requests that a browser sent for another site.
pub static OTHER_SITE: Count =
    Count::new("requests_other_site_total", "Requests that another site sent through a browser.");
/// Requests of a client that has sent too many.
pub static OVER_RATE: Count =
    Count::new("requests_over_rate_total", "Requests refused since their client has sent too many.");
/// Connections on which TLS did not begin.
pub static TLS_REFUSED: Count = Count::new("tls_refused_total", "Connections of HTTP on which TLS did not begin.");

/// Certificates that agents got.
pub static CERTIFICATES: Count = Count::new("agent_certificates_issued_total", "Certificates that agents got.");
/// Agents without a certificate, where one is required.
pub static WITHOUT_CERTIFICATE: Count =
    Count::new("agents_without_certificate_total", "Streams and files refused for lack of a certificate.");
/// Agents with a certificate that is expired, malformed, or of another authority.
pub static UNTRUSTED_CERTIFICATES: Count =
    Count::new("agents_untrusted_certificate_total", "Refusals of expired certificates, and those of other authorities.");
/// Agents with a certificate of another agent.
pub static OTHER_CERTIFICATES: Count =
    Count::new("agents_other_certificate_total", "Streams refused since their certificate is of another agent.");
/// Agents with a certificate of a deleted agent.
pub static REVOKED_CERTIFICATES: Count =
    Count::new("agents_revoked_certificate_total", "Streams refused since the agent of their certificate was deleted.");

/// All counts.
pub static ALL: [&Count; 15] = [
    &PANICS,
    &DEATHS,
    &ABANDONED,
    &RETRIES,
    &WITHOUT_TOKEN,
    &WRONG_TOKEN,
    &OUT_OF_SCOPE,
    &OTHER_SITE,
    &OVER_RATE,
    &TLS_REFUSED,
    &CERTIFICATES,
    &WITHOUT_CERTIFICATE,
    &UNTRUSTED_CERTIFICATES,
    &OTHER_CERTIFICATES,
    &REVOKED_CERTIFICATES,
];
