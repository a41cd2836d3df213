//! Does the gateway admit a request, and how does an admitted request get its answer?

use super::bodies::OPEN_BYTES_MAX;
use super::certificate::GatewayTls;
use super::connections::connections_max;
use super::ledger::{Ledger, RequestEnding};
use super::limits::GatewayLimits;
use super::refusal::{GatewayRefusal, RefusalCause, ServedRequest, served};
use crate::agent::{AgentHandle, ClientPresence, ClientRequest, NodeView};
use crate::shares::ClientShares;
use crate::telemetry::{CallerContext, IngressSpan};
use apportion_node::layout::LayoutPipeline;
use apportion_node::node::request::{RequestAnswer, RequestTerms};
use apportion_node::policies::LEVEL_OFFLINE;
use apportion_node::tensor::Tensor;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// One place in this number is for offline requests.
const OFFLINE_PARTS: usize = 4;
/// Bytes of the unit in which inputs are counted.
const ROOM_BYTES: usize = 1024;
/// Why an agent is not ready.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotReady {
    /// A part of the agent does not run.
    #[error("{0}")]
    Part(String),
    /// A pipeline of the target is not ready, or there is no target.
    #[error("not all pipelines of its target are ready, or it has none")]
    Pipelines,
}

/// The agent's loop as the ways in see it.
#[derive(Clone)]
pub struct Gateway {
    pub(super) handle: AgentHandle,
    pub(super) limits: GatewayLimits,
    pub(super) places: Arc<Semaphore>,
    pub(super) room: Arc<Semaphore>,
    pub(super) offline: Arc<Semaphore>,
    pub(super) ledger: Arc<Ledger>,
    /// Connections of clients.
    pub(super) connections: Arc<ClientShares>,
    /// Bytes of bodies that are being read.
    pub(super) open_bytes: Arc<ClientShares>,
    /// The certificate of its ports; none: they have no TLS.
    pub(super) tls: Option<GatewayTls>,
}

impl Gateway {
    /// A gateway to this loop with the default limits.
    #[must_use]
    pub fn new(handle: AgentHandle) -> Self {
        Self::with_limits(handle, GatewayLimits::default())
    }

    /// A gateway to this loop.
    #[must_use]
    pub fn with_limits(handle: AgentHandle, limits: GatewayLimits) -> Self {
        let places = Arc::new(Semaphore::new(limits.requests_max));
        let room = Arc::new(Semaphore::new(limits.bytes_max / ROOM_BYTES));
        let offline = Arc::new(Semaphore::new(limits.requests_max / OFFLINE_PARTS));
        let (connections, open_bytes) = (ClientShares::new(connections_max()), ClientShares::new(OPEN_BYTES_MAX));
        Self { handle, limits, places, room, offline, ledger: Arc::default(), connections, open_bytes, tls: None }
    }

    /// The same gateway with this certificate at its ports.
    #[must_use]
    pub fn with_tls(self, tls: GatewayTls) -> Self {
        Self { tls: Some(tls), ..self }
    }

    /// The present state of the agent's node.
    #[must_use]
    pub fn view(&self) -> NodeView {
        self.handle.view.borrow().clone()
    }

    /// Whether all parts of the agent run and all pipelines of its target are ready; else why not.
    ///
    /// # Errors
    /// [`NotReady`] by cause.
    pub fn check_ready(&self) -> Result<(), NotReady> {
        match self.handle.status.trouble() {
            Some(trouble) => Err(NotReady::Part(trouble)),
            None if self.view().is_ready() => Ok(()),
            None => Err(NotReady::Pipelines),
        }
    }

    /// Counts a request that has no answer. What names no pipeline of the target is counted under no name, whatever the
    /// cause: clients must not make labels.
    pub(super) fn count_refused(&self, pipeline: &str, cause: RefusalCause) {
        let is_known = self.handle.view.borrow().layout.pipelines.contains_key(pipeline);
        self.ledger.refused(if is_known { pipeline } else { "" }, cause);
    }

    /// What a request's headers say of its trace; none if there are no traces here.
    pub(super) fn caller<'a>(&self, header: &'a dyn Fn(&str) -> Option<&'a str>) -> Option<CallerContext> {
        self.handle.tracer.as_ref().map(|tracer| tracer.caller(header))
    }

    /// The span of a request that has come; none if it is not sampled.
    pub(super) fn begin(&self, caller: Option<&CallerContext>, name: &'static str) -> Option<IngressSpan> {
        self.handle.tracer.as_ref()?.begin(caller?, name)
    }

    /// Runs a request whose inputs were checked.
    ///
    /// # Errors
    /// Why it has no answer.
    pub async fn infer(
        &self,
        pipeline: &str,
        inputs: Vec<Tensor>,
        terms: RequestTerms,
    ) -> Result<ServedRequest, GatewayRefusal> {
        self.serve(self.admit(pipeline, inputs, terms, 0)?).await
    }

    /// Gives a request its place. Its inputs keep `kept` bytes of its body alive, or as many as they have.
    ///
    /// # Errors
    /// [`GatewayRefusal::full`] if no place is free.
    pub(super) fn admit(
        &self,
        pipeline: &str,
        inputs: Vec<Tensor>,
        terms: RequestTerms,
        kept: usize,
    ) -> Result<AdmittedRequest, GatewayRefusal> {
        let rows = inputs.first().map_or(0, Tensor::rows);
        let admitted = self.held(&inputs, terms.level, kept).map(|held| {
            let (pipeline, began) = (pipeline.to_owned(), Instant::now());
            AdmittedRequest { pipeline, inputs, terms, held, rows, began }
        });
        admitted.inspect_err(|_| self.ledger.ended(pipeline, RequestEnding::Failed, Duration::ZERO))
    }

    fn held(&self, inputs: &[Tensor], level: u32, kept: usize) -> Result<HeldPermits, GatewayRefusal> {
        let full = |reason: String| Err(GatewayRefusal::full(reason));
        let GatewayLimits { requests_max, bytes_max } = self.limits;
        // Offline requests wait for long: most places are kept for others.
        let is_offline = level == LEVEL_OFFLINE;
        let offline = is_offline.then(|| self.offline.clone().try_acquire_owned()).transpose();
        let Ok(offline) = offline else {
            return full(format!("{} offline requests wait for their answers", requests_max / OFFLINE_PARTS));
        };
        let Ok(place) = self.places.clone().try_acquire_owned() else {
            return full(format!("{requests_max} requests wait for their answers"));
        };
        let bytes = inputs.iter().map(|t| t.data.len()).sum::<usize>().max(kept);
        let rooms = u32::try_from(bytes.div_ceil(ROOM_BYTES)).unwrap_or(u32::MAX);
        let Ok(room) = self.room.clone().try_acquire_many_owned(rooms) else {
            return full(format!("requests with up to {bytes_max} bytes of inputs wait for their answers"));
        };
        Ok(HeldPermits { _place: place, _room: room, _offline: offline })
    }

    /// Runs a request that has its place.
    ///
    /// # Errors
    /// Why it has no answer.
    pub(super) async fn serve(&self, admitted: AdmittedRequest) -> Result<ServedRequest, GatewayRefusal> {
        let AdmittedRequest { pipeline, inputs, terms, held, rows, began } = admitted;
        let answer = self.run(&pipeline, inputs, terms, held).await;
        let ending = if answer.is_ok() { RequestEnding::Served { rows } } else { RequestEnding::Failed };
        self.ledger.ended(&pipeline, ending, began.elapsed());
        answer
    }

    async fn run(
        &self,
        pipeline: &str,
        inputs: Vec<Tensor>,
        terms: RequestTerms,
        held: HeldPermits,
    ) -> Result<ServedRequest, GatewayRefusal> {
        let timeout_ns = terms.timeout_ns;
        let (reply, answer) = oneshot::channel();
        let presence = ClientPresence::default();
        let request = ClientRequest { pipeline: pipeline.into(), inputs, terms, reply, presence: presence.clone() };
        if self.handle.requests.send(request).await.is_err() {
            return Err(GatewayRefusal::stopping());
        }
        let mut waiting = Waiting { answer: Some(answer), held: Some(held), presence: Some(presence) };
        let answer = match timeout_ns {
            // The loop looks at its clock now and then only; the client is told at once.
            Some(ns) => tokio::time::timeout(Duration::from_nanos(ns), &mut waiting).await,
            None => Ok((&mut waiting).await),
        };
        // The node knows the timeout: it ends the request, and counts it as late.
        waiting.presence = None;
        let late = || GatewayRefusal::late("its timeout has passed");
        let done = served(answer.map_err(|_| late())?.map_err(|_| GatewayRefusal::stopping())?)?;
        if timeout_ns.is_some_and(|ns| done.latency_ns > ns) { Err(late()) } else { Ok(done) }
    }
}

/// What a request holds at the gateway until the node has answered it.
pub(super) struct HeldPermits {
    _place: OwnedSemaphorePermit,
    /// For its inputs.
    _room: OwnedSemaphorePermit,
    /// Its place among the offline requests, if it is one.
    _offline: Option<OwnedSemaphorePermit>,
}

/// A request that has its place.
pub(super) struct AdmittedRequest {
    pub(super) pipeline: String,
    pub(super) inputs: Vec<Tensor>,
    pub(super) terms: RequestTerms,
    pub(super) held: HeldPermits,
    pub(super) rows: usize,
    pub(super) began: Instant,
}

/// The answer of a request that is under way, and its place at the gateway. If the client goes before, the node hears of
/// it. The place is free when the node has answered even so.
struct Waiting {
    answer: Option<oneshot::Receiver<RequestAnswer>>,
    held: Option<HeldPermits>,
    /// None: the client did not go, it has been answered.
    presence: Option<ClientPresence>,
}

impl Future for Waiting {
    type Output = Result<RequestAnswer, oneshot::error::RecvError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = self.answer.as_mut().expect("it is not polled after its end");
        let ended = std::task::ready!(Pin::new(answer).poll(context));
        (self.answer, self.held) = (None, None);
        Poll::Ready(ended)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let (Some(_), Some(presence)) = (&self.answer, &self.presence) {
            presence.end();
        }
        // Without a runtime the gateway is gone as well.
        if let (Some(answer), Ok(runtime)) = (self.answer.take(), tokio::runtime::Handle::try_current()) {
            let held = self.held.take();
            runtime.spawn(async move {
                let _answered = answer.await;
                drop(held);
            });
        }
    }
}

/// The pipeline of this name.
///
/// # Errors
/// [`GatewayRefusal`] with the names of all pipelines.
pub fn find<'a>(view: &'a NodeView, name: &str) -> Result<&'a LayoutPipeline, GatewayRefusal> {
    view.layout.pipelines.get(name).map(AsRef::as_ref).ok_or_else(|| {
        let names: Vec<&str> = view.layout.pipelines.keys().map(String::as_str).collect();
        let error = format!("there is no pipeline {name} here: expected one of [{}]", names.join(", "));
        GatewayRefusal { cause: RefusalCause::Unknown, error, reason: None }
    })
}

/// The version under which all pipelines are served: the generation of the target in force. Requests may name any version,
/// because the next plan must not fail the clients of this one; answers say which it was.
#[must_use]
pub fn version(view: &NodeView) -> String {
    view.layout.fence.map_or(0, |f| f.generation.0).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::limits::REQUESTS_MAX;
    use tokio::sync::{mpsc, watch};

    fn gateway() -> (Gateway, mpsc::Receiver<ClientRequest>) {
        let (requests, inbox) = mpsc::channel(2 * REQUESTS_MAX);
        let (events, _) = mpsc::channel(1);
        let (commands, _) = mpsc::channel(1);
        let (_, view) = watch::channel(NodeView::default());
        let (_, ack) = watch::channel(None);
        let (_, measured) = watch::channel(None);
        let devices = crate::devices::Devices::default();
        let started = Instant::now();
        let (status, link_keys) = (Arc::default(), crate::peers::LinkKeys::default());
        let wants = tokio::sync::broadcast::Sender::new(1);
        let handle = AgentHandle {
            events,
            requests,
            commands,
            view,
            ack,
            wants,
            measured,
            started,
            devices,
            tracer: None,
            link_keys,
            status,
        };
        (Gateway::new(handle), inbox)
    }

    #[tokio::test]
    async fn a_full_gateway_refuses_until_a_request_ends() {
        let (gateway, mut inbox) = gateway();
        let mut waiting: Vec<_> =
            (0..REQUESTS_MAX).map(|_| Box::pin(gateway.infer("p", vec![], RequestTerms::default()))).collect();
        for request in &mut waiting {
            assert!(futures::poll!(request).is_pending());
        }
        let refusal = gateway.infer("p", vec![], RequestTerms::default()).await.expect_err("one too many");
        assert_eq!((refusal.cause, refusal.cause.http()), (RefusalCause::Busy, 429));
        let Some(ClientRequest { reply, .. }) = inbox.recv().await else { panic!("no request") };
        reply.send(apportion_node::node::request::RequestAnswer::Failed("why".into())).expect("it waits");
        assert_eq!(waiting.remove(0).await.expect_err("failed").cause, RefusalCause::Failed);
        let mut next = Box::pin(gateway.infer("p", vec![], RequestTerms::default()));
        assert!(futures::poll!(&mut next).is_pending(), "its place is free");
        assert_eq!(gateway.ledger.entries()["p"].failed.count, 2);
    }

    #[tokio::test]
    async fn strangers_share_one_entry_whatever_the_cause() {
        let (gateway, _inbox) = gateway();
        for (name, cause) in [("x", RefusalCause::Unknown), ("y", RefusalCause::TooLarge), ("z", RefusalCause::Slow)] {
            gateway.count_refused(name, cause);
        }
        let entries = gateway.ledger.entries();
        assert_eq!((entries.len(), entries[""].refused.len()), (1, 3));
    }

    #[tokio::test]
    async fn only_a_client_that_goes_before_its_answer_has_gone() {
        let (gateway, mut inbox) = gateway();
        let timed = RequestTerms { timeout_ns: Some(1_000), ..RequestTerms::default() };
        gateway.infer("p", vec![], timed).await.expect_err("late");
        let presence = inbox.recv().await.expect("a request").presence;
        assert!(!presence.has_ended(), "its timeout is the node's to count");
        let mut cancelled = Box::pin(gateway.infer("p", vec![], RequestTerms::default()));
        assert!(futures::poll!(&mut cancelled).is_pending());
        let presence = inbox.recv().await.expect("a request").presence;
        assert!(!presence.has_ended());
        drop(cancelled);
        assert!(presence.has_ended());
    }

    #[tokio::test]
    async fn a_request_that_nobody_answers_ends_with_its_timeout() {
        let (gateway, inbox) = gateway();
        assert_eq!(
            gateway
                .infer("p", vec![], RequestTerms { timeout_ns: Some(1_000), ..RequestTerms::default() })
                .await
                .expect_err("late")
                .cause,
            RefusalCause::Late
        );
        drop(inbox);
        let refusal = gateway.infer("p", vec![], RequestTerms::default()).await.expect_err("nobody there");
        assert_eq!(refusal, GatewayRefusal::stopping());
    }
}
