//! What happens on one connection between agents?
//!
//! The agent that dials speaks, and the agent that accepts listens. Both first exchange versions, so that agents of
//! different versions say so instead of misreading tensors.

use super::claims::{AgentClaim, AgentClaims};
use super::outbox::Inbound;
use crate::parts::part;
use crate::refused::ReachedLimit;
use crate::shares::ClientShares;
use apportion_node::frames::{Cutter, Joiner, MESSAGE_BYTES_MAX};
use apportion_node::node::NodeEvent;
use apportion_node::unwire::{brings_tensors, decode};
use apportion_node::wire::{Message, speaker};
use bytes::{BufMut, Bytes, BytesMut};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream, lookup_host};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// How long a peer may take to accept a connection, to greet, or to take the next burst.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// After a connection could not be accepted.
const ACCEPT_AGAIN: Duration = Duration::from_millis(200);
/// First bytes of a connection in both directions: they name an agent, and the version of the protocol that follows.
const GREETING: [u8; 8] = *b"apport08";
/// The part of the greeting that all versions share.
const NAME_BYTES: usize = 6;
/// What the kernel may hold of what was written: a small message waits for that too, so it is little. Enough for 10 Gbit/s
/// at 0.2 ms from one end to the other and back.
const SEND_BUFFER_BYTES: u32 = 256 * 1024;
/// Most connections of other agents; one address may have seven eighths of them.
pub const CONNECTIONS_MAX: usize = 4_096;
/// Largest message that brings no tensors, in bytes: readiness, measurements, steering.
pub const CONTROL_BYTES_MAX: usize = 1024 * 1024;
/// How long the rest of a message that has begun may take to go on.
pub const STALL_MAX: Duration = Duration::from_secs(30);
/// What is read at once.
const READ_BYTES: usize = 64 * 1024;

/// Why a connection has ended.
#[derive(Debug, thiserror::Error)]
pub enum TalkError {
    /// The network says so.
    #[error(transparent)]
    Network(#[from] std::io::Error),
    /// It does not take what it is sent, or does not answer.
    #[error("the other agent did not answer within {PATIENCE:?}")]
    Slow,
    /// It ended where it must not.
    #[error("the connection ended within a message")]
    Short,
    /// The other end speaks another version.
    #[error("the other agent speaks version {theirs} of the agents' protocol, this one version {ours}: run the same release of \
             apportion-agent on both", ours = version(&GREETING))]
    Version {
        /// What it greeted with.
        theirs: String,
    },
    /// The other end hung up when it was greeted.
    #[error("the other agent hung up at the greeting: it may be older than version {} of the agents' protocol, or no agent \
             at all", version(&GREETING))]
    HungUp,
    /// The other end is another program.
    #[error("what is there is no agent")]
    Stranger,
    /// A message is malformed.
    #[error("what came is no message: {0}")]
    Garbage(String),
    /// A message has begun and does not go on.
    #[error("a message has begun and did not go on within {STALL_MAX:?}")]
    Stalled,
    /// It speaks for an agent that has another connection.
    #[error("it speaks for agent {0}, which has another connection and was heard of lately")]
    Claimed(u64),
}

fn version(greeting: &[u8; 8]) -> String {
    String::from_utf8_lossy(&greeting[NAME_BYTES..]).into_owned()
}

fn check(greeting: &[u8; 8]) -> Result<(), TalkError> {
    match greeting {
        ours if *ours == GREETING => Ok(()),
        other if other[..NAME_BYTES] == GREETING[..NAME_BYTES] => Err(TalkError::Version { theirs: version(other) }),
        _ => Err(TalkError::Stranger),
    }
}

/// Dials an agent and exchanges greetings.
///
/// # Errors
/// [`TalkError`] by cause.
pub(super) async fn dial(address: &str) -> Result<TcpStream, TalkError> {
    let dialled = async {
        let mut failed = std::io::Error::other("the address has no host");
        for address in lookup_host(address).await? {
            let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
            socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
            match socket.connect(address).await {
                Ok(stream) => return exchange_versions(stream).await,
                Err(error) => failed = error,
            }
        }
        Err(failed.into())
    };
    tokio::time::timeout(PATIENCE, dialled).await.map_err(|_| TalkError::Slow)?
}

async fn exchange_versions(mut stream: TcpStream) -> Result<TcpStream, TalkError> {
    stream.set_nodelay(true)?;
    stream.write_all(&GREETING).await?;
    let mut answer = [0; GREETING.len()];
    match stream.read_exact(&mut answer).await {
        Ok(_) => check(&answer).map(|()| stream),
        Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => Err(TalkError::HungUp),
        Err(e) => Err(e.into()),
    }
}

/// Sends what the outbox gives until the connection ends.
pub(super) async fn send_messages(mut stream: TcpStream, messages: &mut Inbound) -> Result<(), TalkError> {
    let mut cutter = Cutter::default();
    let ended = cut_and_send(&mut stream, messages, &mut cutter).await;
    // Messages that were taken and not sent are lost. Their receivers notice the end of the connection.
    messages.release_bytes(cutter.bytes());
    ended
}

async fn cut_and_send(stream: &mut TcpStream, messages: &mut Inbound, cutter: &mut Cutter) -> Result<(), TalkError> {
    let (mut from, mut to) = stream.split();
    let mut nothing = [0; 1];
    loop {
        messages.fill(cutter);
        if cutter.is_empty() {
            tokio::select! {
                // The other end has greeted and never speaks again: a read ends when the connection does.
                read = from.read(&mut nothing) => return read.map(|_| ()).map_err(TalkError::from),
                more = messages.wait(cutter) => if more { continue } else { return Ok(()) },
            }
        }
        let mut burst = cutter.burst();
        messages.release_bytes(burst.message_bytes());
        tokio::select! {
            read = from.read(&mut nothing) => return read.map(|_| ()).map_err(TalkError::from),
            written = tokio::time::timeout(PATIENCE, to.write_all_buf(&mut burst)) => written.map_err(|_| TalkError::Slow)??,
        }
    }
}

/// Accepts the other agents' connections until stopped.
pub async fn listen(listener: TcpListener, events: mpsc::Sender<NodeEvent>, stop: CancellationToken) {
    let (claims, connections) = (Arc::<AgentClaims>::default(), ClientShares::new(CONNECTIONS_MAX));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => return,
        };
        match accepted {
            Ok((stream, from)) => {
                let Some(place) = connections.take(from.ip(), 1) else {
                    ReachedLimit::PeerConnections.count();
                    tracing::debug!(%from, "an agent's connection is refused: there are too many");
                    continue;
                };
                let (events, stop, claim) = (events.clone(), stop.clone(), claims.open());
                tokio::spawn(part("agents' connections", async move {
                    tokio::select! {
                        end = receive_messages(stream, events, claim) => match end {
                            Ok(()) => tracing::debug!(%from, "an agent's connection ended"),
                            Err(error) => tracing::warn!(%from, %error, "an agent's connection ended"),
                        },
                        () = stop.cancelled() => {}
                    }
                    drop(place);
                }));
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

async fn receive_messages(
    mut stream: TcpStream,
    events: mpsc::Sender<NodeEvent>,
    claim: AgentClaim,
) -> Result<(), TalkError> {
    stream.set_nodelay(true)?;
    let mut greeting = GREETING;
    let greeted = async {
        stream.read_exact(&mut greeting).await?;
        // An agent of another version learns ours before the connection ends, and can name it in its log.
        stream.write_all(&GREETING).await
    };
    tokio::time::timeout(PATIENCE, greeted).await.map_err(|_| TalkError::Slow)??;
    check(&greeting)?;
    read_messages(stream, events, claim).await
}

async fn read_messages(
    mut stream: TcpStream,
    events: mpsc::Sender<NodeEvent>,
    mut claim: AgentClaim,
) -> Result<(), TalkError> {
    let garbage = |e: String| {
        ReachedLimit::PeerMessage.count();
        TalkError::Garbage(e)
    };
    let (mut buffer, mut joiner) = (BytesMut::with_capacity(READ_BYTES), Joiner::default());
    loop {
        while let Some(message) = joiner.take(&mut buffer).map_err(|e| garbage(e.to_string()))? {
            if !hand_to_node(message, &events, &mut claim).await? {
                return Ok(());
            }
        }
        // A chunk of a large message is read to where it belongs; the heads and the small ones come by way of the buffer.
        let read = match joiner.space() {
            Some((space, left)) if buffer.is_empty() => {
                let read = in_time(stream.read_buf(&mut space.limit(left))).await?;
                if read > 0
                    && let Some(message) = joiner.came(read)
                    && !hand_to_node(message, &events, &mut claim).await?
                {
                    return Ok(());
                }
                read
            }
            _ => {
                buffer.reserve(READ_BYTES);
                let (wants, is_between) =
                    (joiner.wants(&buffer, READ_BYTES), buffer.is_empty() && joiner.open_bytes() == 0);
                let mut into = (&mut buffer).limit(wants);
                let read = stream.read_buf(&mut into);
                if is_between { read.await? } else { in_time(read).await? }
            }
        };
        if !claim.is_heard(Instant::now()) {
            return Ok(());
        }
        if read == 0 {
            let between = buffer.is_empty() && joiner.open_bytes() == 0;
            return if between { Ok(()) } else { Err(TalkError::Short) };
        }
    }
}

/// Waits for more bytes of a message that has begun.
async fn in_time(read: impl Future<Output = std::io::Result<usize>>) -> Result<usize, TalkError> {
    Ok(tokio::time::timeout(STALL_MAX, read).await.map_err(|_| TalkError::Stalled)??)
}

/// Hands a message to the node; false if it is gone.
async fn hand_to_node(message: Bytes, events: &mpsc::Sender<NodeEvent>, claim: &mut AgentClaim) -> Result<bool, TalkError> {
    debug_assert!(message.len() <= MESSAGE_BYTES_MAX);
    let garbage = |e: String| {
        ReachedLimit::PeerMessage.count();
        TalkError::Garbage(e)
    };
    let bytes = message.len();
    if bytes > CONTROL_BYTES_MAX && message.first().is_some_and(|kind| !brings_tensors(*kind)) {
        return Err(garbage(format!("{bytes} bytes without tensors: expected at most {CONTROL_BYTES_MAX}")));
    }
    let message = decode(message).map_err(|e| garbage(e.to_string()))?;
    if let Some(agent) = speaker(&message)
        && !claim.speaks_for(agent, Instant::now())
    {
        ReachedLimit::PeerClaim.count();
        return Err(TalkError::Claimed(agent));
    }
    // Its sender says it again each second.
    if matches!(message, Message::Steering(_)) && !claim.is_made() {
        ReachedLimit::PeerClaim.count();
        return Ok(true);
    }
    Ok(events.send(NodeEvent::Message(message)).await.is_ok())
}

#[cfg(test)]
mod tests;
