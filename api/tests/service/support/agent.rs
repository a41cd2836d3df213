//! A raw client of the agents' protocol.

use super::{PATIENCE, Service, profiles, service, spec};
use apportion_protocol::v1::{self, agent_message, control_client::ControlClient, control_message, refused::Reason};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;

/// A raw client that sends given messages.
pub struct Agent {
    pub outbox: mpsc::Sender<v1::AgentMessage>,
    inbox: tonic::Streaming<v1::ControlMessage>,
}

/// A target without the keys of its receiver.
pub fn without_link_keys(mut target: v1::Target) -> v1::Target {
    target.agents.iter_mut().for_each(|peer| peer.link_keys.clear());
    target
}

pub fn register(service: &Service, name: &str) -> v1::Register {
    v1::Register {
        protocol_version: apportion_protocol::PROTOCOL_VERSION,
        token: service.running.token().into(),
        name: name.into(),
        hardware: "demo".into(),
        devices: 2,
        ingress_http: "127.0.0.1:1".into(),
        ingress_grpc: "127.0.0.1:3".into(),
        data_address: "127.0.0.1:2".into(),
        fence: None,
        process_id: format!("process of {name}"),
        ..v1::Register::default()
    }
}

/// A service with the pipeline and two agents of two devices each.
pub async fn fleet() -> (Service, Vec<Agent>) {
    let s = service().await;
    assert_eq!(s.put("/v1/pipelines/digits", &spec()).await.0, 201);
    assert_eq!(s.put("/v1/pipelines/digits/profiles", &profiles()).await.0, 200);
    let mut agents = Vec::new();
    for name in ["a", "b"] {
        let mut agent = attach(&s, register(&s, name)).await;
        agent.welcome().await;
        agent.report();
        agents.push(agent);
    }
    (s, agents)
}

pub async fn attach(service: &Service, register: v1::Register) -> Agent {
    let endpoint = format!("http://{}", service.running.grpc());
    attach_by(ControlClient::connect(endpoint).await.expect("the agents' port"), register).await
}

/// An agent on this connection.
pub async fn attach_by(mut client: ControlClient<Channel>, register: v1::Register) -> Agent {
    let (outbox, messages) = mpsc::channel(64);
    let first = v1::AgentMessage { message: Some(agent_message::Message::Register(register)) };
    outbox.send(first).await.expect("room");
    let inbox = client.attach(ReceiverStream::new(messages)).await.expect("a stream").into_inner();
    Agent { outbox, inbox }
}

/// The service's answer to a registration; `None` if it ends the connection.
pub async fn try_attach(service: &Service, register: v1::Register) -> Option<control_message::Message> {
    let endpoint = format!("http://{}", service.running.grpc());
    let mut client = ControlClient::connect(endpoint).await.expect("the agents' port");
    let first = v1::AgentMessage { message: Some(agent_message::Message::Register(register)) };
    let attached = client.attach(tokio_stream::iter([first])).await.ok()?;
    Agent { outbox: mpsc::channel(1).0, inbox: attached.into_inner() }.next().await
}

impl Agent {
    pub async fn next(&mut self) -> Option<control_message::Message> {
        let next = tokio::time::timeout(PATIENCE, self.inbox.message()).await.expect("in time");
        next.ok().flatten().and_then(|m| m.message)
    }

    pub async fn refused(mut self) -> (Reason, String) {
        match self.next().await {
            Some(control_message::Message::Refused(refused)) => (refused.reason(), refused.detail),
            other => panic!("not refused: {other:?}"),
        }
    }

    pub async fn welcome(&mut self) -> v1::Welcome {
        match self.next().await {
            Some(control_message::Message::Welcome(welcome)) => welcome,
            other => panic!("not welcome: {other:?}"),
        }
    }

    pub async fn target(&mut self, generation: u64) -> v1::Target {
        loop {
            match self.next().await {
                Some(control_message::Message::Target(t)) if t.fence.is_some_and(|f| f.generation >= generation) => {
                    return t;
                }
                Some(_) => {}
                None => panic!("the stream ended before target {generation}"),
            }
        }
    }

    pub async fn say(&self, message: agent_message::Message) {
        // The service may have disconnected; later messages show it.
        let _gone = self.outbox.send(v1::AgentMessage { message: Some(message) }).await;
    }

    /// Keeps reporting until dropped.
    pub fn report(&self) -> tokio::task::JoinHandle<()> {
        let outbox = self.outbox.clone();
        tokio::spawn(async move {
            let report = || v1::AgentMessage { message: Some(agent_message::Message::Report(v1::Report::default())) };
            while outbox.send(report()).await.is_ok() {
                tokio::time::sleep(std::time::Duration::from_millis(500)).await;
            }
        })
    }
}
