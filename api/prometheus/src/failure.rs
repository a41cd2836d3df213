//! Why is there no number? Messages name the query, the server, the place in the answer, the value, and the right form.

use crate::limits::{ANSWER_BYTES_MAX, QUERY_BYTES_MAX, QUOTED_CHARACTERS_MAX};
use std::time::Duration;

/// Why a server cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address is not that of an HTTP server.
    #[error("{value:?}: expected a URL such as http://10.0.0.4:9090, without a user, a query and a fragment")]
    Url {
        /// The address.
        value: String,
    },
    /// The token cannot be sent.
    #[error("expected a token: one line of 1 to 16,384 visible characters")]
    Token,
    /// The certificates cannot be read.
    #[error("{found}: expected PEM certificates, at most 1 MiB")]
    Certificates {
        /// What was found.
        found: String,
    },
    /// The system has no certificates.
    #[error("this machine has no certificates of authorities, which an https URL needs: name a file of them")]
    NoAuthorities,
    /// TLS cannot be set up.
    #[error("TLS cannot be set up")]
    Tls(#[source] rustls::Error),
}

/// A query without a usable answer.
#[derive(Debug, thiserror::Error)]
#[error("{query}: {server}: {failure}")]
pub struct QueryError {
    /// The query, clipped.
    pub query: String,
    /// The server's URL.
    pub server: String,
    /// The reason.
    pub failure: QueryFailure,
}

/// Why a query has no usable answer.
#[derive(Debug, thiserror::Error)]
pub enum QueryFailure {
    /// The query is empty or too long.
    #[error("{0} bytes: expected a query of 1 to {QUERY_BYTES_MAX} bytes")]
    QueryLength(usize),
    /// No connection, or it broke.
    #[error("cannot be reached ({causes})")]
    Unreachable {
        /// The causes, the nearest first.
        causes: String,
    },
    /// The time is over.
    #[error("has not answered within {0:?}")]
    TimeOut(Duration),
    /// A status other than success.
    #[error("status {status}: {said}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The server's reason, clipped.
        said: String,
    },
    /// The answer is too long.
    #[error("the answer has more than {ANSWER_BYTES_MAX} bytes: expected one number")]
    TooLong,
    /// A value of the answer is wrong.
    #[error("{pointer}: {value}: expected {expected}")]
    Answer {
        /// Place in the answer.
        pointer: String,
        /// The value, clipped.
        value: String,
        /// The right form.
        expected: String,
    },
    /// The samples behind the number are too old.
    #[error("the newest sample of {series} is {age_s:.0} s old: expected at most {age_max_s:.0} s")]
    Stale {
        /// The selector.
        series: String,
        /// Age of its newest sample in seconds.
        age_s: f64,
        /// Largest age in seconds.
        age_max_s: f64,
    },
    /// No scrape has these series any more.
    #[error("{series} has no current sample: its exporter is gone, or was not scraped within Prometheus' lookback")]
    Gone {
        /// The selector.
        series: String,
    },
}

impl QueryFailure {
    /// A wrong value of the answer.
    pub(crate) fn at(pointer: impl Into<String>, value: impl AsRef<str>, expected: impl Into<String>) -> Self {
        Self::Answer { pointer: pointer.into(), value: quoted(value.as_ref()), expected: expected.into() }
    }

    /// Whether the same query may have an answer later: the server or its exporters are at fault, and not the query.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::TimeOut(_) | Self::Stale { .. } | Self::Gone { .. } => true,
            Self::Refused { status, .. } => *status == 429 || (*status >= 500),
            Self::QueryLength(_) | Self::TooLong | Self::Answer { .. } => false,
        }
    }
}

/// A foreign text for a message: one line, clipped, without control characters.
pub(crate) fn quoted(text: &str) -> String {
    let mut line: String = text.chars().take(QUOTED_CHARACTERS_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(QUOTED_CHARACTERS_MAX).is_some() {
        line.push_str("...");
    }
    line.trim().to_owned()
}
