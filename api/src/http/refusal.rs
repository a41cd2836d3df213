//! Which errors do clients see? Problem documents (RFC 9457).

use crate::act::apply::ApplyError;
use crate::store::{self, WriteStop};
use actix_web::http::StatusCode;
use actix_web::http::header::ContentType;
use actix_web::{HttpResponse, ResponseError};
use apportion_wire::BadInput;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use utoipa::openapi::{ContentBuilder, Ref, RefOr, Response, ResponseBuilder};
use utoipa::{IntoResponses, ToSchema};

/// Media type of problem documents.
pub const MEDIA_TYPE: &str = "application/problem+json";
/// Most refused values listed in one document.
const ERRORS_MAX: usize = 100;

/// One refused value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RefusedValue {
    /// JSON pointer of the value, or a place such as `line 17` in formats without pointers.
    pub pointer: String,
    /// The value, and what would be right.
    pub detail: String,
}

/// Why a request was refused or failed (RFC 9457).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Refusal {
    /// Always `about:blank`: the status gives the kind.
    #[serde(rename = "type")]
    pub kind: String,
    /// The status in words.
    pub title: String,
    /// The HTTP status.
    #[schema(minimum = 400, maximum = 599)]
    pub status: u16,
    /// What happened, for people.
    pub detail: String,
    /// Refused values, if any: at most 100 are listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<RefusedValue>,
}

impl Refusal {
    /// A refusal without values.
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            kind: "about:blank".into(),
            title: status.canonical_reason().unwrap_or("Error").into(),
            status: status.as_u16(),
            detail: detail.into(),
            errors: Vec::new(),
        }
    }

    /// The resource does not exist.
    pub fn not_found(what: impl fmt::Display) -> Self {
        Self::new(StatusCode::NOT_FOUND, format!("there is no {what}"))
    }

    /// The body has the right form, and an impossible value at `pointer`.
    pub fn value(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        let (pointer, detail) = (pointer.into(), detail.into());
        let mut refusal = Self::new(StatusCode::UNPROCESSABLE_ENTITY, format!("{pointer}: {detail}"));
        refusal.errors.push(RefusedValue { pointer, detail });
        refusal
    }

    /// The same with every pointer below `at`.
    #[must_use]
    pub fn below(mut self, at: &str) -> Self {
        self.errors.iter_mut().filter(|e| e.pointer.is_empty() || e.pointer.starts_with('/')).for_each(|e| {
            e.pointer.insert_str(0, at);
        });
        self
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.status, self.title, self.detail)
    }
}

impl ResponseError for Refusal {
    fn status_code(&self) -> StatusCode {
        StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    fn error_response(&self) -> HttpResponse {
        let body = serde_json::to_string(self).expect("a problem document is JSON");
        let mut response = HttpResponse::build(self.status_code());
        response.insert_header(ContentType("application/problem+json".parse().expect("a media type")));
        response.body(body)
    }
}

impl From<BadInput> for Refusal {
    fn from(bad: BadInput) -> Self {
        let total = bad.problems.len();
        let mut refusal =
            Self::new(StatusCode::UNPROCESSABLE_ENTITY, format!("{total} values of {} are refused", bad.file));
        if total == 1 {
            refusal.detail = bad.to_string();
        }
        let value = |p: &apportion_domain::Invalid| RefusedValue {
            pointer: p.pointer.clone(),
            detail: format!("{}: expected {}", p.value, p.expected),
        };
        refusal.errors = bad.problems.iter().take(ERRORS_MAX).map(value).collect();
        refusal
    }
}

impl From<store::Error> for Refusal {
    fn from(error: store::Error) -> Self {
        tracing::error!(%error, "the database did not answer a request");
        let status = match store::is_unavailable(&error) {
            true => StatusCode::SERVICE_UNAVAILABLE,
            false => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let detail = match WriteStop::of(&error) {
            Some(WriteStop::ReadOnly) => "the database is read-only, so nothing was changed: try again once it is writable",
            Some(WriteStop::DiskFull) => {
                "the disk of the database is full, so nothing was changed: try again once it has room"
            }
            None => "the database did not answer; the service's log says why",
        };
        Self::new(status, detail)
    }
}

impl From<ApplyError> for Refusal {
    fn from(error: ApplyError) -> Self {
        match error {
            ApplyError::Database(error) => error.into(),
            ApplyError::Document(bad) => bad.into(),
            ApplyError::Held(_) | ApplyError::Quota(_) => Self::new(StatusCode::CONFLICT, error.to_string()),
            ApplyError::LeaseLost(_) => Self::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
            ApplyError::Stale(_) => Self::new(StatusCode::PRECONDITION_FAILED, error.to_string()),
            ApplyError::Plan { .. } | ApplyError::Compose(_) | ApplyError::Tensors { .. } => {
                Self::value("/plans", error.to_string())
            }
            ApplyError::Devices(_) => Self::new(StatusCode::UNPROCESSABLE_ENTITY, error.to_string()),
        }
    }
}

/// The response of a refusal in the OpenAPI document.
pub struct RefusalReply<const STATUS: u16>;

impl<const STATUS: u16> IntoResponses for RefusalReply<STATUS> {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("Refusal"))).build();
        let response = ResponseBuilder::new().description(meaning(STATUS)).content(MEDIA_TYPE, content).build();
        BTreeMap::from([(STATUS.to_string(), response.into())])
    }
}

/// The meaning of a status.
#[must_use]
pub fn meaning(status: u16) -> &'static str {
    match status {
        400 => "The request cannot be read: no JSON, no UTF-8, or a parameter of another form.",
        401 => "The token is missing, unknown, expired or revoked.",
        403 => "The token's scope or project does not allow it, or a browser sent it for another site.",
        404 => "There is no such thing.",
        408 => "The body came too slowly.",
        409 => "What is there does not allow it now.",
        412 => "`If-Match` names no version of what is there, or `If-None-Match` is `*` and it is there.",
        413 => "The body is too large, or holds too many values.",
        415 => "The body is of another media type.",
        416 => "The file has no byte of the range.",
        421 => "The header `Host` has no name of this service.",
        422 => "The request can be read, but says something impossible; `errors` names the places.",
        428 => "`If-Match` is required and missing.",
        429 => "The client has sent too many requests; `Retry-After` says how many seconds it should wait.",
        503 => "The database does not answer, or there is no room for the body now: try again.",
        _ => "A defect of the service, or of its disk; its log says more.",
    }
}

/// The result of a handler.
pub type HandlerResult = Result<HttpResponse, Refusal>;
