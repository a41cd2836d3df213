//! What does the autoscaler ask about the load, and what is it told?
//!
//! A small HTTPS server behind Kubernetes' aggregation layer answers as an adapter of external metrics does. It notes each
//! question: the controller asks once in each sync.

use super::workload::{METRIC_PREFIX, METRICS_VERSION};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::SystemTime;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Longest head of a request.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// The source of a metric: by a task's name, in thousandths of a query per second. It notes each question.
pub type MetricSource = Arc<dyn Fn(&str) -> Option<u64> + Send + Sync>;

/// The server. Dropping it ends it.
pub struct MetricsServer {
    /// Its port on loopback.
    pub port: u16,
    work: JoinHandle<()>,
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        self.work.abort();
    }
}

impl MetricsServer {
    /// Starts it with a certificate of its own, whose files are in `folder`.
    ///
    /// # Errors
    /// If there is no `openssl`, or no port.
    pub async fn start(folder: &Path, source: MetricSource) -> Result<Self> {
        let tls = acceptor(folder)?;
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("a port for metrics")?;
        let port = listener.local_addr()?.port();
        let work = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, source) = (tls.clone(), source.clone());
                tokio::spawn(async move {
                    // A client that goes away is no failure: Kubernetes asks again.
                    if let Ok(stream) = tls.accept(stream).await {
                        let _ended = answer_all(stream, &source).await;
                    }
                });
            }
        });
        Ok(Self { port, work })
    }
}

/// TLS with a new certificate. Without ALPN, so clients speak HTTP/1.1.
fn acceptor(folder: &Path) -> Result<TlsAcceptor> {
    let mut command = Command::new("openssl");
    command.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]);
    command.args(["-addext", "subjectAltName=DNS:localhost", "-keyout", "metrics.key", "-out", "metrics.pem"]);
    let output = command.current_dir(folder).output().context("running openssl")?;
    ensure!(output.status.success(), "openssl: {}", String::from_utf8_lossy(&output.stderr));
    let chain = vec![CertificateDer::from_pem_file(folder.join("metrics.pem")).context("the certificate")?];
    let key = PrivateKeyDer::from_pem_file(folder.join("metrics.key")).context("the key")?;
    let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()));
    let builder = builder.with_safe_default_protocol_versions()?.with_no_client_auth();
    Ok(TlsAcceptor::from(Arc::new(builder.with_single_cert(chain, key)?)))
}

/// Answers the requests of one connection.
async fn answer_all(mut stream: impl AsyncRead + AsyncWrite + Unpin, source: &MetricSource) -> std::io::Result<()> {
    let (mut unread, mut chunk): (Vec<u8>, Vec<u8>) = (Vec::new(), vec![0; 8 << 10]);
    loop {
        let Some(end) = unread.windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
            let count = stream.read(&mut chunk).await?;
            if count == 0 || unread.len() > HEAD_BYTES_MAX {
                return Ok(());
            }
            unread.extend_from_slice(&chunk[..count]);
            continue;
        };
        let head: Vec<u8> = unread.drain(..end + 4).collect();
        let head = String::from_utf8_lossy(&head);
        let answer = answer(head.split_whitespace().nth(1).unwrap_or_default(), source);
        let text = answer.document.to_string();
        let line = format!(
            "HTTP/1.1 {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            answer.status,
            text.len()
        );
        stream.write_all(format!("{line}{text}").as_bytes()).await?;
        stream.flush().await?;
    }
}

/// An answer.
struct MetricAnswer {
    /// Code and words.
    status: &'static str,
    document: Value,
}

/// The answer for a path, with or without a query.
fn answer(target: &str, source: &MetricSource) -> MetricAnswer {
    let path = target.split('?').next().unwrap_or_default();
    let rest = path.strip_prefix("/apis/").and_then(|rest| rest.strip_prefix(METRICS_VERSION));
    let parts: Vec<&str> = rest.unwrap_or("/unknown").split('/').filter(|part| !part.is_empty()).collect();
    let metric = match parts.as_slice() {
        [] => return MetricAnswer { status: "200 OK", document: resources() },
        ["namespaces", _, metric] => metric.strip_prefix(METRIC_PREFIX),
        _ => None,
    };
    match metric.and_then(|task| source(task)) {
        Some(milli) => {
            let timestamp = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
            let item =
                json!({"metricName": parts[2], "metricLabels": {}, "timestamp": timestamp, "value": format!("{milli}m")});
            let document =
                json!({"kind": "ExternalMetricValueList", "apiVersion": METRICS_VERSION, "metadata": {}, "items": [item]});
            MetricAnswer { status: "200 OK", document }
        }
        None => MetricAnswer {
            status: "404 Not Found",
            document: json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "reason": "NotFound", "message": format!("{path}: there is no such metric"), "code": 404}),
        },
    }
}

/// The list that Kubernetes reads to see whether the API is there.
fn resources() -> Value {
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": METRICS_VERSION, "resources": []})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source() -> MetricSource {
        Arc::new(|task| (task == "find").then_some(12_345))
    }

    #[test]
    fn metrics_are_answered_in_thousandths() {
        let at = |path: &str| answer(path, &source());
        let found = at("/apis/external.metrics.k8s.io/v1beta1/namespaces/hpa/queries-per-second-of-find?labelSelector=");
        assert_eq!((found.status, found.document["items"][0]["value"].as_str()), ("200 OK", Some("12345m")));
        for path in ["", "/", "/apis", "/apis/external.metrics.k8s.io/v1beta1/namespaces/hpa/queries-per-second-of-x"] {
            assert_eq!(at(path).document["reason"], "NotFound", "{path}");
        }
        assert_eq!(at("/apis/external.metrics.k8s.io/v1beta1?timeout=32s").document["kind"], "APIResourceList");
    }

    #[tokio::test]
    async fn one_connection_answers_several_requests() {
        let (mut client, server) = tokio::io::duplex(1 << 16);
        let work = tokio::spawn(async move { answer_all(server, &source()).await });
        let request = |task: &str| {
            format!("GET /apis/{METRICS_VERSION}/namespaces/hpa/{METRIC_PREFIX}{task} HTTP/1.1\r\nhost: a\r\n\r\n")
        };
        client.write_all(format!("{}{}", request("find"), request("read")).as_bytes()).await.expect("written");
        client.shutdown().await.expect("shut down");
        let mut said = String::new();
        client.read_to_string(&mut said).await.expect("answers");
        work.await.expect("it ends").expect("no error");
        assert!(said.contains("200 OK") && said.contains("12345m") && said.contains("404 Not Found"), "{said}");
    }
}
