//! How does one agent's stream go, from registration to its end?

mod certificates;
mod outbox;
mod registration;

use super::connections::Guest;
use super::messages::{arrivals, devices_json, group_sums, hops_json, load_times, want_row};
use super::model_files;
use crate::app::agent_records::ReportRecords;
use crate::app::fleet_authorities::CertifiedAgent;
use crate::app::heartbeats::StreamEnd;
use crate::app::measurements::AgentMeasurement;
use crate::app::parts::ServicePart;
use crate::app::{App, now};
use crate::decide::link_keys::PushedTarget;
use crate::decide::report_delay::ReportDelay;
use crate::store;
use apportion_certificates::SigningRequest;
use apportion_protocol::v1::{self, agent_message, control_message, control_server::Control, refused::Reason};
use certificates::StreamAdmission;
use outbox::{OUTBOX_MAX, Outbox, refuse, send};
use registration::{RegisterError, RegisteredAgent, register};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use uuid::Uuid;

/// How long a new stream may take to register.
const REGISTER_MAX: Duration = Duration::from_secs(5);

/// The gRPC service.
pub struct Sessions(pub App);

#[tonic::async_trait]
impl Control for Sessions {
    type AttachStream = Pin<Box<ReceiverStream<Result<v1::ControlMessage, Status>>>>;
    type FetchStream = model_files::Chunks;

    async fn fetch(&self, request: Request<v1::FileRequest>) -> Result<Response<Self::FetchStream>, Status> {
        let guest = request.extensions().get::<Guest>().cloned();
        model_files::fetch(&self.0, request.into_inner(), guest).await
    }

    async fn attach(&self, request: Request<Streaming<v1::AgentMessage>>) -> Result<Response<Self::AttachStream>, Status> {
        let (outbox, messages) = mpsc::channel(OUTBOX_MAX);
        let guest = request.extensions().get::<Guest>().cloned();
        let session = run_session(self.0.clone(), request.into_inner(), outbox, guest);
        self.0.spawn(ServicePart::Session, session);
        Ok(Response::new(Box::pin(ReceiverStream::new(messages))))
    }
}

async fn run_session(app: App, mut inbox: Streaming<v1::AgentMessage>, outbox: Outbox, guest: Option<Guest>) {
    let first = tokio::time::timeout(REGISTER_MAX, inbox.message()).await;
    let request = match first {
        Ok(Ok(Some(v1::AgentMessage { message: Some(agent_message::Message::Register(request)) }))) => request,
        _ => return refuse(&outbox, Reason::Invalid, "the first message of a stream must be Register").await,
    };
    let name = request.name.clone();
    let shown = guest.as_ref().and_then(Guest::certificate);
    let RegisteredAgent { session, welcome, certified, admission } = match register(&app, request, shown).await {
        Ok(registered) => registered,
        Err(RegisterError::Refused { reason, detail }) => {
            tracing::warn!(agent = name, ?reason, detail, "an agent was refused");
            return refuse(&outbox, reason, &detail).await;
        }
        Err(error @ (RegisterError::Database(_) | RegisterError::NoAuthority)) => {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            tracing::error!(agent = name, %error, ?cause, "an agent could not be registered");
            let _gone = outbox.send(Err(Status::unavailable(error.to_string()))).await;
            return;
        }
    };
    tracing::info!(agent = name, number = welcome.agent, "agent registered");
    guest.iter().for_each(Guest::admit);
    app.fleet_changed.notify_one();
    let number = welcome.agent;
    let is_open = send(&outbox, control_message::Message::Welcome(welcome)).await;
    let ended = match (admission, certified) {
        (StreamAdmission::Whole, certified) if is_open => {
            exchange_messages(&app, StreamOf { session, number, certified }, &mut inbox, &outbox).await
        }
        (StreamAdmission::CertificateOnly, Some(certified)) if is_open => {
            certificates::send_one(&app, &certified, &outbox).await;
            SessionEnd::Disconnected
        }
        _ => SessionEnd::Disconnected,
    };
    tracing::info!(agent = name, ?ended, "agent's stream ended");
    end_session(&app, session, ended, &outbox).await;
}

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SessionEnd {
    /// The agent leaves on purpose.
    Left,
    /// The connection is gone; the agent may live.
    Disconnected,
    /// This process has ended it.
    Ended(StreamEnd),
    /// The service stops; the agent keeps serving and comes back.
    Stopping,
}

async fn end_session(app: &App, session: Uuid, ended: SessionEnd, outbox: &Outbox) {
    match ended {
        SessionEnd::Stopping => {}
        // Its agent is not lost yet: it gets time to come back.
        SessionEnd::Disconnected => app.heartbeats.disconnect(session),
        SessionEnd::Ended(end) => {
            app.heartbeats.forget(session);
            if end == StreamEnd::Replaced {
                // The older stream gets the reason: its agent has not left.
                let why = "a newer stream of this agent has replaced this one";
                refuse(outbox, Reason::NameTaken, why).await;
            }
        }
        SessionEnd::Left => {
            app.heartbeats.forget(session);
            let marked = async { store::agents::mark_left(&mut *app.pool.acquire().await?, session).await }.await;
            if let Err(error) = marked {
                tracing::error!(%error, "an agent left, and this could not be stored");
            }
            app.fleet_changed.notify_one();
        }
    }
}

/// The agent of a stream.
struct StreamOf {
    session: Uuid,
    number: u64,
    /// `None` if it wants no certificate.
    certified: Option<CertifiedAgent>,
}

/// The stream from which messages come.
#[derive(Clone, Copy)]
struct AgentStream {
    session: Uuid,
    number: u64,
}

/// Runs a registered stream until it ends. Receiving and sending do not wait for each other.
async fn exchange_messages(
    app: &App,
    StreamOf { session, number, certified }: StreamOf,
    inbox: &mut Streaming<v1::AgentMessage>,
    outbox: &Outbox,
) -> SessionEnd {
    let (requests, asked) = watch::channel(None);
    tokio::select! {
        () = app.stopped() => SessionEnd::Stopping,
        () = push_targets(app, number, outbox) => SessionEnd::Disconnected,
        () = certificates::push(app, certified, asked, outbox) => SessionEnd::Disconnected,
        () = push_orders(app, number, outbox) => SessionEnd::Disconnected,
        end = app.heartbeats.wait_for_end(session) => SessionEnd::Ended(end),
        ended = receive(app, AgentStream { session, number }, inbox, &requests) => ended,
    }
}

/// Sends the target in force and each later one with this agent's new keys, until the agent takes no more.
async fn push_targets(app: &App, agent: u64, outbox: &Outbox) {
    let mut target = app.target.subscribe();
    target.mark_changed();
    let mut before: Option<Arc<PushedTarget>> = None;
    while target.changed().await.is_ok() {
        let Some(pushed) = target.borrow_and_update().clone() else { continue };
        let message = pushed.for_agent(agent, before.as_deref());
        if !send(outbox, control_message::Message::Target(message)).await {
            return;
        }
        before = Some(pushed);
    }
}

/// Sends the agent's order to measure and each later one, and the end of its last one, until the agent takes no more.
async fn push_orders(app: &App, agent: u64, outbox: &Outbox) {
    let mut orders = app.measurements.orders();
    orders.mark_changed();
    let mut sent: Option<v1::Measure> = None;
    while orders.changed().await.is_ok() {
        let order = orders.borrow_and_update().get(&agent).cloned();
        let message = match (&order, &sent) {
            (Some(order), before) if before.as_ref() != Some(order) => control_message::Message::Measure(order.clone()),
            (None, Some(before)) => control_message::Message::StopMeasuring(v1::StopMeasuring { claim: before.claim }),
            _ => continue,
        };
        if !send(outbox, message).await {
            return;
        }
        sent = order;
    }
}

/// Takes an agent's messages until its stream ends. Nothing here waits for the database, so heartbeats count while it
/// stalls.
async fn receive(
    app: &App,
    AgentStream { session, number }: AgentStream,
    inbox: &mut Streaming<v1::AgentMessage>,
    requests: &watch::Sender<Option<SigningRequest>>,
) -> SessionEnd {
    let mut delay = ReportDelay::default();
    loop {
        let Ok(Some(message)) = inbox.message().await else { return SessionEnd::Disconnected };
        app.heartbeats.record(session);
        match message.message {
            Some(agent_message::Message::Leaving(_)) => return SessionEnd::Left,
            Some(agent_message::Message::Ack(ack)) => app.records.add_ack(session, ack),
            Some(agent_message::Message::Measurement(measurement)) => {
                app.measurements.add(AgentMeasurement { agent: number, measurement });
            }
            Some(agent_message::Message::Report(report)) => {
                let sent = now() - delay.of_report(Instant::now(), report.uptime_ms);
                let records = ReportRecords {
                    devices: (!report.devices.is_empty()).then(|| devices_json(&report.devices)),
                    hops: hops_json(&report.hops, sent),
                    loads: load_times(&report.loads, sent),
                    arrivals: arrivals(&report, sent.timestamp_millis()),
                    groups: group_sums(&report, session, sent.timestamp_millis()),
                };
                app.records.add_report(session, records);
            }
            Some(agent_message::Message::CertificateRequest(asked)) => match SigningRequest::read(&asked.request) {
                Ok(request) => _ = requests.send_replace(Some(request)),
                Err(error) => tracing::warn!(%error, "an agent asks for a certificate, and gets none"),
            },
            Some(agent_message::Message::Want(want)) => {
                want_row(&want).into_iter().for_each(|row| app.records.add_want(row))
            }
            Some(agent_message::Message::Register(_)) | None => {}
        }
    }
}
