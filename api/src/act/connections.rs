//! Bounds the connections to the agents' port.
//!
//! A connection that has not sent the token is a guest. A guest may send few bytes and stay for a short time, so that
//! nothing large is decoded for a stranger.

use apportion_tls::{ServerStream, ServerTls};
use futures::Stream;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep};
use tokio_rustls::rustls::pki_types::CertificateDer;
use tonic::transport::server::Connected;

/// Connections at a time, of agents and guests together: the largest fleet, twice.
pub const CONNECTIONS_MAX: usize = 4_096;
/// Guests at a time. Further ones are disconnected.
pub const GUESTS_MAX: usize = 256;
/// Most bytes from a guest: the frames of HTTP/2 and a registration, many times over.
pub const GUEST_BYTES_MAX: usize = 64 * 1024;
/// How long a guest may stay.
pub const GUEST_TIME: Duration = Duration::from_secs(10);
/// Streams at a time on one connection; an agent has one.
pub const STREAMS_MAX: u32 = 8;
/// Headers of one request.
pub const HEADER_BYTES_MAX: u32 = 16 * 1024;
/// Pause before the next accept when the machine has no more descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Whether a connection has sent the token, and which certificate it has shown.
#[derive(Clone, Debug, Default)]
pub struct Guest(Arc<GuestState>);

#[derive(Debug, Default)]
struct GuestState {
    is_admitted: AtomicBool,
    certificate: OnceLock<CertificateDer<'static>>,
}

impl Guest {
    /// Notes that it has sent the token: with a registration, or with a request for a file.
    pub fn admit(&self) {
        self.0.is_admitted.store(true, Ordering::Relaxed);
    }

    fn is_admitted(&self) -> bool {
        self.0.is_admitted.load(Ordering::Relaxed)
    }

    /// The certificate that it has shown in TLS, with the proof of its key. Nobody has checked who issued it.
    pub fn certificate(&self) -> Option<&CertificateDer<'static>> {
        self.0.certificate.get()
    }
}

/// A bounded connection.
pub struct AgentConnection {
    stream: ServerStream,
    guest: Guest,
    received: usize,
    /// Whether TLS is over its beginning, and the certificate is noted.
    has_begun: bool,
    /// `None` once it is no guest any more.
    visit: Option<Visit>,
    _permit: OwnedSemaphorePermit,
}

/// The stay of a guest.
struct Visit {
    expires: Pin<Box<Sleep>>,
    _permit: OwnedSemaphorePermit,
}

impl AgentConnection {
    /// The bound that a guest exceeds, if it exceeds one.
    fn exceeded_bound(&mut self, cx: &mut Context<'_>) -> Option<io::Error> {
        if self.guest.is_admitted() {
            self.visit = None;
        }
        let visit = self.visit.as_mut()?;
        if self.received > GUEST_BYTES_MAX {
            let detail = format!("{} bytes before the token: expected at most {GUEST_BYTES_MAX}", self.received);
            return Some(io::Error::new(io::ErrorKind::InvalidData, detail));
        }
        let is_expired = visit.expires.as_mut().poll(cx).is_ready();
        is_expired.then(|| io::Error::new(io::ErrorKind::TimedOut, "no token was sent in time"))
    }
}

impl AsyncRead for AgentConnection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Some(error) = self.exceeded_bound(cx) {
            return Poll::Ready(Err(error));
        }
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        self.received = self.received.saturating_add(buffer.filled().len() - before);
        if !self.has_begun && matches!(polled, Poll::Ready(Ok(()))) {
            self.has_begun = true;
            if let Some(certificate) = self.stream.peer_certificate() {
                let _first = self.guest.0.certificate.set(certificate.clone());
            }
        }
        polled
    }
}

impl AsyncWrite for AgentConnection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

impl Connected for AgentConnection {
    type ConnectInfo = Guest;

    fn connect_info(&self) -> Guest {
        self.guest.clone()
    }
}

/// The connections of a listener, with TLS or without. At [`CONNECTIONS_MAX`] it accepts no more until one ends.
pub fn accept(listener: TcpListener, tls: Option<ServerTls>) -> impl Stream<Item = io::Result<AgentConnection>> {
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let guests = Arc::new(Semaphore::new(GUESTS_MAX));
    futures::stream::unfold((listener, tls, permits, guests), |(listener, tls, permits, guests)| async move {
        loop {
            let permit = permits.clone().acquire_owned().await.expect("the semaphore is never closed");
            match listener.accept().await {
                Ok((stream, from)) => match guests.clone().try_acquire_owned() {
                    Ok(visit) => {
                        // Without this, a target would wait 40 ms for the TCP acknowledgement of the one before.
                        let connection = stream.set_nodelay(true).map(|()| {
                            let stream = ServerStream::new(stream, tls.as_ref());
                            AgentConnection::new(stream, visit, permit)
                        });
                        return Some((connection, (listener, tls, permits, guests)));
                    }
                    Err(_) => tracing::warn!(%from, "disconnected: {GUESTS_MAX} connections have not sent the token yet"),
                },
                Err(error) => {
                    tracing::warn!(%error, "a connection to the agents' port could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    })
}

impl AgentConnection {
    fn new(stream: ServerStream, guest_permit: OwnedSemaphorePermit, permit: OwnedSemaphorePermit) -> Self {
        let visit = Some(Visit { expires: Box::pin(sleep(GUEST_TIME)), _permit: guest_permit });
        Self { stream, guest: Guest::default(), received: 0, has_begun: false, visit, _permit: permit }
    }
}
