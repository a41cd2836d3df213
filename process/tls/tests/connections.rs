//! Connections with TLS between a server and a client of one process.

use apportion_tls::{ApplicationProtocol, Renewal, ServerStream, ServerTls, TlsFiles, client_tls};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/certificates").join(name)
}

fn files(name: &str) -> TlsFiles {
    TlsFiles { certificate: file(&format!("{name}.pem")), key: file(&format!("{name}.key")), client_authorities: None }
}

fn open(files: TlsFiles) -> ServerTls {
    ServerTls::open(files, &[ApplicationProtocol::Http1]).expect("the files fit")
}

/// The certificate that a client of this authority sees.
async fn seen(server: &ServerTls, authority: &str, name: &str) -> io::Result<CertificateDer<'static>> {
    let client = client_tls(Some(&file(authority))).expect("an authority");
    let (near, far) = tokio::io::duplex(64 * 1024);
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    let connector = TlsConnector::from(Arc::new(client));
    let (stream, _) = tokio::join!(connector.connect(name, near), server.acceptor().accept(far));
    let stream = stream?;
    let chain = stream.get_ref().1.peer_certificates().expect("a certificate");
    Ok(chain[0].clone().into_owned())
}

fn certificate(name: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(file(name)).expect("a certificate")
}

#[tokio::test]
async fn a_client_sees_the_servers_certificate() {
    let server = open(files("server"));
    for name in ["localhost", "127.0.0.1"] {
        let found = seen(&server, "authority.pem", name).await.expect("it is trusted");
        assert_eq!(found, certificate("server.pem"), "{name}");
    }
}

#[tokio::test]
async fn a_wrong_certificate_is_refused_with_its_reason() {
    for (server, authority, reason) in [
        ("server", "other-authority.pem", "unknownissuer"),
        ("expired", "authority.pem", "expired"),
        ("other-name", "authority.pem", "not valid for name"),
    ] {
        let refused = seen(&open(files(server)), authority, "localhost").await.expect_err(server).to_string();
        assert!(refused.to_lowercase().contains(reason), "{server}: {refused}");
    }
}

#[test]
fn unusable_files_are_refused_by_name() {
    let of = |certificate: &str, key: &str| TlsFiles {
        certificate: file(certificate),
        key: file(key),
        client_authorities: None,
    };
    for (files, named, said) in [
        (of("none.pem", "server.key"), "none.pem", "a certificate"),
        (of("server.pem", "none.key"), "none.key", "a private key"),
        (of("server.key", "server.key"), "server.key", "a certificate"),
        (of("server.pem", "renewed.key"), "server.pem", "do not fit"),
    ] {
        let refused = ServerTls::open(files, &[]).expect_err(named).to_string();
        assert!(refused.contains(named) && refused.contains(said), "{refused}");
    }
    let refused = client_tls(Some(&file("server.key"))).expect_err("a key is no authority").to_string();
    assert!(refused.contains("server.key") && refused.contains("certificates of authorities"), "{refused}");
}

/// Copies a certificate with its key into a folder, as if it were made so many seconds ago.
fn install(folder: &TempDir, name: &str, age_s: u64) -> TlsFiles {
    let of = |end: &str| folder.path().join(format!("port.{end}"));
    for end in ["pem", "key"] {
        std::fs::copy(file(&format!("{name}.{end}")), of(end)).expect("copied");
        let file = std::fs::File::options().write(true).open(of(end)).expect("our own file");
        file.set_modified(SystemTime::now() - Duration::from_secs(age_s)).expect("our own file");
    }
    TlsFiles { certificate: of("pem"), key: of("key"), client_authorities: None }
}

#[tokio::test]
async fn a_changed_certificate_is_used_for_the_next_connection() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = open(install(&folder, "server", 100));
    assert_eq!(server.renew().expect("nothing is wrong"), Renewal::Unchanged);
    install(&folder, "renewed", 50);
    assert_eq!(seen(&server, "authority.pem", "localhost").await.expect("trusted"), certificate("server.pem"));
    assert_eq!(server.renew().expect("the files fit"), Renewal::Renewed);
    assert_eq!(seen(&server, "authority.pem", "localhost").await.expect("trusted"), certificate("renewed.pem"));
    // The next one is broken: the last one stays, until there is a right one.
    std::fs::write(folder.path().join("port.pem"), "no certificate").expect("written");
    assert!(server.renew().is_err());
    assert_eq!(server.renew().expect("it was told"), Renewal::Unchanged);
    assert_eq!(seen(&server, "authority.pem", "localhost").await.expect("trusted"), certificate("renewed.pem"));
    install(&folder, "server", 10);
    assert_eq!(server.renew().expect("the files fit"), Renewal::Renewed);
    assert_eq!(seen(&server, "authority.pem", "localhost").await.expect("trusted"), certificate("server.pem"));
}

/// A client's connection, and the same one at the server.
async fn connected(tls: Option<&ServerTls>) -> (TcpStream, ServerStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let near = TcpStream::connect(listener.local_addr().expect("an address")).await.expect("a connection");
    let (far, _) = listener.accept().await.expect("a connection");
    (near, ServerStream::new(far, tls))
}

#[tokio::test]
async fn a_stream_begins_tls_when_it_is_read() {
    let (near, mut far) = connected(Some(&open(files("server")))).await;
    let client = client_tls(Some(&file("authority.pem"))).expect("an authority");
    let name = ServerName::try_from("localhost").expect("a name");
    let client = async {
        let mut stream = TlsConnector::from(Arc::new(client)).connect(name, near).await.expect("it is trusted");
        stream.write_all(b"ping").await.expect("it is sent");
        let mut answer = [0; 4];
        stream.read_exact(&mut answer).await.expect("an answer");
        answer
    };
    let server = async {
        let mut asked = [0; 4];
        far.read_exact(&mut asked).await.expect("a question");
        far.write_all(b"pong").await.expect("it is sent");
        far.flush().await.expect("it is sent");
        asked
    };
    assert_eq!(tokio::join!(client, server), (*b"pong", *b"ping"));
}

#[tokio::test]
async fn a_port_that_asks_takes_any_certificate_or_none() {
    // The second one is of another name, and no authority of clients is known.
    for shown in [None, Some("other-name")] {
        let asking = ServerTls::open_asking(files("server"), &[ApplicationProtocol::Http1]).expect("the files fit");
        let (near, mut far) = connected(Some(&asking)).await;
        let mut client = client_tls(Some(&file("authority.pem"))).expect("an authority");
        let expected = shown.map(|name| certificate(&format!("{name}.pem")));
        if let (Some(name), Some(certificate)) = (shown, expected.clone()) {
            let key = PrivateKeyDer::from_pem_file(file(&format!("{name}.key"))).expect("a key");
            let both = CertifiedKey::from_der(vec![certificate], key, &ring::default_provider()).expect("they fit");
            client.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(both));
        }
        let name = ServerName::try_from("localhost").expect("a name");
        let client = async {
            let mut stream = TlsConnector::from(Arc::new(client)).connect(name, near).await.expect("it is trusted");
            stream.write_all(b"ping").await.expect("it is sent");
            stream
        };
        assert!(far.peer_certificate().is_none(), "TLS has not begun");
        let server = async {
            let mut asked = [0; 4];
            far.read_exact(&mut asked).await.expect("a question");
            asked
        };
        let (_open, asked) = tokio::join!(client, server);
        assert_eq!((&asked, far.peer_certificate()), (b"ping", expected.as_ref()));
    }
}

#[tokio::test]
async fn a_stream_without_tls_is_read_as_it_is() {
    let (mut near, mut far) = connected(None).await;
    near.write_all(b"ping").await.expect("it is sent");
    let mut asked = [0; 4];
    far.read_exact(&mut asked).await.expect("a question");
    assert_eq!(&asked, b"ping");
}

#[tokio::test]
async fn a_stream_whose_tls_failed_stays_failed() {
    let (mut near, mut far) = connected(Some(&open(files("server")))).await;
    near.write_all(b"GET / HTTP/1.1\r\n\r\n").await.expect("it is sent");
    assert!(far.read(&mut [0; 8]).await.is_err());
    let again = far.read(&mut [0; 8]).await.expect_err("it is over");
    assert_eq!(again.kind(), ErrorKind::NotConnected);
    assert!(far.write(b"x").await.is_err());
    far.shutdown().await.expect("there is nothing to end");
}
