//! HTTP over TLS.

use crate::support::{PATIENCE, Service, config_on, new_database, open_dir, service_on_config};
use apportion_api::{TlsFiles, serve};
use apportion_tls::client_tls;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

fn certificate(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../process/tls/tests/certificates").join(name)
}

fn files(name: &str) -> TlsFiles {
    let of = |end: &str| certificate(&format!("{name}.{end}"));
    TlsFiles { certificate: of("pem"), key: of("key"), client_authorities: None }
}

/// An answer over TLS.
struct SecureAnswer {
    status: u16,
    text: String,
    /// The server's certificate.
    certificate: Vec<u8>,
}

/// Sends a request without a body, on a connection of its own.
async fn get(service: &Service, path: &str, authority: &str) -> io::Result<SecureAnswer> {
    let client = client_tls(Some(&certificate(authority))).expect("an authority");
    let stream = TcpStream::connect(service.running.http()).await?;
    let name = ServerName::try_from("localhost").expect("a name");
    let mut stream = TlsConnector::from(Arc::new(client)).connect(name, stream).await?;
    let certificate = stream.get_ref().1.peer_certificates().expect("a certificate")[0].to_vec();
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    let _no_farewell = stream.read_to_end(&mut answer).await;
    let text = String::from_utf8_lossy(&answer).into_owned();
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    Ok(SecureAnswer { status, text, certificate })
}

#[tokio::test(flavor = "multi_thread")]
async fn every_resource_is_served_over_tls() {
    let s = service_on_config(|config| config.tls = Some(files("server"))).await;
    for path in ["/livez", "/", "/v1/pipelines", "/openapi.json", "/metrics"] {
        let answer = get(&s, path, "authority.pem").await.expect("an answer");
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
    }
    assert_eq!(get(&s, "/v1/nothing", "authority.pem").await.expect("an answer").status, 404);
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn http_without_tls_is_refused_and_counted() {
    let s = service_on_config(|config| config.tls = Some(files("server"))).await;
    assert!(s.client.get(format!("{}/livez", s.base)).send().await.is_err());
    let refused = get(&s, "/livez", "other-authority.pem").await.err().expect("its authority is not known").to_string();
    assert!(refused.contains("UnknownIssuer"), "{refused}");
    let begun = Instant::now();
    loop {
        let metrics = get(&s, "/metrics", "authority.pem").await.expect("an answer").text;
        let count = metrics.lines().find_map(|line| line.strip_prefix("apportion_tls_refused_total "));
        if count.and_then(|count| count.parse::<u64>().ok()).is_some_and(|count| count >= 2) {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{metrics}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_clients_keep_nobody_from_the_service() {
    let s = service_on_config(|config| config.tls = Some(files("server"))).await;
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(TcpStream::connect(s.running.http()).await.expect("a connection"));
    }
    assert_eq!(get(&s, "/livez", "authority.pem").await.expect("an answer").status, 200);
    let ended = tokio::time::timeout(PATIENCE, silent[0].read(&mut [0; 1])).await.expect("it is cut off");
    assert!(matches!(ended, Ok(0) | Err(_)));
    s.running.stop().await;
}

/// Copies a certificate into a folder, as if it were made so many seconds ago.
fn install(folder: &TempDir, name: &str, age_s: u64) -> TlsFiles {
    let of = |end: &str| folder.path().join(format!("port.{end}"));
    for end in ["pem", "key"] {
        std::fs::copy(certificate(&format!("{name}.{end}")), of(end)).expect("copied");
        let file = std::fs::File::options().write(true).open(of(end)).expect("our own file");
        file.set_modified(SystemTime::now() - Duration::from_secs(age_s)).expect("our own file");
    }
    TlsFiles { certificate: of("pem"), key: of("key"), client_authorities: None }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewed_certificate_needs_no_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let installed = install(&folder, "server", 100);
    let s = service_on_config(|config| config.tls = Some(installed)).await;
    let first = get(&s, "/livez", "authority.pem").await.expect("an answer").certificate;
    install(&folder, "renewed", 50);
    let begun = Instant::now();
    loop {
        let answer = get(&s, "/livez", "authority.pem").await.expect("an answer");
        assert_eq!(answer.status, 200);
        if answer.certificate != first {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "the certificate stays the first one");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_without_its_certificate_does_not_start() {
    let (url, dir) = (new_database().await, open_dir());
    for (tls, named) in [
        (files("none"), "none.pem"),
        (TlsFiles { key: certificate("renewed.key"), ..files("server") }, "certificate and key do not fit"),
    ] {
        let mut config = config_on(&url, &dir);
        config.tls = Some(tls);
        let refused = serve(config).await.err().expect("its certificate cannot be used");
        let cause = std::error::Error::source(&refused).map(ToString::to_string).unwrap_or_default();
        assert!(refused.to_string().contains("certificate of HTTP") && cause.contains(named), "{refused}: {cause}");
    }
}
