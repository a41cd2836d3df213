//! The agent's end of the control stream: registers, takes targets, acknowledges and reports; comes back for ever, while the
//! agent serves on.

use crate::agent::{Command, Handle};
use apportion_protocol::v1::{self, agent_message, control_client::ControlClient, control_message, refused::Reason};
use apportion_protocol::{MESSAGE_BYTES_MAX, PROTOCOL_VERSION};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
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
/// Messages that wait for the stream.
const OUTBOX_MAX: usize = 64;

/// Who the agent is.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The control plane's URL.
    pub join: String,
    /// What it asks for.
    pub token: String,
    /// Unique in the fleet.
    pub name: String,
    /// Hardware type of the devices.
    pub hardware: String,
    /// How many there are.
    pub devices: u32,
    /// Where clients reach the gateway.
    pub ingress_http: String,
    /// Where clients reach the gateway's gRPC.
    pub ingress_grpc: String,
    /// Where other agents reach this one.
    pub data_address: String,
    /// Of this process.
    pub process_id: String,
}

/// Why an agent cannot be part of the fleet.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The URL is none.
    #[error("--join {0}: {1}")]
    Address(String, String),
    /// Refused for a reason that waiting does not mend.
    #[error("the control plane refuses this agent: {0}")]
    Refused(String),
}

enum End {
    /// Try again after a while.
    Again(String),
    /// Stopped on purpose.
    Left,
    /// Never try again.
    Refused(String),
}

/// Keeps the stream until `stop` is cancelled; then says that the agent leaves.
///
/// # Errors
/// [`ControlError`] if there is no point in trying again.
pub async fn attend(identity: Identity, handle: Handle, stop: CancellationToken) -> Result<(), ControlError> {
    let endpoint = Endpoint::from_shared(identity.join.clone())
        .map_err(|e| ControlError::Address(identity.join.clone(), e.to_string()))?
        .connect_timeout(CONNECT_MAX)
        .http2_keep_alive_interval(Duration::from_secs(2))
        .keep_alive_timeout(Duration::from_secs(2))
        .keep_alive_while_idle(true);
    let mut backoff = BACKOFF_MIN;
    loop {
        let begun = std::time::Instant::now();
        match stream(&endpoint, &identity, &handle, &stop).await {
            End::Left => return Ok(()),
            End::Refused(detail) => return Err(ControlError::Refused(detail)),
            End::Again(reason) => {
                tracing::warn!(reason, ?backoff, "the control stream has ended; the agent serves on and tries again");
            }
        }
        if begun.elapsed() > BACKOFF_MAX {
            backoff = BACKOFF_MIN;
        }
        tokio::select! {
            () = tokio::time::sleep(backoff) => {}
            () = stop.cancelled() => return Ok(()),
        }
        backoff = (backoff * 2).min(BACKOFF_MAX);
    }
}

fn told(message: agent_message::Message) -> v1::AgentMessage {
    v1::AgentMessage { message: Some(message) }
}

async fn stream(endpoint: &Endpoint, identity: &Identity, handle: &Handle, stop: &CancellationToken) -> End {
    let connected = tokio::select! {
        connected = endpoint.connect() => connected,
        () = stop.cancelled() => return End::Left,
    };
    let channel = match connected {
        Ok(channel) => channel,
        Err(error) => return End::Again(format!("{}: {error}: {:?}", identity.join, std::error::Error::source(&error))),
    };
    let mut client = ControlClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX);
    let (outbox, messages) = mpsc::channel(OUTBOX_MAX);
    let fence = handle.view.borrow().layout.fence.map(v1::Fence::from);
    let register = v1::Register {
        protocol_version: PROTOCOL_VERSION,
        token: identity.token.clone(),
        name: identity.name.clone(),
        hardware: identity.hardware.clone(),
        devices: identity.devices,
        ingress_http: identity.ingress_http.clone(),
        ingress_grpc: identity.ingress_grpc.clone(),
        data_address: identity.data_address.clone(),
        fence,
        process_id: identity.process_id.clone(),
        agent_id: String::new(),
        number: 0,
    };
    if outbox.send(told(agent_message::Message::Register(register))).await.is_err() {
        return End::Again("the stream has no end".into());
    }
    match client.attach(ReceiverStream::new(messages)).await {
        Ok(response) => converse(response.into_inner(), &outbox, handle, stop).await,
        Err(status) => End::Again(status.to_string()),
    }
}

async fn converse(
    mut inbox: tonic::Streaming<v1::ControlMessage>,
    outbox: &mpsc::Sender<v1::AgentMessage>,
    handle: &Handle,
    stop: &CancellationToken,
) -> End {
    let mut welcome = false;
    let mut ack = handle.ack.clone();
    ack.mark_changed();
    let mut report = tokio::time::interval(Duration::from_secs(1));
    report.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let say = tokio::select! {
            message = inbox.message() => match message {
                Ok(Some(v1::ControlMessage { message: Some(message) })) => {
                    if let control_message::Message::Welcome(told) = &message {
                        welcome = true;
                        let every = told.report_ms.clamp(10, REPORT_MS_MAX);
                        report = tokio::time::interval(Duration::from_millis(every.into()));
                        report.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
                        tracing::info!(agent = told.agent, "registered");
                    }
                    if let Some(end) = hear(message, handle).await {
                        return end;
                    }
                    continue;
                }
                Ok(Some(_)) => continue,
                Ok(None) => return End::Again("the control plane closed the stream".into()),
                Err(status) => return End::Again(status.to_string()),
            },
            changed = ack.changed(), if welcome => {
                if changed.is_err() {
                    return End::Left;
                }
                let Some(ack) = ack.borrow_and_update().clone() else { continue };
                agent_message::Message::Ack(ack)
            }
            _ = report.tick(), if welcome => {
                let (reply, counted) = oneshot::channel();
                if handle.commands.send(Command::Report(reply)).await.is_err() {
                    return End::Left;
                }
                let Ok(mut report) = counted.await else { return End::Left };
                report.devices = device_stats(handle).await;
                agent_message::Message::Report(report)
            }
            () = stop.cancelled() => {
                let _gone = outbox.send(told(agent_message::Message::Leaving(v1::Leaving {}))).await;
                // The control plane ends the stream when it has heard; not for ever.
                let _end = tokio::time::timeout(Duration::from_secs(1), async {
                    while let Ok(Some(_)) = inbox.message().await {}
                }).await;
                return End::Left;
            }
        };
        if outbox.send(told(say)).await.is_err() {
            return End::Again("the stream takes no more messages".into());
        }
    }
}

/// How the devices are, where that is known.
async fn device_stats(handle: &Handle) -> Vec<v1::DeviceStats> {
    let devices = handle.devices.clone();
    // Drivers may take their time. A look that panics has seen nothing.
    let seen = tokio::task::spawn_blocking(move || devices.look()).await.unwrap_or_default();
    let told = |s: crate::devices::Seen| v1::DeviceStats {
        device: s.device,
        uuid: s.uuid,
        memory_used: s.memory_used,
        memory_total: s.memory_total,
        utilisation: s.utilisation,
    };
    seen.into_iter().map(told).collect()
}

async fn hear(message: control_message::Message, handle: &Handle) -> Option<End> {
    let command = match message {
        control_message::Message::Welcome(welcome) => Command::Welcome(welcome.agent, welcome.files_url),
        control_message::Message::Target(target) => Command::Target(Box::new(target)),
        control_message::Message::Refused(refused) => {
            return Some(match refused.reason() {
                Reason::NameTaken | Reason::Stale => End::Again(refused.detail),
                _ => End::Refused(refused.detail),
            });
        }
    };
    handle.commands.send(command).await.is_err().then_some(End::Left)
}
