//! How are names, conditions and bodies of requests read within their bounds?

use super::refusal::{HandlerResult, Refusal};
use super::weight::{WeightError, weigh};
use crate::store::{Condition, Deletion};
use actix_web::dev::Payload;
use actix_web::error::PayloadError;
use actix_web::http::StatusCode;
use actix_web::http::header::{self, ETag, EntityTag};
use actix_web::web::{self, Bytes, BytesMut};
use actix_web::{FromRequest, HttpRequest, HttpResponse, HttpResponseBuilder};
use futures::StreamExt;
use futures::future::LocalBoxFuture;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use utoipa::{IntoParams, ToSchema};

/// Largest JSON document: a problem, a spec, a profile.
pub const DOCUMENT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Largest trace: about ten million arrivals.
pub const TRACE_BYTES_MAX: usize = 128 * 1024 * 1024;
/// Largest model file.
pub const FILE_BYTES_MAX: u64 = 8 * 1024 * 1024 * 1024;
/// Longest name.
pub const NAME_CHARS_MAX: usize = 128;
/// Most bytes of all bodies that are in memory at a time.
pub const BODIES_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Most bytes of one parsed JSON document, and of all large ones at a time.
pub const TREES_BYTES_MAX: usize = 128 * 1024 * 1024;
/// A tree up to this size is parsed at once: it does not wait for room, and it takes its thread for a moment only.
const SMALL_TREE_BYTES: usize = 512 * 1024;
/// How long a large document waits for room.
const TREE_WAIT: Duration = Duration::from_secs(20);
/// Bodies and trees are counted in this unit.
const UNIT_BYTES: usize = 1024;

/// What all requests of one service share: room for bodies and for trees.
pub struct BodyMemory {
    bodies: Arc<Semaphore>,
    trees: Arc<Semaphore>,
}

impl Default for BodyMemory {
    fn default() -> Self {
        let room = |bytes: usize| Arc::new(Semaphore::new(bytes / UNIT_BYTES));
        Self { bodies: room(BODIES_BYTES_MAX), trees: room(TREES_BYTES_MAX) }
    }
}

fn rooms(request: &HttpRequest) -> &BodyMemory {
    request.app_data::<web::Data<BodyMemory>>().expect("the server gives every request its rooms")
}

fn units(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX)
}

/// A complete body. It holds its room until it is dropped.
pub struct Body<const BYTES_MAX: usize> {
    /// Its bytes.
    pub bytes: Bytes,
    _room: Option<OwnedSemaphorePermit>,
}

impl<const BYTES_MAX: usize> FromRequest for Body<BYTES_MAX> {
    type Error = Refusal;
    type Future = LocalBoxFuture<'static, Result<Self, Refusal>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let bodies = rooms(request).bodies.clone();
        let announced = request.headers().get(header::CONTENT_LENGTH).and_then(|l| l.to_str().ok()?.parse::<u64>().ok());
        let payload = payload.take();
        Box::pin(read(payload, announced.unwrap_or(0), BYTES_MAX, bodies))
    }
}

async fn read<const BYTES_MAX: usize>(
    mut payload: Payload,
    announced: u64,
    bytes_max: usize,
    bodies: Arc<Semaphore>,
) -> Result<Body<BYTES_MAX>, Refusal> {
    let too_large = || {
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, format!("the body is too large: expected at most {bytes_max} bytes"))
    };
    if announced > bytes_max as u64 {
        return Err(too_large());
    }
    let (mut bytes, mut room) = (BytesMut::new(), None::<OwnedSemaphorePermit>);
    while let Some(chunk) = payload.next().await {
        let chunk = chunk.map_err(broken)?;
        if bytes.len() + chunk.len() > bytes_max {
            return Err(too_large());
        }
        let more = units(bytes.len() + chunk.len()) - units(bytes.len());
        let more = bodies.clone().try_acquire_many_owned(more).map_err(|_| busy("other bodies"))?;
        match &mut room {
            Some(room) => room.merge(more),
            None => room = Some(more),
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(Body { bytes: bytes.freeze(), _room: room })
}

fn busy(with: &str) -> Refusal {
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, format!("there is no room beside {with}: try again in a few seconds"))
}

/// The refusal if a body could not be read to its end.
#[must_use]
pub fn broken(error: PayloadError) -> Refusal {
    match error {
        PayloadError::Io(error) if error.kind() == std::io::ErrorKind::TimedOut => {
            Refusal::new(StatusCode::REQUEST_TIMEOUT, format!("the body came too slowly: {error}"))
        }
        error => Refusal::new(StatusCode::BAD_REQUEST, format!("the body broke off: {error}")),
    }
}

/// A parsed JSON document. It holds its room until it is dropped.
pub struct Document {
    /// Its text.
    pub bytes: Bytes,
    /// Its tree.
    pub tree: Value,
    _body: Body<DOCUMENT_BYTES_MAX>,
    _room: Option<OwnedSemaphorePermit>,
}

impl FromRequest for Document {
    type Error = Refusal;
    type Future = LocalBoxFuture<'static, Result<Self, Refusal>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let trees = rooms(request).trees.clone();
        let checked = check_json_type(request);
        let body = Body::<DOCUMENT_BYTES_MAX>::from_request(request, payload);
        Box::pin(async move {
            checked?;
            parse(body.await?, trees).await
        })
    }
}

/// Refuses a body that is not called JSON. A page of another site can make a browser send other types without asking.
fn check_json_type(request: &HttpRequest) -> Result<(), Refusal> {
    let content = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = content.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if media_type == "application/json" || (media_type.starts_with("application/") && media_type.ends_with("+json")) {
        return Ok(());
    }
    let detail = format!("Content-Type: {content:?}: expected application/json");
    Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail))
}

/// Parses a body. A large tree waits for room, and is parsed on a thread that answers no requests.
async fn parse(body: Body<DOCUMENT_BYTES_MAX>, trees: Arc<Semaphore>) -> Result<Document, Refusal> {
    let bytes = body.bytes.clone();
    // A short text is weighed quickly, whatever its tree.
    let (weight, tree) = if bytes.len() <= SMALL_TREE_BYTES {
        let weight = weighed(&bytes)?;
        (weight, if weight <= SMALL_TREE_BYTES { Some(grown(&bytes)?) } else { None })
    } else {
        let text = bytes.clone();
        (off_loop(move || weighed(&text)).await??, None)
    };
    if let Some(tree) = tree {
        return Ok(Document { bytes, tree, _body: body, _room: None });
    }
    let room = tokio::time::timeout(TREE_WAIT, trees.acquire_many_owned(units(weight))).await;
    let room = room.ok().and_then(Result::ok).ok_or_else(|| busy("other large documents"))?;
    let text = bytes.clone();
    let tree = off_loop(move || grown(&text)).await??;
    Ok(Document { bytes, tree, _body: body, _room: Some(room) })
}

fn weighed(bytes: &Bytes) -> Result<usize, Refusal> {
    weigh(bytes, TREES_BYTES_MAX).map_err(|error| match error {
        WeightError::Syntax(error) => no_json(&error),
        WeightError::Heavy => Refusal::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the body's values take more than {TREES_BYTES_MAX} bytes of memory: expected fewer values"),
        ),
        WeightError::Nul => Refusal::value("", "a text of the body holds the character U+0000: expected texts without it"),
    })
}

fn no_json(error: &serde_json::Error) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, format!("the body is no JSON: {error}"))
}

fn grown(bytes: &Bytes) -> Result<Value, Refusal> {
    serde_json::from_slice(bytes).map_err(|error| no_json(&error))
}

/// Runs slow work on a thread that answers no requests.
///
/// # Errors
/// 500 if it panicked.
pub async fn off_loop<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Refusal> {
    web::block(work).await.map_err(|error| {
        tracing::error!(%error, "reading a request broke down");
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "reading the request broke down; the service's log says where")
    })
}

/// The tree as a value of type `T`.
///
/// # Errors
/// 422 if it has another form; the message names the key.
pub fn value<T: DeserializeOwned>(tree: Value) -> Result<T, Refusal> {
    serde_json::from_value(tree).map_err(|error| Refusal::value("", error.to_string()))
}

/// The body as text.
///
/// # Errors
/// 400 if it is no UTF-8, 422 if it holds U+0000.
pub fn text(body: &Bytes) -> Result<&str, Refusal> {
    let text = std::str::from_utf8(body)
        .map_err(|error| Refusal::new(StatusCode::BAD_REQUEST, format!("the body is no UTF-8: {error}")))?;
    match text.contains('\0') {
        true => Err(Refusal::value("", "the body holds the character U+0000: expected text without it")),
        false => Ok(text),
    }
}

/// Refuses a name that is empty, too long, or has control characters.
///
/// # Errors
/// 422 if the name is refused.
pub fn name(name: &str) -> Result<(), Refusal> {
    if name.is_empty() || name.chars().count() > NAME_CHARS_MAX || name.chars().any(char::is_control) {
        return Err(Refusal::value(
            "/name",
            format!("expected a name of 1 to {NAME_CHARS_MAX} characters without control characters"),
        ));
    }
    Ok(())
}

/// The `{name}` of a path.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub struct Name {
    /// The name: 1 to 128 characters without control characters.
    #[param(min_length = 1, max_length = 128, pattern = r"^[^\x00-\x1F\x7F-\x9F]+$")]
    pub name: String,
}

impl FromRequest for Name {
    type Error = Refusal;
    type Future = Ready<Result<Self, Refusal>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let found = actix_web::web::Path::<Self>::from_request(request, &mut Payload::None).into_inner();
        let missing = |error| Refusal::new(StatusCode::NOT_FOUND, format!("{}: {error}", request.path()));
        ready(found.map_err(missing).and_then(|found| name(&found.name).map(|()| found.into_inner())))
    }
}

/// The header `If-Match`, as the description has it.
#[derive(Clone, Debug, IntoParams)]
#[into_params(parameter_in = Header)]
#[allow(dead_code)] // read by `Condition`, below
pub struct IfMatch {
    /// Do it only if the resource has one of these versions: entity tags from `ETag`, such as `"3"`, or `*` for any
    /// version. The statement that writes checks it.
    #[param(rename = "If-Match", required = false, value_type = String, example = "\"3\"")]
    pub if_match: Option<String>,
}

/// The header `If-None-Match` of a write, as the description has it.
#[derive(Clone, Debug, IntoParams)]
#[into_params(parameter_in = Header)]
#[allow(dead_code)] // read by `Condition`, below
pub struct IfNoneMatch {
    /// `*`: do it only if the resource is not there. The statement that writes checks it.
    #[param(rename = "If-None-Match", required = false, inline, value_type = AnyVersion, example = "*")]
    pub if_none_match: Option<String>,
}

/// The text `*` alone, as the description has it.
#[derive(ToSchema)]
#[allow(dead_code)] // read by `Condition`, below
enum AnyVersion {
    #[schema(rename = "*")]
    Any,
}

impl FromRequest for Condition {
    type Error = Refusal;
    type Future = Ready<Result<Self, Refusal>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let lines = |name: header::HeaderName| request.headers().get_all(name).map(header::HeaderValue::as_bytes);
        ready(unless_there(condition(lines(header::IF_MATCH)), lines(header::IF_NONE_MATCH)))
    }
}

/// The condition with the lines of `If-None-Match`. Both headers at once match nothing.
fn unless_there<'h>(asked: Condition, mut lines: impl Iterator<Item = &'h [u8]>) -> Result<Condition, Refusal> {
    match lines.next().map(<[u8]>::trim_ascii) {
        None => Ok(asked),
        Some(b"*") if asked == Condition::Any => Ok(Condition::Absent),
        Some(b"*") => Ok(Condition::Versions(Vec::new())),
        Some(_) => Err(Refusal::new(StatusCode::BAD_REQUEST, "If-None-Match: expected * in a request that writes")),
    }
}

/// The condition of the lines of `If-Match`. The service's tags are numbers; another tag, or a broken one, matches nothing.
fn condition<'h>(lines: impl Iterator<Item = &'h [u8]>) -> Condition {
    let mut versions = None;
    for line in lines {
        let versions: &mut Vec<i64> = versions.get_or_insert_default();
        for tag in line.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
            if tag == b"*" {
                return Condition::Exists;
            }
            let number = tag.strip_prefix(b"\"").and_then(|tag| tag.strip_suffix(b"\""));
            versions.extend(number.and_then(|n| std::str::from_utf8(n).ok()?.parse::<i64>().ok()));
        }
    }
    versions.map_or(Condition::Any, Condition::Versions)
}

/// The header that names a version of a resource.
#[must_use]
pub fn version_tag(version: i64) -> ETag {
    ETag(EntityTag::new_strong(version.to_string()))
}

/// The refusal if the resource has another version than the client has seen.
fn other_version(what: &str) -> Refusal {
    let detail = format!(
        "If-Match, If-None-Match: {what} is of another version by now, not there, or there already: read it again first"
    );
    Refusal::new(StatusCode::PRECONDITION_FAILED, detail)
}

/// The answer to a write with a condition, without its body: 201 for the first version, else 200, and the version in
/// `ETag`.
///
/// # Errors
/// 412 without a version: the condition did not hold, and nothing was written.
pub fn written(version: Option<i64>, what: &str) -> Result<HttpResponseBuilder, Refusal> {
    let version = version.ok_or_else(|| other_version(what))?;
    let mut response = if version == 1 { HttpResponse::Created() } else { HttpResponse::Ok() };
    response.insert_header(version_tag(version));
    Ok(response)
}

/// The answer to a deletion with a condition: 204.
///
/// # Errors
/// 404 if the resource was not there, 412 if the condition did not hold.
pub fn deleted(deletion: Deletion, what: &str) -> HandlerResult {
    match deletion {
        Deletion::Done => Ok(HttpResponse::NoContent().finish()),
        Deletion::Missing => Err(Refusal::not_found(what)),
        Deletion::OtherVersion => Err(other_version(what)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_may_ask_for_an_empty_place() {
        let of = |asked: Condition, lines: &[&str]| unless_there(asked, lines.iter().map(|line| line.as_bytes()));
        assert_eq!(of(Condition::Any, &[]), Ok(Condition::Any));
        assert_eq!(of(Condition::Any, &[" * "]), Ok(Condition::Absent));
        assert_eq!(of(Condition::Exists, &["*"]), Ok(Condition::Versions(vec![])), "both at once is nothing");
        assert_eq!(of(Condition::Any, &["\"3\""]).map_err(|refusal| refusal.status), Err(400));
    }

    #[test]
    fn a_write_answers_with_its_version() {
        let first = written(Some(1), "pipeline p").expect("it was written").finish();
        let tag = first.headers().get(header::ETAG).and_then(|tag| tag.to_str().ok());
        assert_eq!((first.status(), tag), (StatusCode::CREATED, Some("\"1\"")));
        assert_eq!(written(Some(2), "pipeline p").expect("it was written").finish().status(), StatusCode::OK);
        let refused = written(None, "pipeline p").err().expect("the condition did not hold");
        assert_eq!(refused.status, 412);
        assert!(refused.detail.contains("pipeline p"), "{refused}");
    }

    #[test]
    fn a_deletion_answers_with_its_result() {
        let status = |deletion| deleted(deletion, "pipeline p").map_or_else(|r| r.status, |done| done.status().as_u16());
        assert_eq!([Deletion::Done, Deletion::Missing, Deletion::OtherVersion].map(status), [204, 404, 412]);
    }

    #[test]
    fn conditions_are_read_as_entity_tags() {
        let of = |lines: &[&str]| condition(lines.iter().map(|l| l.as_bytes()));
        assert_eq!(of(&[]), Condition::Any);
        assert_eq!(of(&["*"]), Condition::Exists);
        assert_eq!(of(&["\"3\""]), Condition::Versions(vec![3]));
        assert_eq!(of(&["\"3\", \"5\"", "\"8\""]), Condition::Versions(vec![3, 5, 8]));
        for unmatched in ["W/\"3\"", "3", "", "\"x\"", "\"", "\"99999999999999999999\""] {
            assert_eq!(of(&[unmatched]), Condition::Versions(vec![]), "{unmatched}");
        }
    }
}
