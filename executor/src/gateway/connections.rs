//! How many connections may clients have, and how soon must a connection speak?

use crate::refused::ReachedLimit;
use crate::shares::{ClientShare, ClientShares};
use apportion_tls::{ServerStream, ServerTls};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Sleep;
use tonic::transport::server::{Connected, TcpConnectInfo};

/// Most connections of clients at one gateway, over HTTP and gRPC together. One address may have seven eighths of them.
/// The process needs a third more files.
pub const CONNECTIONS_MAX: usize = 8_192;
/// How long a client may take for the first bytes of HTTP/2, and over HTTP/1 for the head of a request.
pub const HANDSHAKE_MAX: Duration = Duration::from_secs(5);
/// How long a connection over HTTP/1 stays open without a request. It is longer than the minute after which most proxies
/// and load balancers close theirs: who closes first, while the other sends, loses a request.
pub const IDLE_MAX: Duration = Duration::from_secs(75);
/// Bytes with which a connection of HTTP/2 begins (RFC 9113, section 3.4).
const PREFACE_BYTES: usize = 24;
/// After a connection could not be accepted.
const ACCEPT_AGAIN: Duration = Duration::from_millis(200);
/// Where Linux says how many files a process may have.
const LIMITS: &str = "/proc/self/limits";

/// How many connections this process can have: [`CONNECTIONS_MAX`], or three quarters of its files.
#[must_use]
pub fn connections_max() -> usize {
    let limits = std::fs::read_to_string(LIMITS).unwrap_or_default();
    open_files(&limits).map_or(CONNECTIONS_MAX, |files| (files / 4 * 3).clamp(1, CONNECTIONS_MAX))
}

fn open_files(limits: &str) -> Option<usize> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// A place for a connection from this address. Without a free place it returns none and counts the refusal.
#[must_use]
pub fn admit(connections: &Arc<ClientShares>, address: IpAddr) -> Option<ClientShare> {
    let share = connections.take(address, 1);
    if share.is_none() {
        ReachedLimit::Connections.count();
        tracing::debug!(%address, "a connection is refused: there are too many");
    }
    share
}

/// Accepted connections that have a place, with TLS or without; others are closed at once.
pub fn incoming(
    listener: TcpListener,
    connections: Arc<ClientShares>,
    tls: Option<ServerTls>,
) -> impl futures::Stream<Item = std::io::Result<ClientConnection>> + Send {
    futures::stream::unfold((listener, connections, tls), |(listener, connections, tls)| async move {
        loop {
            let (stream, from): (TcpStream, SocketAddr) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "a client's connection could not be accepted");
                    tokio::time::sleep(ACCEPT_AGAIN).await;
                    continue;
                }
            };
            if let Some(place) = admit(&connections, from.ip()) {
                let _as_it_is = stream.set_nodelay(true);
                let patience = Some(Box::pin(tokio::time::sleep(HANDSHAKE_MAX)));
                let (info, stream) = (stream.connect_info(), ServerStream::new(stream, tls.as_ref()));
                let connection = ClientConnection { stream, info, read: 0, patience, _place: place };
                return Some((Ok(connection), (listener, connections, tls)));
            }
        }
    })
}

/// A connection with its place.
pub struct ClientConnection {
    stream: ServerStream,
    info: TcpConnectInfo,
    read: usize,
    /// Until it has begun to speak. With TLS the handshake comes before.
    patience: Option<Pin<Box<Sleep>>>,
    _place: ClientShare,
}

impl Connected for ClientConnection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.info.clone()
    }
}

impl AsyncRead for ClientConnection {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        let before = into.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, into);
        let Some(patience) = &mut self.patience else { return read };
        match read {
            Poll::Ready(_) => {
                self.read += into.filled().len() - before;
                if self.read >= PREFACE_BYTES {
                    self.patience = None;
                }
                read
            }
            Poll::Pending if patience.as_mut().poll(context).is_ready() => {
                ReachedLimit::Handshake.count();
                Poll::Ready(Err(std::io::ErrorKind::TimedOut.into()))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncWrite for ClientConnection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, from: &[u8]) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, from)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, from)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_limit_of_files_is_read() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                      Max open files            1024                 524288               files     \n";
        assert_eq!(open_files(limits), Some(1_024));
        assert_eq!(open_files("Max open files unlimited unlimited files"), None);
        assert!((1..=CONNECTIONS_MAX).contains(&connections_max()));
    }
}
