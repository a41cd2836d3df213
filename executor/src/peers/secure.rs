//! How does TLS begin on a link, and which certificate must the other end show?
//!
//! The greeting follows inside. It binds the numbers and the target; the certificates bind the same numbers.

use super::handshake::{GREETING_TIME_MAX, HandshakeError, TARGET_WAIT_MAX, admit, greet, wait_a_look};
use super::link_keys::LinkKeys;
use apportion_certificates::{LinkTls, agent_name, is_named, link_name};
use apportion_node::greeting::Dialling;
use std::time::Instant;
use tokio::io::BufReader;
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

/// A link that this agent has dialled.
pub(super) type DialledTls = client::TlsStream<TcpStream>;
/// A link that this agent has accepted. TLS reads 4 KiB at a time, and the buffer asks the system for more at once.
pub(super) type AcceptedTls = server::TlsStream<BufReader<TcpStream>>;

/// What is read of a link at once.
const READ_BYTES: usize = 64 * 1024;
/// The first byte of a connection with TLS: a record of its handshake. No greeting begins with it.
const TLS_FIRST_BYTE: u8 = 22;

/// Begins TLS on a connection to an agent, and greets it.
///
/// # Errors
/// [`HandshakeError`] by cause.
pub(super) async fn greet_secure(
    stream: TcpStream,
    dialling: &Dialling,
    tls: &LinkTls,
) -> Result<DialledTls, HandshakeError> {
    let begun = TlsConnector::from(tls.client()).connect(link_name(dialling.ends.to), stream);
    let begun = tokio::time::timeout(GREETING_TIME_MAX, begun).await.map_err(|_| HandshakeError::Slow)?;
    let mut stream = begun.map_err(HandshakeError::Certificate)?;
    greet(&mut stream, dialling).await?;
    Ok(stream)
}

/// Whether an accepted connection begins with TLS. Nothing is read from it.
///
/// # Errors
/// [`HandshakeError`] by cause.
pub(super) async fn begins_secure(stream: &TcpStream) -> Result<bool, HandshakeError> {
    let mut first = [0; 1];
    let peeked = tokio::time::timeout(GREETING_TIME_MAX, stream.peek(&mut first)).await;
    match peeked.map_err(|_| HandshakeError::Slow)?? {
        0 => Err(HandshakeError::Network(std::io::ErrorKind::UnexpectedEof.into())),
        _ => Ok(first[0] == TLS_FIRST_BYTE),
    }
}

/// Begins TLS on an accepted connection, and hears its greeting. Returns the number of the agent, which greeting and
/// certificate have proven.
///
/// # Errors
/// [`HandshakeError`] by cause.
pub(super) async fn admit_secure(stream: TcpStream, keys: &LinkKeys) -> Result<(AcceptedTls, u64), HandshakeError> {
    let begun = async {
        let tls = own_certificate(keys).await.ok_or(HandshakeError::NoCertificate)?;
        let accepting = TlsAcceptor::from(tls.server()).accept(BufReader::with_capacity(READ_BYTES, stream));
        accepting.await.map_err(HandshakeError::Certificate)
    };
    let mut stream = tokio::time::timeout(GREETING_TIME_MAX, begun).await.map_err(|_| HandshakeError::Slow)??;
    let agent = admit(&mut stream, keys).await?;
    let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    match shown.is_some_and(|certificate| is_named(certificate, &agent_name(agent))) {
        true => Ok((stream, agent)),
        false => Err(HandshakeError::OtherCertificate(agent)),
    }
}

/// The certificate of this agent. It waits for a while, because another agent may hear of a target first.
async fn own_certificate(keys: &LinkKeys) -> Option<LinkTls> {
    let begun = Instant::now();
    loop {
        let found = keys.tls(keys.current().own());
        if found.is_some() || begun.elapsed() >= TARGET_WAIT_MAX {
            return found;
        }
        wait_a_look().await;
    }
}
