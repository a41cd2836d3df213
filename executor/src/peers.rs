//! Connections between agents. Each agent dials every other: what it has to say goes over the connection that it dialled, what it
//! is told comes over those it accepted. A dialled connection that ends is noticed at once and dialled again.

use crate::node::Event;
use crate::unwire::decode;
use crate::wire::{FRAME_BYTES_MAX, Message, encode};
use bytes::BytesMut;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Messages that wait for one peer; more mean that it does not take them and the connection is given up.
const OUTBOX_MAX: usize = 65_536;
/// Between two attempts to reach a peer.
const REDIAL: Duration = Duration::from_millis(200);
/// How long a peer may take to accept a connection, or a write.
const PATIENCE: Duration = Duration::from_secs(5);
/// First bytes of a connection: whoever dials is an agent of this version.
const GREETING: [u8; 8] = *b"apport02";

/// The way to one agent.
struct Link {
    address: String,
    outbox: mpsc::Sender<Message>,
    stop: CancellationToken,
    /// Whether the agent is in the target: one that is not keeps its connection as long as it lasts, because requests of
    /// its gateway may still be on their way, and is not dialled again.
    wanted: Arc<AtomicBool>,
    dialling: JoinHandle<()>,
}

/// The ways to all other agents.
pub struct Peers {
    links: HashMap<u64, Link>,
    events: mpsc::Sender<Event>,
}

impl Peers {
    /// No peers yet.
    #[must_use]
    pub fn new(events: mpsc::Sender<Event>) -> Self {
        Self { links: HashMap::new(), events }
    }

    /// Dials these agents; those that are not among them any more keep a connection that is up.
    pub fn set(&mut self, agents: &BTreeMap<u64, String>, own: u64) {
        self.links.retain(|_, link| !link.dialling.is_finished());
        let moved = |agent: u64, address: &str| agent == own || agents.get(&agent).is_some_and(|a| a != address);
        let gone: Vec<u64> = self.links.iter().filter(|(a, l)| moved(**a, &l.address)).map(|(a, _)| *a).collect();
        let mut ended = HashMap::new();
        for agent in gone {
            let link = self.links.remove(&agent).expect("it was there");
            link.stop.cancel();
            ended.insert(agent, link.dialling);
        }
        self.links.iter().for_each(|(agent, link)| link.wanted.store(agents.contains_key(agent), Relaxed));
        for (agent, address) in agents.iter().filter(|(agent, _)| **agent != own) {
            if !self.links.contains_key(agent) {
                let (outbox, messages) = mpsc::channel(OUTBOX_MAX);
                let stop = CancellationToken::new();
                let wanted = Arc::new(AtomicBool::new(true));
                let dial = Dial { agent: *agent, address: address.clone(), wanted: wanted.clone(), stop: stop.clone() };
                let keep_dialling = dial.keep_dialling(messages, self.events.clone());
                let before = ended.remove(agent);
                let dialling = tokio::spawn(async move {
                    // The end of the way to the old address must be told before the new way is.
                    if let Some(before) = before {
                        let _ended = before.await;
                    }
                    keep_dialling.await;
                });
                self.links.insert(*agent, Link { address: address.clone(), outbox, stop, wanted, dialling });
            }
        }
    }

    /// Sends a message, or drops it if there is no way: what was sent and lost is noticed by whoever waits for it.
    pub fn send(&self, agent: u64, message: Message) {
        let sent = self.links.get(&agent).is_some_and(|link| link.outbox.try_send(message).is_ok());
        if !sent {
            tracing::debug!(agent, "no way to this agent: a message is dropped");
        }
    }
}

/// One agent that is dialled.
struct Dial {
    agent: u64,
    address: String,
    wanted: Arc<AtomicBool>,
    stop: CancellationToken,
}

impl Dial {
    async fn keep_dialling(self, mut messages: mpsc::Receiver<Message>, events: mpsc::Sender<Event>) {
        let ended = tokio::select! {
            () = self.dial(&mut messages, &events) => true,
            () = self.stop.cancelled() => false,
        };
        if !ended {
            let _stopping = events.send(Event::PeerDown(self.agent)).await;
        }
    }

    async fn dial(&self, messages: &mut mpsc::Receiver<Message>, events: &mpsc::Sender<Event>) {
        let (agent, address) = (self.agent, &self.address);
        let mut complained = false;
        while self.wanted.load(Relaxed) {
            match tokio::time::timeout(PATIENCE, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    if events.send(Event::PeerUp(agent)).await.is_err() {
                        return;
                    }
                    let end = talk(stream, messages).await;
                    tracing::warn!(agent, address, error = ?end.err(), "the connection to an agent has ended");
                    complained = true;
                    if events.send(Event::PeerDown(agent)).await.is_err() {
                        return;
                    }
                }
                failed if !complained => {
                    tracing::warn!(agent, address, ?failed, "an agent cannot be reached; trying on");
                    complained = true;
                }
                _ => {}
            }
            tokio::time::sleep(REDIAL).await;
        }
    }
}

async fn talk(mut stream: TcpStream, messages: &mut mpsc::Receiver<Message>) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut from, mut to) = stream.split();
    to.write_all(&GREETING).await?;
    let mut nothing = [0; 1];
    loop {
        tokio::select! {
            // The other end never speaks here: a read ends when the connection does.
            read = from.read(&mut nothing) => return read.map(|_| ()),
            message = messages.recv() => {
                let Some(message) = message else { return Ok(()) };
                let mut out = BytesMut::new();
                frame(&mut out, &message);
                while out.len() < 1 << 16 && let Ok(message) = messages.try_recv() {
                    frame(&mut out, &message);
                }
                match tokio::time::timeout(PATIENCE, to.write_all(&out)).await {
                    Ok(written) => written?,
                    Err(_) => return Err(std::io::ErrorKind::TimedOut.into()),
                }
            }
        }
    }
}

fn frame(out: &mut BytesMut, message: &Message) {
    let bytes = encode(message);
    if bytes.len() > FRAME_BYTES_MAX {
        tracing::error!(bytes = bytes.len(), "a message is too large for the agents' protocol and is dropped");
        return;
    }
    out.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
    out.extend_from_slice(&bytes);
}

/// Accepts the other agents' connections until stopped.
pub async fn listen(listener: TcpListener, events: mpsc::Sender<Event>, stop: CancellationToken) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => return,
        };
        match accepted {
            Ok((stream, from)) => {
                let (events, stop) = (events.clone(), stop.clone());
                tokio::spawn(async move {
                    tokio::select! {
                        end = hear(stream, events) => tracing::debug!(%from, ?end, "an agent's connection ended"),
                        () = stop.cancelled() => {}
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(REDIAL).await;
            }
        }
    }
}

async fn hear(mut stream: TcpStream, events: mpsc::Sender<Event>) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut greeting = GREETING;
    stream.read_exact(&mut greeting).await?;
    if greeting != GREETING {
        return Err(std::io::Error::other("not an agent of this version"));
    }
    let mut buffer = BytesMut::with_capacity(1 << 16);
    loop {
        while buffer.len() < 4 {
            if stream.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
        }
        let length = u32::from_be_bytes(buffer[..4].try_into().expect("4 bytes")) as usize;
        if length > FRAME_BYTES_MAX {
            return Err(std::io::Error::other(format!("a frame of {length} bytes")));
        }
        buffer.reserve((4 + length).saturating_sub(buffer.len()));
        while buffer.len() < 4 + length {
            if stream.read_buf(&mut buffer).await? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
        }
        let frame = buffer.split_to(4 + length).freeze().slice(4..);
        let message = decode(frame).map_err(std::io::Error::other)?;
        if events.send(Event::Message(message)).await.is_err() {
            return Ok(());
        }
    }
}
