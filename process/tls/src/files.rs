//! Which certificate and which key are in the files of a port, and which clients may call it?

use crate::asked::AskedCertificates;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The files of TLS, all PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The chain of certificates, our own first.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The authorities of the clients. With them, a client without a certificate is refused.
    pub client_authorities: Option<PathBuf>,
}

/// Which certificates of clients does TLS ask for?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientCertificates {
    /// As the files say: none, or those of their authorities.
    AsFiles,
    /// Any that a client has. The server checks them when it knows the client.
    Asked,
}

/// A protocol that the server of a port speaks. Clients choose by its name (ALPN).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplicationProtocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2.
    Http2,
}

impl ApplicationProtocol {
    fn name(self) -> Vec<u8> {
        match self {
            Self::Http1 => b"http/1.1".to_vec(),
            Self::Http2 => b"h2".to_vec(),
        }
    }
}

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsFilesError {
    /// A file has no such part.
    #[error("{path}: expected PEM with {expected}")]
    Pem {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        expected: &'static str,
        /// Why it was not found.
        #[source]
        source: rustls::pki_types::pem::Error,
    },
    /// The parts do not fit.
    #[error("{path}: certificate and key do not fit")]
    Fit {
        /// The file of the certificate.
        path: PathBuf,
        /// Why not.
        #[source]
        source: rustls::Error,
    },
    /// The authorities of the clients cannot be used.
    #[error("{path}: expected certificates of authorities")]
    Authorities {
        /// The file.
        path: PathBuf,
    },
}

/// Reads the files.
///
/// # Errors
/// If one cannot be used.
pub(crate) fn read(
    files: &TlsFiles,
    protocols: &[ApplicationProtocol],
    clients: ClientCertificates,
) -> Result<ServerConfig, TlsFilesError> {
    let chain = certificates(&files.certificate, "a certificate")?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(pem(&files.key, "a private key"))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let fit = |source| TlsFilesError::Fit { path: files.certificate.clone(), source };
    let builder =
        ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions().map_err(fit)?;
    let builder = match &files.client_authorities {
        None if clients == ClientCertificates::Asked => {
            builder.with_client_cert_verifier(Arc::new(AskedCertificates::new(&provider)))
        }
        None => builder.with_no_client_auth(),
        Some(path) => {
            let unusable = || TlsFilesError::Authorities { path: path.clone() };
            let mut roots = RootCertStore::empty();
            for authority in certificates(path, "certificates of authorities")? {
                roots.add(authority).map_err(|_| unusable())?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.map_err(|_| unusable())?)
        }
    };
    let mut config = builder.with_single_cert(chain, key).map_err(fit)?;
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.name()).collect();
    if clients == ClientCertificates::Asked {
        // A resumed session would bring the certificate of the first one, which may be expired.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(config)
}

/// The certificates of a file, at least one.
pub(crate) fn certificates(path: &Path, expected: &'static str) -> Result<Vec<CertificateDer<'static>>, TlsFilesError> {
    let all = CertificateDer::pem_file_iter(path).map_err(pem(path, expected))?;
    let all: Vec<_> = all.collect::<Result<_, _>>().map_err(pem(path, expected))?;
    let none = rustls::pki_types::pem::Error::NoItemsFound;
    if all.is_empty() { Err(pem(path, expected)(none)) } else { Ok(all) }
}

fn pem(path: &Path, expected: &'static str) -> impl Fn(rustls::pki_types::pem::Error) -> TlsFilesError {
    let path = path.to_path_buf();
    move |source| TlsFilesError::Pem { path: path.clone(), expected, source }
}
