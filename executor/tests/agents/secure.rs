//! Clients at a gateway with TLS.

use crate::support::ingress;
use apportion_executor::connector::ControlConnector;
use apportion_executor::gateway::connections::HANDSHAKE_MAX;
use apportion_executor::gateway::proto::ServerLiveRequest;
use apportion_executor::gateway::proto::grpc_inference_service_client::GrpcInferenceServiceClient;
use apportion_executor::gateway::{self, Gateway, GatewayTls};
use apportion_tls::{TlsFiles, client_tls};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_util::sync::CancellationToken;
use tonic::transport::Endpoint;

fn certificate(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../process/tls/tests/certificates").join(name)
}

fn tls() -> GatewayTls {
    let files =
        TlsFiles { certificate: certificate("server.pem"), key: certificate("server.key"), client_authorities: None };
    GatewayTls::open(files).expect("the files fit")
}

/// A second gateway of the agent, with TLS.
fn secured(gateway: Gateway) -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("its address");
    tokio::spawn(gateway::http::serve(listener, gateway.with_tls(tls())).expect("a server"));
    address
}

/// A connection over TLS to the gateway at this address.
async fn connect(address: SocketAddr) -> TlsStream<TcpStream> {
    let client = client_tls(Some(&certificate("authority.pem"))).expect("an authority");
    let stream = TcpStream::connect(address).await.expect("a connection");
    let name = ServerName::try_from("localhost").expect("a name");
    TlsConnector::from(Arc::new(client)).connect(name, stream).await.expect("it is trusted")
}

/// Status and body of an answer over TLS.
async fn post(address: SocketAddr, path: &str, body: &Value) -> (u16, Value) {
    let mut stream = connect(address).await;
    let body = body.to_string();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: \
         close\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).await.expect("it is sent");
    let mut answer = Vec::new();
    let _no_farewell = stream.read_to_end(&mut answer).await;
    let text = String::from_utf8(answer).expect("text");
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    let (_, body) = text.split_once("\r\n\r\n").expect("a body");
    (status, serde_json::from_str(body).unwrap_or_else(|e| panic!("{text}: {e}")))
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_over_tls_are_answered() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_control, agent) = ingress::start(folder.path()).await;
    let address = secured(Gateway::new(agent.handle.clone()));
    let input = json!({"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 5.0]});
    let (status, answer) = post(address, "/v2/models/toy/infer", &json!({"inputs": [input]})).await;
    assert_eq!(status, 200, "{answer}");
    assert!(answer["outputs"].as_array().is_some_and(|outputs| !outputs.is_empty()), "{answer}");
    // Without TLS nothing is answered there.
    assert!(reqwest::get(format!("http://{address}/v2/health/live")).await.is_err());
    // The gateway without TLS serves on.
    assert_eq!(agent.infer(&[[1.0, 1.0]]).await.0, 200);
}

/// Asks twice over one connection, with a pause that is longer than a client may take for its first request.
async fn ask_after_a_pause(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    for pause in [Duration::ZERO, HANDSHAKE_MAX + Duration::from_secs(2)] {
        tokio::time::sleep(pause).await;
        stream.write_all(b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n").await.expect("it is sent");
        let mut answer = [0; 1024];
        let length = stream.read(&mut answer).await.expect("an answer");
        assert!(answer[..length].starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&answer[..length]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_without_requests_stays_open() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_control, agent) = ingress::start(folder.path()).await;
    let secure = connect(secured(Gateway::new(agent.handle.clone()))).await;
    let plain = TcpStream::connect(&agent.http).await.expect("a connection");
    tokio::join!(ask_after_a_pause(secure), ask_after_a_pause(plain));
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_over_tls_are_answered() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_control, agent) = ingress::start(folder.path()).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("https://localhost:{}", listener.local_addr().expect("its address").port());
    let gateway = Gateway::new(agent.handle.clone()).with_tls(tls());
    tokio::spawn(gateway::grpc::serve(listener, gateway, CancellationToken::new()));
    let endpoint = Endpoint::from_shared(url.clone()).expect("a URL");
    let connect = async |authority: &str| {
        let connector =
            ControlConnector::new(std::slice::from_ref(&url), Some(&certificate(authority))).expect("an authority");
        connector.connect(&endpoint).await
    };
    let channel = connect("authority.pem").await.expect("it is trusted");
    let live = GrpcInferenceServiceClient::new(channel).server_live(ServerLiveRequest {}).await.expect("an answer");
    assert!(live.into_inner().live);
    assert!(connect("other-authority.pem").await.is_err());
}
