//! How are connections of autoscalers accepted within their bounds?

use crate::limits::{CONNECTIONS_MAX, HANDSHAKE_MAX};
use apportion_tls::ServerTls;
use futures::Stream;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;

/// Pause before the next accept when the machine has no more descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The bytes of a connection, with TLS or without.
trait Bytes: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Bytes for T {}

/// A connection that has sent its first byte, and has done its handshake where there is TLS.
pub(crate) struct ScalerConnection {
    bytes: Box<dyn Bytes>,
    _permit: OwnedSemaphorePermit,
}

impl AsyncRead for ScalerConnection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.bytes).poll_read(cx, buffer)
    }
}

impl AsyncWrite for ScalerConnection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.bytes).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.bytes).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.bytes).poll_shutdown(cx)
    }
}

impl Connected for ScalerConnection {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

/// The connections of a listener. At [`CONNECTIONS_MAX`] it accepts no more until one ends.
pub(crate) fn accept(listener: TcpListener, tls: Option<ServerTls>) -> impl Stream<Item = io::Result<ScalerConnection>> {
    let (sender, receiver) = mpsc::channel(16);
    tokio::spawn(async move {
        let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let permit = permits.clone().acquire_owned().await.expect("the semaphore is never closed");
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = sender.closed() => return,
            };
            match accepted {
                Ok((stream, _)) => {
                    let (tls, sender) = (tls.clone(), sender.clone());
                    tokio::spawn(async move {
                        match tokio::time::timeout(HANDSHAKE_MAX, begin(stream, tls)).await {
                            // The server may have ended.
                            Ok(Ok(bytes)) => drop(sender.send(Ok(ScalerConnection { bytes, _permit: permit })).await),
                            Ok(Err(error)) => tracing::debug!(%error, "a connection of an autoscaler did not begin"),
                            Err(_) => tracing::debug!("a connection of an autoscaler was silent"),
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection to the autoscalers' port could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    });
    ReceiverStream::new(receiver)
}

async fn begin(stream: TcpStream, tls: Option<ServerTls>) -> io::Result<Box<dyn Bytes>> {
    stream.set_nodelay(true)?;
    stream.readable().await?;
    Ok(match tls {
        Some(tls) => Box::new(tls.acceptor().accept(stream).await?),
        None => Box::new(stream),
    })
}
