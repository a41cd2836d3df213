//! How do two agents greet on a new connection?
//!
//! [`apportion_node::greeting`] has the messages, and this module sends them in a bounded time.

use super::link_keys::LinkKeys;
use crate::refused::ReachedLimit;
use apportion_node::greeting::{
    ANSWER_BYTES, Admission, Dialling, GREETING, GreetingError, HELLO_BYTES, Nonce, PROOF_BYTES, check_version,
};
use std::io::ErrorKind;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// How long a connection may take to greet, from the first byte to the last proof.
pub const GREETING_TIME_MAX: Duration = Duration::from_secs(5);

/// How long a hello waits for the target that names its numbers. Two agents get a new target at nearly the same time.
pub(super) const TARGET_WAIT_MAX: Duration = Duration::from_secs(1);
/// Pause between two looks at the target.
const LOOK_AT_TARGET_EVERY: Duration = Duration::from_millis(20);

/// Why two agents have not greeted.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// The network says so, or the connection ended within the greeting.
    #[error(transparent)]
    Network(#[from] std::io::Error),
    /// It took too long.
    #[error("the greeting was not over within {GREETING_TIME_MAX:?}")]
    Slow,
    /// The agent that was dialled hung up.
    #[error(
        "the other agent hung up at the greeting: its target does not name this agent yet, or it has another key, or it is \
         no agent of this release"
    )]
    HungUp,
    /// A message of the greeting is wrong.
    #[error(transparent)]
    Greeting(#[from] GreetingError),
    /// TLS did not begin: one of the certificates does not count.
    #[error("TLS did not begin on the link: {0}")]
    Certificate(std::io::Error),
    /// This agent has no certificate to begin TLS with.
    #[error("TLS began on the link, and this agent has no certificate of its number that counts")]
    NoCertificate,
    /// The certificate is of another agent than the greeting.
    #[error("the greeting is of agent {0}, and the certificate of another one")]
    OtherCertificate(u64),
    /// The connection has no TLS, and the target asks for it.
    #[error("the link has no TLS, which the target asks for (`apportion serve --links tls`)")]
    Plain,
}

impl HandshakeError {
    /// The count of such refusals.
    pub(super) fn limit(&self) -> ReachedLimit {
        match self {
            Self::Greeting(GreetingError::OtherAgent { .. } | GreetingError::UnknownAgent(_)) => ReachedLimit::PeerNumber,
            Self::Greeting(GreetingError::Proof) => ReachedLimit::PeerProof,
            Self::Certificate(_) | Self::NoCertificate | Self::OtherCertificate(_) => ReachedLimit::PeerCertificate,
            Self::Plain => ReachedLimit::PeerPlain,
            _ => ReachedLimit::PeerGreeting,
        }
    }
}

/// Bytes that no other greeting of any agent has: 244 of their bits are random.
pub(super) fn new_nonce() -> Nonce {
    let halves = [uuid::Uuid::new_v4(), uuid::Uuid::new_v4()];
    let mut nonce = Nonce::default();
    nonce.chunks_exact_mut(16).zip(&halves).for_each(|(part, half)| part.copy_from_slice(half.as_bytes()));
    nonce
}

/// Greets an agent that was dialled.
///
/// # Errors
/// [`HandshakeError`] by cause.
pub(super) async fn greet(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    dialling: &Dialling,
) -> Result<(), HandshakeError> {
    let greeted = async {
        stream.write_all(&[&GREETING[..], &dialling.hello()].concat()).await?;
        stream.flush().await?;
        let mut greeting = [0; GREETING.len()];
        stream.read_exact(&mut greeting).await.map_err(hung_up)?;
        check_version(&greeting)?;
        let mut answer = [0; ANSWER_BYTES];
        stream.read_exact(&mut answer).await.map_err(hung_up)?;
        stream.write_all(&dialling.confirm(&answer)?).await?;
        stream.flush().await?;
        Ok::<_, HandshakeError>(())
    };
    tokio::time::timeout(GREETING_TIME_MAX, greeted).await.map_err(|_| HandshakeError::Slow)?
}

fn hung_up(error: std::io::Error) -> HandshakeError {
    match error.kind() {
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => HandshakeError::HungUp,
        _ => HandshakeError::Network(error),
    }
}

/// Waits until it is time for another look at the target.
pub(super) async fn wait_a_look() {
    tokio::time::sleep(LOOK_AT_TARGET_EVERY).await;
}

/// Checks a hello, again for a while if the target here does not name its numbers.
async fn check_hello(hello: &[u8; HELLO_BYTES], keys: &LinkKeys) -> Result<Admission, GreetingError> {
    let begun = Instant::now();
    loop {
        match Admission::of_hello(hello, &keys.current(), new_nonce()) {
            Err(GreetingError::OtherAgent { .. } | GreetingError::UnknownAgent(_)) if begun.elapsed() < TARGET_WAIT_MAX => {
                wait_a_look().await;
            }
            checked => return checked,
        }
    }
}

/// Hears the greeting of an agent that has dialled, and returns its number.
///
/// # Errors
/// [`HandshakeError`] by cause. A connection that has not proven a key gets no byte, but for an agent of another version,
/// which gets the version of this one for its log.
pub(super) async fn admit(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    keys: &LinkKeys,
) -> Result<u64, HandshakeError> {
    let greeted = async {
        let mut greeting = [0; GREETING.len()];
        stream.read_exact(&mut greeting).await?;
        let checked = check_version(&greeting);
        if matches!(checked, Err(GreetingError::Version { .. })) {
            stream.write_all(&GREETING).await?;
            stream.flush().await?;
        }
        checked?;
        let mut hello = [0; HELLO_BYTES];
        stream.read_exact(&mut hello).await?;
        let admission = check_hello(&hello, keys).await?;
        stream.write_all(&[&GREETING[..], &admission.answer()].concat()).await?;
        stream.flush().await?;
        let mut confirmation = [0; PROOF_BYTES];
        stream.read_exact(&mut confirmation).await?;
        admission.admit(&confirmation).map_err(HandshakeError::from)
    };
    tokio::time::timeout(GREETING_TIME_MAX, greeted).await.map_err(|_| HandshakeError::Slow)?
}
