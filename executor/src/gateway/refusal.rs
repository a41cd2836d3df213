//! Why has a request no result? HTTP and gRPC share one list of causes.

use super::bodies::{BODY_GRACE_MAX, BODY_RATE_MIN};
use super::error::{BodyError, InputError, MessageError, PiecesError, RequestedOutputError};
use crate::causes::describe;
use crate::open_inference::error::WriteError;
use apportion_node::chooser::ChosenVariants;
use apportion_node::node::request::{Piece, RequestAnswer};
use apportion_serving::dropper::DropReason;

/// What kind of refusal it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RefusalCause {
    /// The request is wrong.
    Invalid,
    /// No variants do what it needs.
    Unmet,
    /// There is no such pipeline.
    Unknown,
    /// The body is larger than may be.
    TooLarge,
    /// The body came too slowly.
    Slow,
    /// The body is of a kind that is not read here.
    Unreadable,
    /// Too many requests are here already.
    Busy,
    /// No replica is ready, or the agent stops.
    NotReady,
    /// Shed by policy.
    Dropped,
    /// Its deadline has passed.
    Late,
    /// It was begun and went wrong.
    Failed,
}

impl RefusalCause {
    /// All of them.
    pub const ALL: [RefusalCause; 11] = [
        Self::Invalid,
        Self::Unmet,
        Self::Unknown,
        Self::TooLarge,
        Self::Slow,
        Self::Unreadable,
        Self::Busy,
        Self::NotReady,
        Self::Dropped,
        Self::Late,
        Self::Failed,
    ];

    /// Its name in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Unmet => "unmet",
            Self::Unknown => "unknown",
            Self::TooLarge => "too_large",
            Self::Slow => "slow",
            Self::Unreadable => "unreadable",
            Self::Busy => "busy",
            Self::NotReady => "not_ready",
            Self::Dropped => "dropped",
            Self::Late => "late",
            Self::Failed => "failed",
        }
    }

    /// The status of HTTP.
    #[must_use]
    pub const fn http(self) -> u16 {
        match self {
            Self::Invalid => 400,
            Self::Unmet => 422,
            Self::Unknown => 404,
            Self::TooLarge => 413,
            Self::Slow => 408,
            Self::Unreadable => 415,
            Self::Busy => 429,
            Self::NotReady | Self::Dropped => 503,
            Self::Late => 504,
            Self::Failed => 500,
        }
    }

    /// The status of gRPC.
    #[must_use]
    pub const fn grpc(self) -> tonic::Code {
        match self {
            Self::Invalid | Self::TooLarge | Self::Unreadable => tonic::Code::InvalidArgument,
            Self::Unmet => tonic::Code::FailedPrecondition,
            Self::Unknown => tonic::Code::NotFound,
            Self::Busy => tonic::Code::ResourceExhausted,
            Self::NotReady | Self::Dropped => tonic::Code::Unavailable,
            Self::Late | Self::Slow => tonic::Code::DeadlineExceeded,
            Self::Failed => tonic::Code::Internal,
        }
    }

    /// Whether the same request may do well a moment later: the client is told how long to wait.
    #[must_use]
    pub const fn passes(self) -> bool {
        matches!(self, Self::Busy | Self::NotReady | Self::Dropped)
    }
}

/// A refusal as the client sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayRefusal {
    /// What kind it is.
    pub cause: RefusalCause,
    /// What happened; for a wrong request, what is expected.
    pub error: String,
    /// Why, where the error does not say it.
    pub reason: Option<String>,
}

impl GatewayRefusal {
    /// The request is wrong: what is, and what is expected.
    #[must_use]
    pub fn invalid(error: String) -> Self {
        Self { cause: RefusalCause::Invalid, error, reason: None }
    }

    /// Any other, with its reason.
    #[must_use]
    pub fn because(cause: RefusalCause, error: &str, reason: impl Into<String>) -> Self {
        Self { cause, error: error.into(), reason: Some(reason.into()) }
    }

    /// It was begun and went wrong. Clients of the protocol show the error alone, so it says why.
    #[must_use]
    pub fn failed(reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self { cause: RefusalCause::Failed, error: format!("the request failed: {reason}"), reason: Some(reason) }
    }

    /// Too much of something is here already.
    #[must_use]
    pub fn full(reason: impl Into<String>) -> Self {
        Self::because(RefusalCause::Busy, "the gateway is full", reason)
    }

    /// Its body came too slowly.
    #[must_use]
    pub fn slow() -> Self {
        let grace_s = BODY_GRACE_MAX.as_secs();
        let error =
            format!("the body comes too slowly: expected {BODY_RATE_MIN} bytes a second after the first {grace_s} s");
        Self { cause: RefusalCause::Slow, error, reason: None }
    }

    /// Its deadline has passed.
    #[must_use]
    pub fn late(reason: impl Into<String>) -> Self {
        Self::because(RefusalCause::Late, "the request missed its deadline", reason)
    }

    /// The agent stops.
    #[must_use]
    pub fn stopping() -> Self {
        Self { cause: RefusalCause::NotReady, error: "the agent is stopping".into(), reason: None }
    }

    /// Error and reason in one line.
    #[must_use]
    pub fn line(&self) -> String {
        let more = self.reason.as_ref().filter(|reason| !self.error.ends_with(reason.as_str()));
        more.map_or_else(|| self.error.clone(), |reason| format!("{}: {reason}", self.error))
    }
}

// Errors of a client's request: the client reads them with their causes in one line.
macro_rules! invalid {
    ($($error:ty),*) => {$(
        impl From<$error> for GatewayRefusal {
            fn from(error: $error) -> Self {
                Self::invalid(describe(&error))
            }
        }
    )*};
}
invalid!(BodyError, MessageError, InputError, RequestedOutputError, WriteError);

impl From<PiecesError> for GatewayRefusal {
    fn from(error: PiecesError) -> Self {
        Self::failed(describe(&error))
    }
}

/// A request that was served.
#[derive(Debug, PartialEq)]
pub struct ServedRequest {
    /// What the sinks made, in the order of rows and children.
    pub pieces: Vec<Piece>,
    /// After the deadline of the pipeline.
    pub late: bool,
    /// From arrival to answer, in nanoseconds.
    pub latency_ns: u64,
    /// Parts that were dropped and are left out.
    pub dropped: u32,
    /// The variants that served it, if it said what it needs.
    pub chosen: Option<ChosenVariants>,
}

/// The node's answer.
///
/// # Errors
/// Why there is none.
pub fn served(answer: RequestAnswer) -> Result<ServedRequest, GatewayRefusal> {
    Err(match answer {
        RequestAnswer::Done { pieces, late, latency_ns, dropped, chosen } => {
            return Ok(ServedRequest { pieces, late, latency_ns, dropped, chosen });
        }
        // Clients of the protocol show the error alone, and this one says what would be right.
        RequestAnswer::Unmet(why) => GatewayRefusal { cause: RefusalCause::Unmet, error: why, reason: None },
        RequestAnswer::NotReady(why) => GatewayRefusal::because(RefusalCause::NotReady, "the pipeline is not ready", why),
        RequestAnswer::Dropped(why) if why.ends_with(DropReason::Deadline.name()) => GatewayRefusal::late(why),
        RequestAnswer::Dropped(why) => GatewayRefusal::because(RefusalCause::Dropped, "the request was dropped", why),
        RequestAnswer::Failed(why) => GatewayRefusal::failed(why),
        RequestAnswer::TimedOut => GatewayRefusal::late("its timeout has passed"),
        RequestAnswer::ClientGone => GatewayRefusal::failed("its client has gone"),
        RequestAnswer::GivenUp => {
            GatewayRefusal::because(RefusalCause::Late, "the request failed", "parts of it never came back")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_failed_request_names_its_cause() {
        let failed = served(RequestAnswer::Failed("task a: an index is out of range".into())).expect_err("a refusal");
        assert_eq!(
            (failed.cause.http(), failed.error.as_str()),
            (500, "the request failed: task a: an index is out of range")
        );
        assert_eq!(failed.line(), failed.error, "said once");
    }

    #[test]
    fn dropped_requests_may_be_retried_and_late_ones_not() {
        let dropped = |why: &str| served(RequestAnswer::Dropped(why.into())).expect_err("a refusal");
        assert_eq!(dropped("task a: queue_full").cause.http(), 503);
        assert_eq!(dropped("task a: deadline").cause.http(), 504);
        assert_eq!(served(RequestAnswer::TimedOut).expect_err("a refusal").cause.grpc(), tonic::Code::DeadlineExceeded);
        for cause in RefusalCause::ALL {
            assert_eq!(cause.passes(), [429, 503].contains(&cause.http()), "{}", cause.name());
        }
    }
}
