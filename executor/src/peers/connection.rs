//! One connection between agents: whoever dials speaks, whoever accepts listens. Both greet first, so that agents that do
//! not understand each other say so instead of misreading tensors.

use super::outbox::Inbound;
use crate::frames::{Cutter, Joiner, MESSAGE_BYTES_MAX};
use crate::node::Event;
use crate::parts::part;
use crate::unwire::decode;
use bytes::{BufMut, Bytes, BytesMut};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream, lookup_host};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// How long a peer may take to accept a connection, to greet, or to take the next burst.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// After a connection could not be accepted.
const ACCEPT_AGAIN: Duration = Duration::from_millis(200);
/// First bytes of a connection in both directions: an agent, and the version of what follows. 03 had no joins, 04 no
/// levels, no loads and no traces, and smaller chunks, 05 no ends for want of a replica; 06 said too seldom that it lives.
const GREETING: [u8; 8] = *b"apport07";
/// The part of the greeting that all versions share.
const NAME_BYTES: usize = 6;
/// What the kernel may hold of what was written: a small message waits for that too, so it is little. Enough for 10 Gbit/s
/// at 0.2 ms from one end to the other and back.
const SEND_BUFFER_BYTES: u32 = 256 * 1024;
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
    /// The other end is no agent.
    #[error("what is there is no agent")]
    Stranger,
    /// What came is no message.
    #[error("what came is no message: {0}")]
    Garbage(String),
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
                Ok(stream) => return greet(stream).await,
                Err(error) => failed = error,
            }
        }
        Err(failed.into())
    };
    tokio::time::timeout(PATIENCE, dialled).await.map_err(|_| TalkError::Slow)?
}

async fn greet(mut stream: TcpStream) -> Result<TcpStream, TalkError> {
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
pub(super) async fn talk(mut stream: TcpStream, messages: &mut Inbound) -> Result<(), TalkError> {
    let mut cutter = Cutter::default();
    let ended = cut_and_send(&mut stream, messages, &mut cutter).await;
    // What was taken and not sent is lost with the connection: whoever waits for it notices its end.
    messages.settle(cutter.bytes());
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
        messages.settle(burst.message_bytes());
        tokio::select! {
            read = from.read(&mut nothing) => return read.map(|_| ()).map_err(TalkError::from),
            written = tokio::time::timeout(PATIENCE, to.write_all_buf(&mut burst)) => written.map_err(|_| TalkError::Slow)??,
        }
    }
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
                tokio::spawn(part("agents' connections", async move {
                    tokio::select! {
                        end = hear(stream, events) => match end {
                            Ok(()) => tracing::debug!(%from, "an agent's connection ended"),
                            Err(error) => tracing::warn!(%from, %error, "an agent's connection ended"),
                        },
                        () = stop.cancelled() => {}
                    }
                }));
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

async fn hear(mut stream: TcpStream, events: mpsc::Sender<Event>) -> Result<(), TalkError> {
    stream.set_nodelay(true)?;
    let mut greeting = GREETING;
    let greeted = async {
        stream.read_exact(&mut greeting).await?;
        // Whoever greets in another version hears ours before the connection ends, and can say so.
        stream.write_all(&GREETING).await
    };
    tokio::time::timeout(PATIENCE, greeted).await.map_err(|_| TalkError::Slow)??;
    check(&greeting)?;
    read_messages(stream, events).await
}

async fn read_messages(mut stream: TcpStream, events: mpsc::Sender<Event>) -> Result<(), TalkError> {
    let garbage = |e: String| TalkError::Garbage(e);
    let (mut buffer, mut joiner) = (BytesMut::with_capacity(READ_BYTES), Joiner::default());
    loop {
        while let Some(message) = joiner.take(&mut buffer).map_err(|e| garbage(e.to_string()))? {
            if !pass(message, &events).await? {
                return Ok(());
            }
        }
        // A chunk of a large message is read to where it belongs; the heads and the small ones come by way of the buffer.
        let read = match joiner.space() {
            Some((space, left)) if buffer.is_empty() => {
                let read = stream.read_buf(&mut space.limit(left)).await?;
                if read > 0
                    && let Some(message) = joiner.came(read)
                    && !pass(message, &events).await?
                {
                    return Ok(());
                }
                read
            }
            _ => {
                buffer.reserve(READ_BYTES);
                let wants = joiner.wants(&buffer, READ_BYTES);
                stream.read_buf(&mut (&mut buffer).limit(wants)).await?
            }
        };
        if read == 0 {
            let between = buffer.is_empty() && joiner.open_bytes() == 0;
            return if between { Ok(()) } else { Err(TalkError::Short) };
        }
    }
}

/// Hands a message to the node; false if it is gone.
async fn pass(message: Bytes, events: &mpsc::Sender<Event>) -> Result<bool, TalkError> {
    debug_assert!(message.len() <= MESSAGE_BYTES_MAX);
    let message = decode(message).map_err(|e| TalkError::Garbage(e.to_string()))?;
    Ok(events.send(Event::Message(message)).await.is_ok())
}

#[cfg(test)]
mod tests;
