//! What does KEDA ask (`ExternalScaler`), and what is it told?

use crate::board::{Board, DesiredReplicas, GroupQuery, METRIC, UnknownReplicas, fresh};
use crate::limits::{METADATA_BYTES_MAX, METADATA_KEYS_MAX, PING_EVERY, STREAMS_MAX};
use crate::proto::external_scaler_server::ExternalScaler;
use crate::proto::{
    GetMetricSpecResponse, GetMetricsRequest, GetMetricsResponse, IsActiveResponse, MetricSpec, MetricValue,
    ScaledObjectRef,
};
use futures::Stream;
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tonic::{Code, Request, Response, Status};

/// Keys of a trigger that KEDA reads itself and passes on.
const KEDA_KEYS: [&str; 4] = ["scalerAddress", "enableTLS", "unsafeSsl", "tlsCertFile"];
/// Our keys of a trigger.
const KEYS: &str = "pipeline, task, variant and hardware";

/// Answers KEDA from the board.
pub(crate) struct KedaScaler {
    board: watch::Receiver<Option<Arc<Board>>>,
    streams: Arc<Semaphore>,
}

impl KedaScaler {
    pub(crate) fn new(board: watch::Receiver<Option<Arc<Board>>>) -> Self {
        Self { board, streams: Arc::new(Semaphore::new(STREAMS_MAX)) }
    }

    fn desired(&self, object: &ScaledObjectRef) -> Result<DesiredReplicas, Status> {
        let query = query_of(&object.scaler_metadata)?;
        desired(self.board.borrow().as_deref(), &query)
    }
}

fn desired(board: Option<&Board>, query: &GroupQuery) -> Result<DesiredReplicas, Status> {
    let now = Instant::now();
    let found = fresh(board, now).and_then(|board| board.desired(query, now));
    found.map_err(|error| Status::new(code(&error), error.to_string()))
}

fn code(error: &UnknownReplicas) -> Code {
    match error {
        UnknownReplicas::NoBoard | UnknownReplicas::OldBoard { .. } | UnknownReplicas::NoAdvice(_) => Code::Unavailable,
        UnknownReplicas::Pipeline { .. } | UnknownReplicas::Group { .. } => Code::NotFound,
    }
}

/// The query of a trigger's metadata.
fn query_of(metadata: &HashMap<String, String>) -> Result<GroupQuery, Status> {
    let wrong = |said: String| Status::invalid_argument(format!("metadata: {said}"));
    if metadata.len() > METADATA_KEYS_MAX {
        return Err(wrong(format!("{} keys: expected at most {METADATA_KEYS_MAX}", metadata.len())));
    }
    let mut query = GroupQuery::default();
    for (key, value) in metadata {
        if key.len() > METADATA_BYTES_MAX || value.len() > METADATA_BYTES_MAX {
            let bytes = key.len().max(value.len());
            return Err(wrong(format!("a key or value of {bytes} bytes: expected at most {METADATA_BYTES_MAX}")));
        }
        match key.as_str() {
            "pipeline" => query.pipeline.clone_from(value),
            "task" => query.task = Some(value.clone()),
            "variant" => query.variant = Some(value.clone()),
            "hardware" => query.hardware = Some(value.clone()),
            key if KEDA_KEYS.contains(&key) => {}
            key => return Err(wrong(format!("{key:?}: expected only the keys {KEYS}"))),
        }
    }
    match query.pipeline.is_empty() {
        true => Err(wrong(format!("no pipeline: expected the key pipeline, of the keys {KEYS}"))),
        false => Ok(query),
    }
}

/// An answer with the age of the demand in its headers.
fn with_age<T>(message: T, desired: &DesiredReplicas) -> Response<T> {
    let mut response = Response::new(message);
    let headers = response.metadata_mut();
    let age = format!("{:.3}", desired.demand_age.as_secs_f64());
    headers.insert("apportion-demand-age-seconds", age.parse().expect("a number is ASCII"));
    let state = if desired.held.is_some() { "held" } else { "current" };
    headers.insert("apportion-advice", tonic::metadata::MetadataValue::from_static(state));
    response
}

#[tonic::async_trait]
impl ExternalScaler for KedaScaler {
    async fn is_active(&self, request: Request<ScaledObjectRef>) -> Result<Response<IsActiveResponse>, Status> {
        let desired = self.desired(request.get_ref())?;
        Ok(with_age(IsActiveResponse { result: desired.replicas > 0 }, &desired))
    }

    type StreamIsActiveStream = Pin<Box<dyn Stream<Item = Result<IsActiveResponse, Status>> + Send>>;

    async fn stream_is_active(
        &self,
        request: Request<ScaledObjectRef>,
    ) -> Result<Response<Self::StreamIsActiveStream>, Status> {
        let query = query_of(&request.get_ref().scaler_metadata)?;
        let full = |_| Status::resource_exhausted(format!("{STREAMS_MAX} streams are open: expected fewer"));
        let permit = self.streams.clone().try_acquire_owned().map_err(full)?;
        let first = desired(self.board.borrow().as_deref(), &query)?;
        let pushes = Pushes { board: self.board.clone(), query, told: None, ended: false, _permit: permit };
        let stream = futures::stream::unfold(pushes, |mut pushes| async move {
            let pushed = pushes.next().await?;
            Some((pushed, pushes))
        });
        Ok(with_age(Box::pin(stream) as Self::StreamIsActiveStream, &first))
    }

    async fn get_metric_spec(&self, request: Request<ScaledObjectRef>) -> Result<Response<GetMetricSpecResponse>, Status> {
        // It needs no board: KEDA makes its autoscaler also while the numbers are unknown.
        query_of(&request.get_ref().scaler_metadata)?;
        let spec = MetricSpec { metric_name: METRIC.to_owned(), target_size: 1, target_size_float: 1.0 };
        Ok(Response::new(GetMetricSpecResponse { metric_specs: vec![spec] }))
    }

    async fn get_metrics(&self, request: Request<GetMetricsRequest>) -> Result<Response<GetMetricsResponse>, Status> {
        let request = request.into_inner();
        if request.metric_name != METRIC {
            let found: String = request.metric_name.chars().take(METADATA_BYTES_MAX).collect();
            return Err(Status::not_found(format!("metric {found:?}: expected {METRIC}")));
        }
        let object = request.scaled_object_ref.ok_or_else(|| Status::invalid_argument("no scaledObjectRef"))?;
        let desired = self.desired(&object)?;
        let value = MetricValue {
            metric_name: METRIC.to_owned(),
            metric_value: i64::from(desired.replicas),
            metric_value_float: f64::from(desired.replicas),
        };
        Ok(with_age(GetMetricsResponse { metric_values: vec![value] }, &desired))
    }
}

/// One push stream.
struct Pushes {
    board: watch::Receiver<Option<Arc<Board>>>,
    query: GroupQuery,
    told: Option<bool>,
    ended: bool,
    _permit: OwnedSemaphorePermit,
}

impl Pushes {
    /// The next change. An error ends the stream: KEDA opens another one later and leaves the replicas alone meanwhile.
    async fn next(&mut self) -> Option<Result<IsActiveResponse, Status>> {
        while !self.ended {
            let found = desired(self.board.borrow_and_update().as_deref(), &self.query);
            match found {
                Err(status) => {
                    self.ended = true;
                    return Some(Err(status));
                }
                Ok(desired) if self.told != Some(desired.replicas > 0) => {
                    self.told = Some(desired.replicas > 0);
                    return Some(Ok(IsActiveResponse { result: desired.replicas > 0 }));
                }
                Ok(_) => {}
            }
            // Without a new board the old one becomes too old. The service ends with its last board.
            if let Ok(Err(_gone)) = tokio::time::timeout(PING_EVERY, self.board.changed()).await {
                self.ended = true;
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::board::PipelineAdvice;
    use crate::board::tests::photos;
    use futures::StreamExt;

    fn object(pairs: &[(&str, &str)]) -> ScaledObjectRef {
        let scaler_metadata = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        ScaledObjectRef { name: "n".into(), namespace: "ns".into(), scaler_metadata }
    }

    fn scaler() -> (watch::Sender<Option<Arc<Board>>>, KedaScaler) {
        let (sender, receiver) = watch::channel(Some(Arc::new(photos(Instant::now()))));
        (sender, KedaScaler::new(receiver))
    }

    #[tokio::test]
    async fn metadata_of_a_trigger_is_bounded_and_known() {
        let (_sender, scaler) = scaler();
        let refused = async |object| scaler.is_active(Request::new(object)).await.expect_err("refused");
        let many: Vec<String> = (0..17).map(|n| format!("k{n}")).collect();
        let many: Vec<(&str, &str)> = many.iter().map(|k| (k.as_str(), "v")).collect();
        let long = "x".repeat(METADATA_BYTES_MAX + 1);
        for (object, expected) in [
            (object(&[]), "no pipeline"),
            (object(&[("pipeline", "photos"), ("varaint", "find-l")]), "\"varaint\": expected only the keys pipeline"),
            (object(&many), "17 keys: expected at most 16"),
            (object(&[("pipeline", &long)]), "257 bytes: expected at most 256"),
        ] {
            let status = refused(object).await;
            assert_eq!(status.code(), Code::InvalidArgument);
            assert!(status.message().contains(expected), "{}", status.message());
        }
        let known =
            object(&[("pipeline", "photos"), ("scalerAddress", "a:1"), ("enableTLS", "true"), ("variant", "read-m")]);
        assert!(scaler.is_active(Request::new(known)).await.expect("known keys").get_ref().result);
    }

    #[tokio::test]
    async fn a_stream_pushes_changes_and_ends_with_an_error() {
        let (sender, scaler) = scaler();
        let of = object(&[("pipeline", "photos"), ("task", "read")]);
        let mut stream = scaler.stream_is_active(Request::new(of)).await.expect("a stream").into_inner();
        let told = async |stream: &mut KedaStream| stream.next().await.expect("it goes on").map(|m| m.result);
        assert!(told(&mut stream).await.expect("at once"));
        let mut none = photos(Instant::now());
        for group in &mut none.pipelines.get_mut("photos").expect("there").groups {
            group.replicas = 0;
        }
        sender.send_replace(Some(Arc::new(photos(Instant::now()))));
        sender.send_replace(Some(Arc::new(none)));
        assert!(!told(&mut stream).await.expect("after a change"));
        let mut unknown = photos(Instant::now());
        unknown.pipelines.insert("photos".into(), PipelineAdvice::default());
        sender.send_replace(Some(Arc::new(unknown)));
        assert_eq!(told(&mut stream).await.expect_err("unknown").code(), Code::Unavailable);
        assert!(stream.next().await.is_none());
    }

    type KedaStream = <KedaScaler as ExternalScaler>::StreamIsActiveStream;

    #[tokio::test]
    async fn streams_are_bounded() {
        let (_sender, scaler) = scaler();
        let open = async || scaler.stream_is_active(Request::new(object(&[("pipeline", "photos")]))).await;
        let mut streams = Vec::new();
        for _ in 0..STREAMS_MAX {
            streams.push(open().await.expect("a stream"));
        }
        assert_eq!(open().await.map(|_| ()).expect_err("full").code(), Code::ResourceExhausted);
        streams.pop();
        assert!(open().await.is_ok(), "an ended stream makes room");
    }

    #[tokio::test]
    async fn another_metric_is_refused_by_name() {
        let (_sender, scaler) = scaler();
        let ask = |metric: &str, of: Option<ScaledObjectRef>| GetMetricsRequest {
            scaled_object_ref: of,
            metric_name: metric.into(),
        };
        let of = || Some(object(&[("pipeline", "photos"), ("variant", "find-s"), ("hardware", "cpu")]));
        let answer = scaler.get_metrics(Request::new(ask(METRIC, of()))).await.expect("a number");
        assert_eq!(answer.get_ref().metric_values[0].metric_value_float, 3.0);
        assert_eq!(answer.metadata().get("apportion-advice").expect("a state"), "current");
        assert_eq!(scaler.get_metrics(Request::new(ask("qps", of()))).await.expect_err("no metric").code(), Code::NotFound);
        assert_eq!(
            scaler.get_metrics(Request::new(ask(METRIC, None))).await.expect_err("none").code(),
            Code::InvalidArgument
        );
    }
}
