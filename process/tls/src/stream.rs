//! How are the bytes of an accepted connection read and written, with TLS or without?

use crate::renewal::ServerTls;
use rustls::pki_types::CertificateDer;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::Accept;
use tokio_rustls::server::TlsStream;

enum StreamState {
    Plain(TcpStream),
    /// TLS begins when the server first reads or writes.
    Beginning(Box<Accept<TcpStream>>),
    Secure(Box<TlsStream<TcpStream>>),
    /// TLS did not begin, and this was told.
    Failed,
}

/// An accepted connection. With TLS its server waits for the handshake by reading, so that no other connection waits.
pub struct ServerStream(StreamState);

impl ServerStream {
    /// A connection that has just been accepted, on a port with this certificate or without TLS.
    #[must_use]
    pub fn new(stream: TcpStream, tls: Option<&ServerTls>) -> Self {
        Self(match tls {
            Some(tls) => StreamState::Beginning(Box::new(tls.acceptor().accept(stream))),
            None => StreamState::Plain(stream),
        })
    }

    /// The certificate of the client, once it has been read from; none if the client has shown none.
    #[must_use]
    pub fn peer_certificate(&self) -> Option<&CertificateDer<'static>> {
        match &self.0 {
            StreamState::Secure(stream) => stream.get_ref().1.peer_certificates()?.first(),
            StreamState::Plain(_) | StreamState::Beginning(_) | StreamState::Failed => None,
        }
    }

    /// Goes on with the handshake, if it is not over.
    fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let StreamState::Beginning(handshake) = &mut self.0 else { return Poll::Ready(Ok(())) };
        match ready!(Pin::new(&mut **handshake).poll(cx)) {
            Ok(stream) => {
                self.0 = StreamState::Secure(Box::new(stream));
                Poll::Ready(Ok(()))
            }
            Err(error) => {
                self.0 = StreamState::Failed;
                Poll::Ready(Err(error))
            }
        }
    }
}

fn failed<T>() -> Poll<io::Result<T>> {
    Poll::Ready(Err(io::ErrorKind::NotConnected.into()))
}

impl AsyncRead for ServerStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_handshake(cx))?;
        match &mut self.0 {
            StreamState::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            StreamState::Secure(stream) => Pin::new(stream).poll_read(cx, buffer),
            StreamState::Beginning(_) | StreamState::Failed => failed(),
        }
    }
}

impl AsyncWrite for ServerStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_handshake(cx))?;
        match &mut self.0 {
            StreamState::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            StreamState::Secure(stream) => Pin::new(stream).poll_write(cx, bytes),
            StreamState::Beginning(_) | StreamState::Failed => failed(),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_handshake(cx))?;
        match &mut self.0 {
            StreamState::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bytes),
            StreamState::Secure(stream) => Pin::new(stream).poll_write_vectored(cx, bytes),
            StreamState::Beginning(_) | StreamState::Failed => failed(),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.0 {
            StreamState::Plain(stream) => stream.is_write_vectored(),
            StreamState::Secure(stream) => stream.is_write_vectored(),
            StreamState::Beginning(_) | StreamState::Failed => false,
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_handshake(cx))?;
        match &mut self.0 {
            StreamState::Plain(stream) => Pin::new(stream).poll_flush(cx),
            StreamState::Secure(stream) => Pin::new(stream).poll_flush(cx),
            StreamState::Beginning(_) | StreamState::Failed => failed(),
        }
    }

    /// Before TLS has begun there is nobody to say farewell to.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            StreamState::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            StreamState::Secure(stream) => Pin::new(stream).poll_shutdown(cx),
            StreamState::Beginning(_) | StreamState::Failed => Poll::Ready(Ok(())),
        }
    }
}
