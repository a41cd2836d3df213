//! Connections with TLS between a server and a client of one process.

use apportion_tls::{ApplicationProtocol, Renewal, ServerTls, TlsFiles, client_tls};
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tempfile::TempDir;
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
