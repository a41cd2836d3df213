//! What happens on one connection between agents?
//!
//! The agent that dials speaks, and the agent that accepts listens. Both first prove that they belong to one fleet.

use super::claims::AgentClaims;
use super::handshake::{HandshakeError, admit, greet};
use super::link_keys::LinkKeys;
use super::outbox::Inbound;
use super::secure::{DialledTls, admit_secure, begins_secure, greet_secure};
use super::warning_pace::WarningPace;
use crate::parts::part;
use crate::refused::ReachedLimit;
use crate::shares::{ClientShare, ClientShares};
use apportion_certificates::LinkTls;
use apportion_node::frames::{Burst, Cutter, Joiner, MESSAGE_BYTES_MAX};
use apportion_node::greeting::Dialling;
use apportion_node::node::NodeEvent;
use apportion_node::unwire::{brings_tensors, decode};
use apportion_node::wire::speaker;
use bytes::{BufMut, Bytes, BytesMut};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream, lookup_host};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// How long a peer may take to accept a connection, or to take the next burst.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// After a connection could not be accepted.
const ACCEPT_AGAIN: Duration = Duration::from_millis(200);
/// What the kernel may hold of what was written: a small message waits for that too, so it is little. Enough for 10 Gbit/s
/// at 0.2 ms from one end to the other and back.
const SEND_BUFFER_BYTES: u32 = 256 * 1024;
/// Most connections of other agents; one address may have seven eighths of them.
pub const CONNECTIONS_MAX: usize = 4_096;
/// Most of them that have not greeted yet; one address may have seven eighths of them. Where more agents dial at once, the
/// rest comes again a moment later.
pub const HALF_OPEN_MAX: usize = 256;
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
    /// The two agents have not greeted.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    /// A message is malformed.
    #[error("what came is no message: {0}")]
    Garbage(String),
    /// A message has begun and does not go on.
    #[error("a message has begun and did not go on within {STALL_MAX:?}")]
    Stalled,
    /// A message names another agent than the greeting has proven.
    #[error("a message of agent {said} came on the connection of agent {proven}")]
    Forged {
        /// The agent that has greeted.
        proven: u64,
        /// The agent that the message names.
        said: u64,
    },
    /// The target asks for another protection of links.
    #[error("links are protected in another way from now on, and this one is made again")]
    Reprotected,
    /// The agent has a newer connection.
    #[error("agent {0} has a newer connection")]
    Replaced(u64),
}

/// A link that this agent has dialled, and greeted.
pub(super) enum DialledLink {
    /// Without TLS.
    Plain(TcpStream),
    /// With TLS.
    Secure(Box<DialledTls>),
}

/// Dials an agent and greets it, inside of TLS if there is a certificate for that.
///
/// # Errors
/// [`TalkError`] by cause.
pub(super) async fn dial(address: &str, dialling: &Dialling, tls: Option<&LinkTls>) -> Result<DialledLink, TalkError> {
    let mut stream = connect(address).await?;
    Ok(match tls {
        Some(tls) => DialledLink::Secure(Box::new(greet_secure(stream, dialling, tls).await?)),
        None => {
            greet(&mut stream, dialling).await?;
            DialledLink::Plain(stream)
        }
    })
}

async fn connect(address: &str) -> Result<TcpStream, TalkError> {
    let dialled = async {
        let mut failed = std::io::Error::other("the address has no host");
        for address in lookup_host(address).await? {
            let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
            socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
            match socket.connect(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => failed = error,
            }
        }
        Err(TalkError::Network(failed))
    };
    let stream = tokio::time::timeout(PATIENCE, dialled).await.map_err(|_| TalkError::Slow)??;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Sends what the outbox gives until the connection ends, or until links are protected in another way.
pub(super) async fn send_messages(
    link: DialledLink,
    messages: &mut Inbound,
    until: impl Future<Output = ()>,
) -> Result<(), TalkError> {
    let mut cutter = Cutter::default();
    let sending = async {
        match link {
            DialledLink::Plain(mut stream) => cut_and_send(stream.split(), messages, &mut cutter).await,
            DialledLink::Secure(stream) => cut_and_send(tokio::io::split(*stream), messages, &mut cutter).await,
        }
    };
    let ended = tokio::select! {
        ended = sending => ended,
        () = until => Err(TalkError::Reprotected),
    };
    // Messages that were taken and not sent are lost. Their receivers notice the end of the connection.
    messages.release_bytes(cutter.bytes());
    ended
}

async fn cut_and_send(
    (mut from, mut to): (impl AsyncRead + Unpin, impl AsyncWrite + Unpin),
    messages: &mut Inbound,
    cutter: &mut Cutter,
) -> Result<(), TalkError> {
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
            written = tokio::time::timeout(PATIENCE, write(&mut to, &mut burst)) => written.map_err(|_| TalkError::Slow)??,
        }
    }
}

/// Writes a whole burst. TLS may hold encrypted bytes that the system has not taken yet, and has none after the flush.
async fn write(to: &mut (impl AsyncWrite + Unpin), burst: &mut Burst) -> std::io::Result<()> {
    to.write_all_buf(burst).await?;
    to.flush().await
}

/// What every accepted connection needs.
#[derive(Clone)]
struct Incoming {
    keys: LinkKeys,
    claims: Arc<AgentClaims>,
    warnings: Arc<WarningPace>,
    events: mpsc::Sender<NodeEvent>,
}

/// Accepts the other agents' connections until stopped.
pub async fn listen(listener: TcpListener, keys: LinkKeys, events: mpsc::Sender<NodeEvent>, stop: CancellationToken) {
    let incoming = Incoming { keys, claims: Arc::default(), warnings: Arc::default(), events };
    let (connections, half_open) = (ClientShares::new(CONNECTIONS_MAX), ClientShares::new(HALF_OPEN_MAX));
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
                let Some(greeting) = half_open.take(from.ip(), 1) else {
                    ReachedLimit::PeerHalfOpen.count();
                    tracing::debug!(%from, "a connection is refused: too many have not greeted yet");
                    continue;
                };
                let (incoming, warnings, stop) = (incoming.clone(), incoming.warnings.clone(), stop.clone());
                tokio::spawn(part("agents' connections", async move {
                    tokio::select! {
                        end = receive_messages(stream, incoming, greeting) => log_end(&warnings, from, end),
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

/// Says how a connection ended. Of refused greetings only some are warned of; all are counted.
fn log_end(warnings: &WarningPace, from: SocketAddr, end: Result<(), TalkError>) {
    match end {
        Ok(()) => tracing::debug!(%from, "an agent's connection ended"),
        Err(TalkError::Handshake(error)) if !warnings.is_due(Instant::now()) => {
            tracing::debug!(%from, %error, "a greeting was refused");
        }
        Err(error) => tracing::warn!(%from, %error, "an agent's connection ended"),
    }
}

/// Hears the greeting, and then the messages, until the connection ends. `greeting` is the place of a connection that has
/// not greeted yet.
async fn receive_messages(mut stream: TcpStream, incoming: Incoming, greeting: ClientShare) -> Result<(), TalkError> {
    stream.set_nodelay(true)?;
    let refused = |error: &HandshakeError| error.limit().count();
    if begins_secure(&stream).await.inspect_err(refused)? {
        let (stream, agent) = admit_secure(stream, &incoming.keys).await.inspect_err(refused)?;
        drop(greeting);
        return receive_from(agent, stream, incoming).await;
    }
    let admitted = match incoming.keys.accepts_plain(Instant::now()) {
        true => admit(&mut stream, &incoming.keys).await,
        false => Err(HandshakeError::Plain),
    };
    let agent = admitted.inspect_err(refused)?;
    drop(greeting);
    receive_from(agent, stream, incoming).await
}

/// Takes the messages of an agent that has proven its number, until the connection ends or a newer one replaces it.
async fn receive_from(agent: u64, stream: impl AsyncRead + Unpin, incoming: Incoming) -> Result<(), TalkError> {
    let claim = incoming.claims.claim(agent);
    tokio::select! {
        end = read_messages(stream, incoming.events, agent) => end,
        () = claim.replaced() => Err(TalkError::Replaced(agent)),
    }
}

/// Hands the messages of an agent to the node until the connection ends.
async fn read_messages(
    mut stream: impl AsyncRead + Unpin,
    events: mpsc::Sender<NodeEvent>,
    agent: u64,
) -> Result<(), TalkError> {
    let garbage = |e: String| {
        ReachedLimit::PeerMessage.count();
        TalkError::Garbage(e)
    };
    let (mut buffer, mut joiner) = (BytesMut::with_capacity(READ_BYTES), Joiner::default());
    loop {
        while let Some(message) = joiner.take(&mut buffer).map_err(|e| garbage(e.to_string()))? {
            if !hand_to_node(message, &events, agent).await? {
                return Ok(());
            }
        }
        // A chunk of a large message is read to where it belongs; the heads and the small ones come by way of the buffer.
        let read = match joiner.space() {
            Some((space, left)) if buffer.is_empty() => {
                let read = in_time(stream.read_buf(&mut space.limit(left))).await?;
                if read > 0
                    && let Some(message) = joiner.came(read)
                    && !hand_to_node(message, &events, agent).await?
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
                if is_between { ended_or_read(read.await)? } else { in_time(read).await? }
            }
        };
        if read == 0 {
            let between = buffer.is_empty() && joiner.open_bytes() == 0;
            return if between { Ok(()) } else { Err(TalkError::Short) };
        }
    }
}

/// Waits for more bytes of a message that has begun.
async fn in_time(read: impl Future<Output = std::io::Result<usize>>) -> Result<usize, TalkError> {
    Ok(ended_or_read(tokio::time::timeout(STALL_MAX, read).await.map_err(|_| TalkError::Stalled)?)?)
}

/// An agent hangs up without a farewell of TLS. That is the end as without TLS: messages say themselves how long they are.
fn ended_or_read(read: std::io::Result<usize>) -> std::io::Result<usize> {
    match read {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(0),
        read => read,
    }
}

/// Hands a message of this agent to the node; false if the node is gone.
async fn hand_to_node(message: Bytes, events: &mpsc::Sender<NodeEvent>, agent: u64) -> Result<bool, TalkError> {
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
    if let Some(said) = speaker(&message).filter(|said| *said != agent) {
        ReachedLimit::PeerClaim.count();
        return Err(TalkError::Forged { proven: agent, said });
    }
    Ok(events.send(NodeEvent::Message(message)).await.is_ok())
}

#[cfg(test)]
mod tests;
