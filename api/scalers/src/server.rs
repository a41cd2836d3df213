//! How is the port of the autoscalers served?

use crate::board::Board;
use crate::connections::accept;
use crate::external_metrics::answer;
use crate::keda::KedaScaler;
use crate::limits::{CALLS_MAX, HEADER_BYTES_MAX, MESSAGE_BYTES_MAX, PING_EVERY};
use crate::proto::external_scaler_server::ExternalScalerServer;
use apportion_tls::ServerTls;
use axum::body::Body;
use axum::http::Request;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tonic::service::Routes;
use tonic::transport::Server;

/// Longest life of a connection. Clients open another one; streams that are open go on.
const CONNECTION_AGE_MAX: Duration = Duration::from_secs(600);

/// Why the port is no longer served.
#[derive(Debug, thiserror::Error)]
#[error("the autoscalers' port is not served: {0}")]
pub struct ScalersError(#[from] tonic::transport::Error);

/// Answers autoscalers from the board until `stopped` is done.
///
/// # Errors
/// If the server ends by itself.
pub async fn serve(
    listener: TcpListener,
    tls: Option<ServerTls>,
    board: watch::Receiver<Option<Arc<Board>>>,
    stopped: impl Future<Output = ()>,
) -> Result<(), ScalersError> {
    let keda = ExternalScalerServer::new(KedaScaler::new(board.clone()))
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let rest = move |request: Request<Body>| std::future::ready(answer(&board, &request));
    let routes = Routes::from(Routes::new(keda).into_axum_router().fallback(rest));
    let server = Server::builder()
        // Kubernetes asks for metrics by HTTP/1.1.
        .accept_http1(true)
        .max_concurrent_streams(CALLS_MAX)
        .http2_max_header_list_size(HEADER_BYTES_MAX)
        .http2_keepalive_interval(Some(PING_EVERY))
        .http2_keepalive_timeout(Some(PING_EVERY))
        .max_connection_age(CONNECTION_AGE_MAX)
        .add_routes(routes);
    Ok(server.serve_with_incoming_shutdown(accept(listener, tls), stopped).await?)
}
