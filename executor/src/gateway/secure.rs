//! How does the gateway speak HTTP over TLS?
//!
//! The framework's own TLS brings HTTP/2 and takes one certificate for the life of the process. So the connection is made
//! here, as the framework makes it: a place, then TLS, and then its service for HTTP/1.1.

use super::connections::{CONNECTIONS_MAX, HANDSHAKE_MAX, IDLE_MAX, admit};
use crate::shares::{ClientShare, ClientShares};
use actix_http::body::MessageBody;
use actix_http::error::DispatchError;
use actix_http::{HttpServiceBuilder, Request, Response};
use actix_server::Server;
use actix_service::{IntoServiceFactory, Service, ServiceFactory, ServiceFactoryExt, fn_service, map_config};
use actix_web::dev::AppConfig;
use apportion_tls::{ServerStream, ServerTls};
use std::fmt::Debug;
use std::future::ready;
use std::io::{self, IoSlice};
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// How long a client may take to end a connection that the gateway has ended.
const FAREWELL_MAX: Duration = Duration::from_secs(1);

/// How the connections of a port are taken.
#[derive(Clone)]
pub(super) struct SecurePort {
    pub(super) tls: ServerTls,
    pub(super) connections: Arc<ClientShares>,
    pub(super) workers: usize,
}

/// The server on a bound socket; it runs when it is awaited. `build` makes the application once for each worker.
///
/// # Errors
/// If the socket cannot be used.
pub(super) fn server<F, I, S, B>(build: F, listener: TcpListener, port: SecurePort) -> io::Result<Server>
where
    F: Fn() -> I + Send + Clone + 'static,
    I: IntoServiceFactory<S, Request>,
    S: ServiceFactory<Request, Config = AppConfig> + 'static,
    S::Error: Into<actix_web::Error> + 'static,
    S::InitError: Debug,
    S::Response: Into<Response<B>> + 'static,
    <S::Service as Service<Request>>::Future: 'static,
    S::Service: 'static,
    B: MessageBody + 'static,
{
    let server = Server::build().workers(port.workers).max_concurrent_connections(CONNECTIONS_MAX).disable_signals();
    let stopping = server.graceful_shutdown_signal();
    let server = server.listen("https", listener, move || {
        let stopping = stopping.clone();
        let application = build().into_factory().map_err(|error| {
            let error: actix_web::Error = error.into();
            error.error_response()
        });
        let http = HttpServiceBuilder::default()
            // Connections without a request end when the server stops.
            .graceful_shutdown_signal(move || {
                let stopping = stopping.clone();
                async move { stopping.notified().await }
            })
            .client_request_timeout(HANDSHAKE_MAX)
            .keep_alive(IDLE_MAX)
            .client_disconnect_timeout(FAREWELL_MAX)
            .secure()
            .h1(map_config(application, |(): ()| AppConfig::default()));
        let port = port.clone();
        fn_service(move |stream: TcpStream| ready(take_place(stream, &port))).and_then(http)
    })?;
    Ok(server.run())
}

/// A connection with its place, which it keeps until it ends.
struct PlacedConnection {
    stream: ServerStream,
    _place: ClientShare,
}

/// Gives a connection its place. A connection without a place is closed.
fn take_place(stream: TcpStream, port: &SecurePort) -> Result<(PlacedConnection, Option<SocketAddr>), DispatchError> {
    let placed = || {
        let from = stream.peer_addr()?;
        stream.set_nodelay(true)?;
        let place = admit(&port.connections, from.ip()).ok_or(io::ErrorKind::ConnectionRefused)?;
        Ok::<_, io::Error>((place, from))
    };
    let (place, from) = placed().map_err(DispatchError::Io)?;
    let stream = ServerStream::new(stream, Some(&port.tls));
    Ok((PlacedConnection { stream, _place: place }, Some(from)))
}

impl AsyncRead for PlacedConnection {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for PlacedConnection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, from)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, from)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
