//! What does the agent do at its end of the control stream?
//!
//! It registers, takes targets, acknowledges them and reports counts. When the stream ends it connects again, without
//! end, and serves on meanwhile.

use crate::agent::{AgentCommand, AgentHandle};
use crate::causes::describe;
use crate::connector::ControlConnector;
use crate::files::Source;
use crate::parts::contained;
use apportion_protocol::v1::{self, agent_message, control_client::ControlClient, control_message, refused::Reason};
use apportion_protocol::{MESSAGE_BYTES_MAX, PROTOCOL_VERSION};
use apportion_tls::AuthoritiesError;
use std::hash::{BuildHasher, Hasher};
use std::time::Duration;
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::Endpoint;

/// Between two attempts: doubling from the first to the last.
const BACKOFF_MIN: Duration = Duration::from_millis(200);
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// Longest report period that the control plane may ask for: it takes a silent agent for lost.
const REPORT_MS_MAX: u32 = 2_000;
/// How long a connection may take.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// How long a stream may take until it is answered, and then until the agent is welcome. Another program may be on the
/// port.
const WELCOME_MAX: Duration = Duration::from_secs(10);
/// Messages that wait for the stream.
const OUTBOX_MAX: usize = 64;

/// Who the agent is, and how it reaches the control plane.
#[derive(Clone)]
pub struct Identity {
    /// The URLs of the control plane's processes, at least one.
    pub join: Vec<String>,
    /// Connects to them.
    pub connector: ControlConnector,
    /// What it asks for.
    pub token: String,
    /// Unique in the fleet.
    pub name: String,
    /// Hardware type of the devices.
    pub hardware: String,
    /// How many there are.
    pub devices: u32,
    /// Where it stands; empty: nobody knows.
    pub zone: String,
    /// Where clients reach the gateway.
    pub ingress_http: String,
    /// Where clients reach the gateway's gRPC.
    pub ingress_grpc: String,
    /// Where other agents reach this one.
    pub data_address: String,
    /// Of this process.
    pub process_id: String,
    /// Of its state directory; empty: a restart is another agent.
    pub agent_id: String,
}

/// Why an agent cannot be part of the fleet.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The URL is malformed.
    #[error("--join {0}: {1}")]
    Address(String, String),
    /// The certificates of the control plane cannot be checked.
    #[error("the control plane's certificate cannot be checked: {0}")]
    Authorities(#[from] AuthoritiesError),
    /// Refused for a reason that waiting does not mend, while there was nothing to serve.
    #[error("the control plane refuses this agent: {0}")]
    Refused(String),
}

enum End {
    /// Try again after a while.
    Again(String),
    /// Stopped on purpose.
    Left,
    /// It was refused, and why.
    Refused(Reason, String),
}

/// The reason's name in metrics.
fn name(reason: Reason) -> &'static str {
    match reason {
        Reason::Unspecified => "unspecified",
        Reason::Token => "token",
        Reason::Version => "version",
        Reason::NameTaken => "name_taken",
        Reason::Invalid => "invalid",
        Reason::Stale => "stale",
        Reason::Certificate => "certificate",
    }
}

/// A process of the control plane.
struct ControlPlane {
    url: String,
    endpoint: Endpoint,
}

impl ControlPlane {
    fn new(url: &str) -> Result<Self, ControlError> {
        let endpoint = Endpoint::from_shared(url.to_owned())
            .map_err(|e| ControlError::Address(url.to_owned(), e.to_string()))?
            .connect_timeout(CONNECT_MAX)
            .http2_keep_alive_interval(Duration::from_secs(2))
            .keep_alive_timeout(Duration::from_secs(2))
            .keep_alive_while_idle(true);
        Ok(Self { url: url.to_owned(), endpoint })
    }
}

/// Keeps the stream until `stop` is cancelled, then says that the agent leaves. When it ends, the next process of the
/// control plane is tried; the pause grows once all were tried. An agent that has a target serves it even
/// while the control plane refuses the agent, and tries again. The refusal may come from another program on the port, or
/// from a service that is mended soon.
///
/// # Errors
/// [`ControlError`] if another try cannot succeed and there is no target to serve.
pub async fn attend(identity: Identity, handle: AgentHandle, stop: CancellationToken) -> Result<(), ControlError> {
    let planes = identity.join.iter().map(|url| ControlPlane::new(url)).collect::<Result<Vec<_>, _>>()?;
    let mut backoff = BACKOFF_MIN;
    for at in (0..planes.len()).cycle() {
        let begun = std::time::Instant::now();
        let ended = stream(&planes[at], &identity, &handle, &stop).await;
        if begun.elapsed() > BACKOFF_MAX {
            backoff = BACKOFF_MIN;
        }
        let pause = jittered(backoff);
        match ended {
            End::Left => return Ok(()),
            End::Refused(reason, detail) => {
                handle.status.refused(name(reason), &detail);
                if reason == Reason::Certificate {
                    // The next stream shows none, and gets another one for the token.
                    handle.link_keys.certificates().forget_newest();
                }
                let has_target = handle.view.borrow().layout.fence.is_some();
                let may_change = matches!(reason, Reason::NameTaken | Reason::Stale | Reason::Certificate);
                if !has_target && !may_change {
                    return Err(ControlError::Refused(detail));
                }
                let reason = name(reason);
                tracing::error!(
                    reason,
                    detail,
                    ?pause,
                    has_target,
                    "the control plane refuses this agent, which goes on and tries again"
                );
            }
            End::Again(reason) => {
                handle.status.lost(&reason);
                tracing::warn!(reason, ?pause, "the control stream has ended; the agent serves on and tries again");
            }
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = stop.cancelled() => return Ok(()),
        }
        if at + 1 == planes.len() {
            backoff = (backoff * 2).min(BACKOFF_MAX);
        }
    }
    Ok(())
}

/// A random part of the pause, from half of it to all of it. Agents that lost their service together then do not come back
/// together.
fn jittered(backoff: Duration) -> Duration {
    let random = std::collections::hash_map::RandomState::new().build_hasher().finish();
    backoff.mul_f64(0.5 + (random >> 11) as f64 / (1_u64 << 54) as f64)
}

fn agent_message_of(message: agent_message::Message) -> v1::AgentMessage {
    v1::AgentMessage { message: Some(message) }
}

async fn stream(plane: &ControlPlane, identity: &Identity, handle: &AgentHandle, stop: &CancellationToken) -> End {
    let connected = tokio::select! {
        connected = identity.connector.connect(&plane.endpoint) => connected,
        () = stop.cancelled() => return End::Left,
    };
    let channel = match connected {
        Ok(channel) => channel,
        Err(error) => return End::Again(format!("{}: {}", plane.url, describe(&error))),
    };
    let mut client = ControlClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX);
    let (outbox, messages) = mpsc::channel(OUTBOX_MAX);
    if outbox.send(agent_message_of(agent_message::Message::Register(register(identity, handle)))).await.is_err() {
        return End::Again("the stream has no end".into());
    }
    let attached = tokio::select! {
        attached = tokio::time::timeout(WELCOME_MAX, client.attach(ReceiverStream::new(messages))) => attached,
        () = stop.cancelled() => return End::Left,
    };
    match attached {
        Ok(Ok(response)) => run_session(response.into_inner(), &outbox, &Session { identity, plane }, handle, stop).await,
        Ok(Err(status)) => End::Again(format!("{}: {:?}: {}", plane.url, status.code(), status.message())),
        Err(_) => End::Again(format!("{}: what is there does not answer within {WELCOME_MAX:?}", plane.url)),
    }
}

fn register(identity: &Identity, handle: &AgentHandle) -> v1::Register {
    let view = handle.view.borrow();
    v1::Register {
        protocol_version: PROTOCOL_VERSION,
        token: identity.token.clone(),
        name: identity.name.clone(),
        hardware: identity.hardware.clone(),
        devices: identity.devices,
        zone: identity.zone.clone(),
        ingress_http: identity.ingress_http.clone(),
        ingress_grpc: identity.ingress_grpc.clone(),
        data_address: identity.data_address.clone(),
        fence: view.layout.fence.map(v1::Fence::from),
        process_id: identity.process_id.clone(),
        agent_id: identity.agent_id.clone(),
        number: view.agent,
        certificate_request: handle.link_keys.certificates().request(),
        backend: view.backend.name().to_owned(),
    }
}

/// A stream's two sides.
struct Session<'a> {
    identity: &'a Identity,
    plane: &'a ControlPlane,
}

async fn run_session(
    mut inbox: tonic::Streaming<v1::ControlMessage>,
    outbox: &mpsc::Sender<v1::AgentMessage>,
    session: &Session<'_>,
    handle: &AgentHandle,
    stop: &CancellationToken,
) -> End {
    let mut welcome = false;
    let mut news = AgentNews::new(handle);
    let mut report = report_interval(1_000);
    let late = tokio::time::sleep(WELCOME_MAX);
    tokio::pin!(late);
    loop {
        let say = tokio::select! {
            message = inbox.message() => match message {
                Ok(Some(v1::ControlMessage { message: Some(message) })) => {
                    if let control_message::Message::Welcome(told) = &message {
                        welcome = true;
                        report = report_interval(told.report_ms);
                        handle.status.attended();
                        tracing::info!(agent = told.agent, "registered");
                    }
                    if let Some(end) = handle_control_message(message, session, handle).await {
                        return end;
                    }
                    continue;
                }
                Ok(Some(_)) => continue,
                Ok(None) => return End::Again("the control plane closed the stream".into()),
                Err(status) => return End::Again(format!("{:?}: {}", status.code(), status.message())),
            },
            () = &mut late, if !welcome => return End::Again(format!("no welcome came within {WELCOME_MAX:?}")),
            told = news.next(handle), if welcome => match told {
                Some(told) => told,
                None => return End::Left,
            },
            _ = report.tick(), if welcome => match counted(handle).await {
                Some(report) => agent_message::Message::Report(report),
                None => return End::Left,
            },
            () = stop.cancelled() => {
                leave(&mut inbox, outbox).await;
                return End::Left;
            }
        };
        // A control plane that takes no messages needs another stream.
        if outbox.try_send(agent_message_of(say)).is_err() {
            return End::Again("the stream takes no more messages".into());
        }
    }
}

/// What the loop tells the control plane as it happens.
struct AgentNews {
    ack: watch::Receiver<Option<v1::Ack>>,
    measured: watch::Receiver<Option<v1::Measurement>>,
    wants: broadcast::Receiver<v1::VariantWant>,
}

impl AgentNews {
    /// The news of a new stream. The last acknowledgement and the last measurement are told again.
    fn new(handle: &AgentHandle) -> Self {
        let mut news = Self { ack: handle.ack.clone(), measured: handle.measured.clone(), wants: handle.wants.subscribe() };
        news.ack.mark_changed();
        news.measured.mark_changed();
        news
    }

    /// The next message; `None` if the loop is gone. Nothing is lost if the caller stops waiting.
    async fn next(&mut self, handle: &AgentHandle) -> Option<agent_message::Message> {
        loop {
            return tokio::select! {
                want = self.wants.recv() => match want {
                    Ok(want) => Some(agent_message::Message::Want(want)),
                    Err(broadcast::error::RecvError::Closed) => None,
                    // Requests that still wait say it again.
                    Err(broadcast::error::RecvError::Lagged(_)) => continue,
                },
                ack = next_of(&mut self.ack) => ack.map(agent_message::Message::Ack),
                measured = next_of(&mut self.measured) => measured.map(agent_message::Message::Measurement),
                request = next_request(handle) => Some(agent_message::Message::CertificateRequest(request)),
            };
        }
    }
}

/// Waits until it is time to ask for the next certificate, and asks; for ever without a certificate.
async fn next_request(handle: &AgentHandle) -> v1::CertificateRequest {
    let certificates = handle.link_keys.certificates();
    match certificates.next_request_at() {
        Some(moment) => tokio::time::sleep_until(moment.into()).await,
        None => std::future::pending().await,
    }
    v1::CertificateRequest { request: certificates.request() }
}

/// The next value of the loop; `None` if the loop is gone.
async fn next_of<T: Clone>(told: &mut watch::Receiver<Option<T>>) -> Option<T> {
    loop {
        told.changed().await.ok()?;
        let value = told.borrow_and_update().clone();
        if value.is_some() {
            return value;
        }
    }
}

fn report_interval(report_ms: u32) -> tokio::time::Interval {
    let mut report = tokio::time::interval(Duration::from_millis(report_ms.clamp(10, REPORT_MS_MAX).into()));
    report.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    report
}

/// What was counted since the last report; none if the loop is gone.
async fn counted(handle: &AgentHandle) -> Option<v1::Report> {
    let (reply, counted) = oneshot::channel();
    handle.commands.send(AgentCommand::Report(reply)).await.ok()?;
    let report = counted.await.ok()?;
    Some(v1::Report { devices: device_stats(handle).await, ..report })
}

async fn leave(inbox: &mut tonic::Streaming<v1::ControlMessage>, outbox: &mpsc::Sender<v1::AgentMessage>) {
    let _gone = outbox.try_send(agent_message_of(agent_message::Message::Leaving(v1::Leaving {})));
    // The control plane ends the stream when it has heard; not for ever.
    let _end =
        tokio::time::timeout(Duration::from_secs(1), async { while let Ok(Some(_)) = inbox.message().await {} }).await;
}

/// How the devices are, where that is known.
async fn device_stats(handle: &AgentHandle) -> Vec<v1::DeviceStats> {
    let devices = handle.devices.clone();
    // Drivers may take their time. A panic of theirs counts as no device.
    let read = move || contained(|| devices.read_all()).unwrap_or_default();
    let seen = tokio::task::spawn_blocking(read).await.unwrap_or_default();
    let told = |s: crate::devices::DeviceStatus| v1::DeviceStats {
        device: s.device,
        uuid: s.uuid,
        memory_used: s.memory_used,
        memory_total: s.memory_total,
        utilisation: s.utilisation,
    };
    seen.into_iter().map(told).collect()
}

async fn handle_control_message(
    message: control_message::Message,
    session: &Session<'_>,
    handle: &AgentHandle,
) -> Option<End> {
    let command = match message {
        control_message::Message::Welcome(welcome) => {
            let (join, token) = (session.plane.url.clone(), session.identity.token.clone());
            let connector = session.identity.connector.clone();
            AgentCommand::Welcome(welcome.agent, Source { join, url: welcome.files_url, token, connector })
        }
        control_message::Message::Target(target) => AgentCommand::Target(Box::new(target)),
        control_message::Message::Certificate(issued) => return take_certificate(&issued, handle).await,
        control_message::Message::Measure(order) => AgentCommand::Measure(Box::new(order)),
        control_message::Message::StopMeasuring(stop) => AgentCommand::StopMeasuring(stop.claim),
        control_message::Message::Refused(refused) => return Some(End::Refused(refused.reason(), refused.detail)),
    };
    handle.commands.send(command).await.is_err().then_some(End::Left)
}

/// Takes a certificate. The stream ends if the control plane serves only streams that show one.
async fn take_certificate(issued: &v1::IssuedCertificate, handle: &AgentHandle) -> Option<End> {
    match handle.link_keys.certificates().take(issued) {
        Ok(()) => {
            let life = Duration::from_millis(issued.life_ms);
            tracing::info!(agent = issued.agent, ?life, "a certificate has come");
            if handle.commands.send(AgentCommand::KeepCertificates).await.is_err() {
                return Some(End::Left);
            }
        }
        Err(error) => {
            tracing::error!(error = describe(&error), "a certificate is not taken");
        }
    }
    issued.come_again.then(|| End::Again("it gave this agent a certificate, and serves streams that show one".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_half_the_backoff_to_all_of_it() {
        let pauses: Vec<Duration> = (0..200).map(|_| jittered(BACKOFF_MAX)).collect();
        assert!(pauses.iter().all(|p| (BACKOFF_MAX / 2..=BACKOFF_MAX).contains(p)));
        assert!(pauses.iter().max() > pauses.iter().min(), "they differ");
    }
}
