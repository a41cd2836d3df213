//! What does Kubernetes' external metrics API (`external.metrics.k8s.io/v1beta1`) ask, and what is it told?
//!
//! A HorizontalPodAutoscaler adds the values of all items up. A number that is not known is an error, and the autoscaler
//! then leaves the replicas as they are. Pipelines have no namespace: the same numbers are in every one.

use crate::board::{Board, DesiredGroup, METRIC, PipelineAdvice, UnknownReplicas, fresh};
use crate::limits::URL_QUERY_BYTES_MAX;
use crate::selector::LabelSelector;
use axum::body::Body;
use axum::http::{Method, Request, Response, StatusCode, header};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::watch;

/// Group and version of the API.
const GROUP_VERSION: &str = "external.metrics.k8s.io/v1beta1";
/// Longest name of a namespace.
const NAMESPACE_BYTES_MAX: usize = 63;

/// A refusal, as Kubernetes writes one.
struct Failure {
    status: StatusCode,
    reason: &'static str,
    message: String,
}

impl Failure {
    fn new(status: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self { status, reason, message: message.into() }
    }

    fn unknown(error: &UnknownReplicas) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", error.to_string())
    }
}

/// Answers a request other than those of gRPC.
pub(crate) fn answer(board: &watch::Receiver<Option<Arc<Board>>>, request: &Request<Body>) -> Response<Body> {
    let found = match *request.method() {
        Method::GET => route(board, request),
        _ => Err(Failure::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", "expected GET")),
    };
    match found {
        Ok(document) => json_response(StatusCode::OK, &document),
        Err(Failure { status, reason, message }) => {
            let document = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": message, "reason": reason, "code": status.as_u16()});
            json_response(status, &document)
        }
    }
}

fn json_response(status: StatusCode, document: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(document.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

fn route(board: &watch::Receiver<Option<Arc<Board>>>, request: &Request<Body>) -> Result<Value, Failure> {
    let path = request.uri().path();
    let nothing = || Failure::new(StatusCode::NOT_FOUND, "NotFound", "expected /apis/external.metrics.k8s.io/v1beta1");
    let rest = path.strip_prefix("/apis/").and_then(|rest| rest.strip_prefix(GROUP_VERSION)).ok_or_else(nothing)?;
    let parts: Vec<&str> = rest.split('/').filter(|part| !part.is_empty()).collect();
    match parts.as_slice() {
        [] => Ok(resources()),
        ["namespaces", namespace, metric] => {
            check_names(namespace, metric)?;
            let selector = selector(request.uri().query().unwrap_or_default())?;
            let board = board.borrow();
            values(fresh(board.as_deref(), Instant::now()).map_err(|e| Failure::unknown(&e))?, &selector)
        }
        _ => Err(nothing()),
    }
}

/// The only metric, as a resource.
fn resources() -> Value {
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": GROUP_VERSION, "resources": [
        {"name": METRIC, "singularName": "", "namespaced": true, "kind": "ExternalMetricValueList", "verbs": ["get"]}]})
}

fn check_names(namespace: &str, metric: &str) -> Result<(), Failure> {
    let is_label = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if namespace.len() > NAMESPACE_BYTES_MAX || !namespace.chars().all(is_label) {
        return Err(Failure::new(StatusCode::BAD_REQUEST, "BadRequest", "expected the name of a namespace"));
    }
    match metric == METRIC {
        true => Ok(()),
        false => Err(Failure::new(StatusCode::NOT_FOUND, "NotFound", format!("expected the metric {METRIC}"))),
    }
}

/// The selector of a URL's query.
fn selector(query: &str) -> Result<LabelSelector, Failure> {
    let bad = |message: String| Failure::new(StatusCode::BAD_REQUEST, "BadRequest", message);
    if query.len() > URL_QUERY_BYTES_MAX {
        return Err(bad(format!("a query of {} bytes: expected at most {URL_QUERY_BYTES_MAX}", query.len())));
    }
    let Some(text) = query.split('&').find_map(|pair| pair.strip_prefix("labelSelector=")) else {
        return Ok(LabelSelector::default());
    };
    let text = text.replace('+', " ");
    let text = percent_decode_str(&text).decode_utf8().map_err(|e| bad(format!("labelSelector is no UTF-8: {e}")))?;
    LabelSelector::parse(&text).map_err(|error| bad(error.to_string()))
}

/// A value for each group that the selector chooses.
fn values(board: &Board, selector: &LabelSelector) -> Result<Value, Failure> {
    let mut items = Vec::new();
    let mut unplanned = None;
    for (pipeline, advice) in &board.pipelines {
        if advice.groups.is_empty() && selector.matches(|key| Some(pipeline.as_str()).filter(|_| key == "pipeline")) {
            unplanned = Some(pipeline);
        }
        items.extend(advice.groups.iter().filter(|g| matches(selector, pipeline, g)).map(|g| item(pipeline, advice, g)));
    }
    match (items.is_empty(), unplanned) {
        (false, _) => Ok(json!({"kind": "ExternalMetricValueList", "apiVersion": GROUP_VERSION, "metadata": {},
            "items": items})),
        (true, Some(pipeline)) => Err(Failure::unknown(&UnknownReplicas::NoAdvice(pipeline.clone()))),
        (true, None) => {
            let message = "no group has these labels: expected pipeline, task, variant and hardware of an advised pipeline";
            Err(Failure::new(StatusCode::NOT_FOUND, "NotFound", message))
        }
    }
}

fn matches(selector: &LabelSelector, pipeline: &str, group: &DesiredGroup) -> bool {
    selector.matches(|key| if key == "pipeline" { Some(pipeline) } else { group.name(key) })
}

fn item(pipeline: &str, advice: &PipelineAdvice, group: &DesiredGroup) -> Value {
    let DesiredGroup { task, variant, hardware, replicas } = group;
    let labels = json!({"pipeline": pipeline, "task": task, "variant": variant, "hardware": hardware});
    json!({"metricName": METRIC, "metricLabels": labels, "timestamp": advice.seen_at, "value": replicas.to_string()})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::board::tests::photos;
    use crate::limits::BOARD_AGE_MAX;

    /// The status, and the values or the message.
    fn ask(board: Option<Board>, method: &str, path: &str) -> (u16, String) {
        let (_sender, receiver) = watch::channel(board.map(Arc::new));
        let request = Request::builder().method(method).uri(path).body(Body::empty()).expect("a request");
        let response = answer(&receiver, &request);
        let status = response.status().as_u16();
        let Ok(document) = (match *request.method() {
            Method::GET => route(&receiver, &request),
            _ => Err(Failure::new(response.status(), "", "")),
        }) else {
            let failure = route(&receiver, &request).err().map(|failure| failure.message).unwrap_or_default();
            return (status, failure);
        };
        let items = document["items"].as_array().into_iter().flatten();
        (status, items.map(|item| item["value"].as_str().expect("text").to_owned()).collect::<Vec<_>>().join(","))
    }

    const METRIC_PATH: &str = "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/apportion_desired_replicas";

    #[test]
    fn groups_are_listed_by_their_labels() {
        let board = || Some(photos(Instant::now()));
        let of = |selector: &str| ask(board(), "GET", &format!("{METRIC_PATH}?labelSelector={selector}"));
        assert_eq!(of("pipeline%3Dphotos%2Cvariant%3Dfind-l"), (200, "2".into()));
        assert_eq!(of("variant+in+(find-s)"), (200, "0,3".into()));
        assert_eq!(ask(board(), "GET", METRIC_PATH), (200, "2,0,3,4".into()));
        assert_eq!(ask(board(), "GET", "/apis/external.metrics.k8s.io/v1beta1").0, 200);
        assert_eq!(of("pipeline%3Dnew"), (503, "pipeline \"new\" has no advice yet".into()));
        assert_eq!(of("variant%3Dfind-x").0, 404);
        assert_eq!(of("variant+of+x").0, 400);
        assert_eq!(of("%FF").0, 400);
        assert_eq!(of(&"x".repeat(URL_QUERY_BYTES_MAX)).0, 400);
    }

    #[test]
    fn unknown_numbers_are_failures() {
        let old = photos(Instant::now().checked_sub(BOARD_AGE_MAX * 2).expect("an uptime of a minute"));
        assert_eq!(ask(Some(old), "GET", METRIC_PATH).0, 503);
        assert_eq!(ask(None, "GET", METRIC_PATH).0, 503);
        let board = || Some(photos(Instant::now()));
        assert_eq!(ask(board(), "GET", "/apis").0, 404);
        assert_eq!(ask(board(), "GET", &METRIC_PATH.replace("desired", "other")).0, 404);
        assert_eq!(ask(board(), "GET", &METRIC_PATH.replace("default", "DEFAULT")).0, 400);
        assert_eq!(ask(board(), "POST", METRIC_PATH).0, 405);
    }
}
