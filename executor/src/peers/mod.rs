//! How do agents connect to each other?
//!
//! Each agent dials every other agent. It sends over the connections that it dialled, and receives over those that it
//! accepted. When a dialled connection ends, the agent notices at once and dials again. Each connection begins with a
//! greeting that proves the numbers of both agents ([`apportion_node::greeting`]). Where the target asks for it, TLS with
//! the certificates of both agents is around it.

mod claims;
mod connection;
mod handshake;
mod link_keys;
mod outbox;
mod secure;
mod warning_pace;

pub use connection::{CONNECTIONS_MAX, CONTROL_BYTES_MAX, HALF_OPEN_MAX, STALL_MAX, TalkError, listen};
pub use handshake::{GREETING_TIME_MAX, HandshakeError};
pub use link_keys::{LinkKeys, LinkProtection, SWITCH_MAX};
pub use outbox::SendError;

use crate::parts::part;
use apportion_node::greeting::{Dialling, LinkEnds};
use apportion_node::node::NodeEvent;
use apportion_node::wire::Message;
use handshake::new_nonce;
use outbox::{Inbound, Outbound};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Between two attempts to reach a peer.
const REDIAL: Duration = Duration::from_millis(200);

/// The way to one agent.
struct Link {
    address: String,
    /// The number of this agent that the connection proves.
    own: u64,
    outbox: Outbound,
    stop: CancellationToken,
    /// Whether the agent is in the target. Another agent keeps its connection as long as it lasts, because requests of its
    /// gateway may still be on their way. It is not dialled again.
    wanted: Arc<AtomicBool>,
    dialling: JoinHandle<()>,
}

/// The ways to all other agents.
pub struct PeerLinks {
    links: HashMap<u64, Link>,
    keys: LinkKeys,
    events: mpsc::Sender<NodeEvent>,
}

impl PeerLinks {
    /// No peers yet. Greetings use these keys.
    #[must_use]
    pub fn new(events: mpsc::Sender<NodeEvent>, keys: LinkKeys) -> Self {
        Self { links: HashMap::new(), keys, events }
    }

    /// Dials these agents; those that are not among them any more keep a connection that is up. An agent that has got
    /// another number dials all of them again, because its connections prove the last one.
    pub fn set(&mut self, agents: &BTreeMap<u64, String>, own: u64) {
        self.links.retain(|_, link| !link.dialling.is_finished());
        let moved = |agent: u64, link: &Link| {
            agent == own || link.own != own || agents.get(&agent).is_some_and(|address| *address != link.address)
        };
        let gone: Vec<u64> =
            self.links.iter().filter(|&(agent, link)| moved(*agent, link)).map(|(agent, _)| *agent).collect();
        let mut ended = HashMap::new();
        for agent in gone {
            let link = self.links.remove(&agent).expect("it was there");
            link.stop.cancel();
            ended.insert(agent, link.dialling);
        }
        self.links.iter().for_each(|(agent, link)| link.wanted.store(agents.contains_key(agent), Relaxed));
        for (agent, address) in agents.iter().filter(|(agent, _)| **agent != own) {
            if !self.links.contains_key(agent) {
                let (outbox, messages) = outbox::outbox();
                let stop = CancellationToken::new();
                let wanted = Arc::new(AtomicBool::new(true));
                let dial = Dial {
                    ends: LinkEnds { from: own, to: *agent },
                    address: address.clone(),
                    keys: self.keys.clone(),
                    wanted: wanted.clone(),
                    stop: stop.clone(),
                };
                let keep_dialling = dial.keep_dialling(messages, self.events.clone());
                let before = ended.remove(agent);
                let dialling = tokio::spawn(part("agents' connections", async move {
                    // The end of the way to the old address must be told before the new way is.
                    if let Some(before) = before {
                        let _ended = before.await;
                    }
                    keep_dialling.await;
                }));
                self.links.insert(*agent, Link { address: address.clone(), own, outbox, stop, wanted, dialling });
            }
        }
    }

    /// Sends a message. It may still be lost with its connection. Its receiver notices the loss.
    ///
    /// # Errors
    /// [`SendError`] if it was not even queued.
    pub fn send(&self, agent: u64, message: &Message) -> Result<(), SendError> {
        self.links.get(&agent).ok_or(SendError::NoWay)?.outbox.send(message)
    }
}

/// One agent that is dialled.
struct Dial {
    ends: LinkEnds,
    address: String,
    keys: LinkKeys,
    wanted: Arc<AtomicBool>,
    stop: CancellationToken,
}

impl Dial {
    async fn keep_dialling(self, mut messages: Inbound, events: mpsc::Sender<NodeEvent>) {
        let ended = tokio::select! {
            () = self.dial(&mut messages, &events) => true,
            () = self.stop.cancelled() => false,
        };
        if !ended {
            let _stopping = events.send(NodeEvent::PeerDown(self.ends.to)).await;
        }
    }

    /// A greeting with the keys in force; none while there is no key, or none for this number.
    fn greeting(&self) -> Option<Dialling> {
        let keyring = self.keys.current();
        let keys = keyring.pair(self.ends.to).filter(|_| keyring.own() == self.ends.from)?;
        Some(Dialling { ends: self.ends, keys: keys.clone(), nonce: new_nonce() })
    }

    async fn dial(&self, messages: &mut Inbound, events: &mpsc::Sender<NodeEvent>) {
        let (agent, address) = (self.ends.to, &self.address);
        let mut complained = false;
        while self.wanted.load(Relaxed) {
            let protection = self.keys.protection();
            let tls = (protection == LinkProtection::Tls).then(|| self.keys.tls(self.ends.from));
            let lacks_certificate = matches!(tls, Some(None));
            if lacks_certificate && !complained {
                tracing::warn!(agent, "links have TLS, and this agent has no certificate yet; trying on");
                complained = true;
            }
            let Some(greeting) = self.greeting().filter(|_| !lacks_certificate) else {
                tokio::time::sleep(REDIAL).await;
                continue;
            };
            match connection::dial(address, &greeting, tls.flatten().as_ref()).await {
                Ok(link) => {
                    if events.send(NodeEvent::PeerUp(agent)).await.is_err() {
                        return;
                    }
                    let until = self.keys.protected_otherwise(protection);
                    let end = connection::send_messages(link, messages, until).await;
                    tracing::warn!(agent, address, error = ?end.err(), "the connection to an agent has ended");
                    complained = true;
                    if events.send(NodeEvent::PeerDown(agent)).await.is_err() {
                        return;
                    }
                }
                Err(error) if !complained => {
                    tracing::warn!(agent, address, %error, "an agent cannot be reached; trying on");
                    complained = true;
                }
                Err(_) => {}
            }
            tokio::time::sleep(REDIAL).await;
        }
    }
}
