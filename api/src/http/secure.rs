//! How does the server speak HTTP over TLS?
//!
//! The framework's own TLS brings HTTP/2 and takes one certificate for the life of the process. So the connection is made
//! here, as the framework makes it: TLS first, and then its service for HTTP/1.1.

use super::limits::{CONNECTIONS_MAX, HEAD_TIMEOUT, SHUTDOWN_S, WORKERS};
use crate::app::counts;
use actix_http::body::MessageBody;
use actix_http::error::DispatchError;
use actix_http::{HttpServiceBuilder, KeepAlive, Request, Response};
use actix_server::Server;
use actix_service::{IntoServiceFactory, Service, ServiceFactory, ServiceFactoryExt, fn_service, map_config};
use actix_web::dev::AppConfig;
use apportion_tls::ServerTls;
use std::fmt::Debug;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// How long a client may take to end a connection that the server has ended.
const FAREWELL_MAX: Duration = Duration::from_secs(1);

/// The server on a bound socket; await or spawn it. `build` makes the application once for each worker.
///
/// # Errors
/// If the socket cannot be used.
pub fn server<F, I, S, B>(build: F, listener: TcpListener, tls: ServerTls) -> io::Result<Server>
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
    let server = Server::build()
        .workers(WORKERS)
        .max_concurrent_connections(CONNECTIONS_MAX / WORKERS)
        .shutdown_timeout(SHUTDOWN_S)
        .disable_signals()
        .listen("https", listener, move || {
            let application = build().into_factory().map_err(|error| {
                let error: actix_web::Error = error.into();
                error.error_response()
            });
            let http = HttpServiceBuilder::default()
                .keep_alive(KeepAlive::Disabled)
                .h1_allow_half_closed(false)
                .client_request_timeout(HEAD_TIMEOUT)
                .client_disconnect_timeout(FAREWELL_MAX)
                .secure()
                .h1(map_config(application, |(): ()| AppConfig::default()));
            let tls = tls.clone();
            fn_service(move |stream: TcpStream| begin_tls(stream, tls.clone())).and_then(http)
        })?;
    Ok(server.run())
}

/// A connection of which TLS has begun, and the address of its client.
type SecureConnection = (TlsStream<TcpStream>, Option<SocketAddr>);

async fn begin_tls(stream: TcpStream, tls: ServerTls) -> Result<SecureConnection, DispatchError> {
    let from = stream.peer_addr().ok();
    let begun = tokio::time::timeout(HEAD_TIMEOUT, tls.acceptor().accept(stream)).await;
    match begun.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
        Ok(stream) => Ok((stream, from)),
        Err(error) => {
            counts::TLS_REFUSED.increment();
            tracing::debug!(?from, %error, "TLS did not begin on a connection");
            Err(DispatchError::Io(error))
        }
    }
}
