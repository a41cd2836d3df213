//! How can many agents be imitated? A stand-in is a control connection that registers, reports and acknowledges as an agent
//! does, and serves nothing.

use apportion_protocol::v1::{self, agent_message};
use apportion_protocol::{MESSAGE_BYTES_MAX, PROTOCOL_VERSION};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

/// The protocol's only call.
const ATTACH: &str = "/apportion.v1.Control/Attach";
/// Messages of a stand-in that wait for its connection.
const OUTBOX_MAX: usize = 16;
/// Acknowledgements that wait to be counted. With a full queue, stand-ins wait.
const ACKNOWLEDGEMENTS_MAX: usize = 4_096;
/// The longest time without an expected message.
const WAIT_MAX: Duration = Duration::from_secs(120);

/// The reason of a failure.
#[derive(Debug, thiserror::Error)]
pub enum StandInError {
    /// The service cannot be reached.
    #[error("the service cannot be reached")]
    Connect(#[from] tonic::transport::Error),
    /// A stream ended early.
    #[error("the stream of {agent} ended early")]
    Broken {
        /// The stand-in.
        agent: String,
        /// The reason that the service gave, if it gave one.
        #[source]
        source: Option<Box<tonic::Status>>,
    },
    /// The service refused one.
    #[error("{agent} is refused: {detail}")]
    Refused {
        /// The stand-in.
        agent: String,
        /// The reason that the service gave.
        detail: String,
    },
    /// Acknowledgements are missing.
    #[error("{heard} of {count} stand-ins have the target after {} s", WAIT_MAX.as_secs())]
    Timeout {
        /// Stand-ins that have the target.
        heard: usize,
        /// All stand-ins.
        count: usize,
    },
}

/// A message from the service. Stand-ins decode the fence of a target and skip the rest. Agents decode targets on their own
/// machines; all stand-ins would do so on this one.
#[derive(Clone, PartialEq, prost::Message)]
struct ServiceMessage {
    #[prost(message, optional, tag = "1")]
    welcome: Option<v1::Welcome>,
    #[prost(message, optional, tag = "2")]
    refused: Option<v1::Refused>,
    #[prost(message, optional, tag = "3")]
    target: Option<Fenced>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Fenced {
    #[prost(message, optional, tag = "1")]
    fence: Option<v1::Fence>,
}

/// A target that a stand-in acknowledged.
struct Acknowledgement {
    /// The target's generation.
    generation: u64,
    at: Instant,
}

/// Connected stand-ins; dropping them closes their connections.
pub struct StandIns {
    count: usize,
    acknowledgements: mpsc::Receiver<Acknowledgement>,
    running: JoinSet<Result<(), StandInError>>,
}

impl StandIns {
    /// Connects `count` stand-ins to the service's gRPC address, each with one device of this hardware, and waits until all
    /// are welcome.
    ///
    /// # Errors
    /// If one cannot connect or is refused.
    pub async fn connect(grpc: &str, token: &str, count: usize, hardware: &str) -> Result<Self, StandInError> {
        let (sender, acknowledgements) = mpsc::channel(ACKNOWLEDGEMENTS_MAX);
        let mut running = JoinSet::new();
        for at in 0..count {
            let register = register(at, token, hardware);
            let mut one = StandIn::connect(grpc, register).await?;
            let sender = sender.clone();
            running.spawn(async move { one.run_until_closed(&sender).await });
        }
        Ok(Self { count, acknowledgements, running })
    }

    /// The times when the stand-ins acknowledged this generation or a later one, ascending.
    ///
    /// # Errors
    /// If a stream ends early, or some stand-in lacks the target after two minutes.
    pub async fn acknowledged(&mut self, generation: u64) -> Result<Vec<Instant>, StandInError> {
        let mut all = Vec::with_capacity(self.count);
        let deadline = tokio::time::Instant::now() + WAIT_MAX;
        while all.len() < self.count {
            tokio::select! {
                received = self.acknowledgements.recv() => {
                    all.extend(received.filter(|ack| ack.generation >= generation).map(|ack| ack.at));
                }
                Some(ended) = self.running.join_next() => ended.expect("a stand-in does not panic")?,
                () = tokio::time::sleep_until(deadline) => {
                    return Err(StandInError::Timeout { heard: all.len(), count: self.count });
                }
            }
        }
        all.sort_unstable();
        Ok(all)
    }
}

fn register(at: usize, token: &str, hardware: &str) -> v1::Register {
    let name = format!("stand-in-{at}");
    v1::Register {
        protocol_version: PROTOCOL_VERSION,
        token: token.into(),
        hardware: hardware.into(),
        devices: 1,
        // No client uses these addresses.
        ingress_http: format!("{name}:1"),
        ingress_grpc: format!("{name}:2"),
        data_address: format!("{name}:3"),
        fence: None,
        process_id: name.clone(),
        agent_id: String::new(),
        number: 0,
        zone: String::new(),
        name,
        ..v1::Register::default()
    }
}

struct StandIn {
    name: String,
    report_every: Duration,
    outbox: mpsc::Sender<v1::AgentMessage>,
    inbox: tonic::Streaming<ServiceMessage>,
}

impl StandIn {
    async fn connect(grpc: &str, register: v1::Register) -> Result<Self, StandInError> {
        let name = register.name.clone();
        let channel: Channel = Endpoint::from_shared(grpc.to_owned())?.tcp_nodelay(true).connect().await?;
        let mut client = tonic::client::Grpc::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX);
        client.ready().await?;
        let (outbox, messages) = mpsc::channel(OUTBOX_MAX);
        let first = v1::AgentMessage { message: Some(agent_message::Message::Register(register)) };
        outbox.send(first).await.expect("it holds the other end");
        let codec = ProstCodec::<v1::AgentMessage, ServiceMessage>::default();
        let request = tonic::Request::new(ReceiverStream::new(messages));
        let answered = client.streaming(request, PathAndQuery::from_static(ATTACH), codec).await;
        let broken = |status| StandInError::Broken { agent: name.clone(), source: Some(Box::new(status)) };
        let inbox = answered.map_err(broken)?.into_inner();
        let mut this = Self { name, report_every: Duration::from_secs(1), outbox, inbox };
        match this.next_message().await? {
            ServiceMessage { welcome: Some(welcome), .. } => {
                this.report_every = Duration::from_millis(u64::from(welcome.report_ms.max(1)));
                Ok(this)
            }
            other => {
                let detail = other.refused.map_or_else(|| "no welcome".into(), |r| r.detail);
                Err(StandInError::Refused { agent: this.name, detail })
            }
        }
    }

    async fn next_message(&mut self) -> Result<ServiceMessage, StandInError> {
        let broken = |source| StandInError::Broken { agent: self.name.clone(), source };
        self.inbox.message().await.map_err(|status| broken(Some(Box::new(status))))?.ok_or_else(|| broken(None))
    }

    async fn send(&self, message: agent_message::Message) -> Result<(), StandInError> {
        let sent = self.outbox.send(v1::AgentMessage { message: Some(message) }).await;
        sent.map_err(|_| StandInError::Broken { agent: self.name.clone(), source: None })
    }

    async fn run_until_closed(&mut self, acknowledgements: &mpsc::Sender<Acknowledgement>) -> Result<(), StandInError> {
        let mut reports = tokio::time::interval(self.report_every);
        loop {
            tokio::select! {
                _ = reports.tick() => self.send(agent_message::Message::Report(v1::Report::default())).await?,
                heard = self.inbox.message() => {
                    let broken = |source| StandInError::Broken { agent: self.name.clone(), source };
                    let heard = heard.map_err(|status| broken(Some(Box::new(status))))?.ok_or_else(|| broken(None))?;
                    let Some(fence) = heard.target.and_then(|t| t.fence) else { continue };
                    let ack = v1::Ack { fence: Some(fence), applied: true, ..v1::Ack::default() };
                    self.send(agent_message::Message::Ack(ack)).await?;
                    let acknowledged = Acknowledgement { generation: fence.generation, at: Instant::now() };
                    if acknowledgements.send(acknowledged).await.is_err() {
                        return Ok(());
                    }
                }
            }
        }
    }
}
