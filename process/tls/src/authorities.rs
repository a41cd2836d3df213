//! Which servers does a client trust?

use crate::files::{TlsFilesError, certificates};
use rustls::{ClientConfig, RootCertStore};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why a client cannot use TLS.
#[derive(Debug, thiserror::Error)]
pub enum AuthoritiesError {
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] TlsFilesError),
    /// A certificate of the file is of no authority.
    #[error("{path}: expected certificates of authorities")]
    Authority {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: rustls::Error,
    },
    /// This machine knows no authority.
    #[error("this machine has no certificates of authorities: expected a file of them (--cacert)")]
    NoAuthorities,
    /// The library refuses its own settings.
    #[error("TLS cannot be set up")]
    Settings(#[source] rustls::Error),
}

/// How a client checks servers: by the authorities of this file alone, or by those of the machine.
///
/// # Errors
/// If there is no authority.
pub fn client_tls(authorities: Option<&Path>) -> Result<ClientConfig, AuthoritiesError> {
    let mut roots = RootCertStore::empty();
    match authorities {
        Some(path) => {
            for authority in certificates(path, "certificates of authorities")? {
                roots.add(authority).map_err(|source| AuthoritiesError::Authority { path: path.to_owned(), source })?;
            }
        }
        None => _ = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs),
    }
    match roots.is_empty() {
        true => Err(AuthoritiesError::NoAuthorities),
        false => settings(roots),
    }
}

/// Trusts no server: for clients that use TLS nowhere.
///
/// # Errors
/// If the library refuses its own settings.
pub fn no_authorities() -> Result<ClientConfig, AuthoritiesError> {
    settings(RootCertStore::empty())
}

fn settings(roots: RootCertStore) -> Result<ClientConfig, AuthoritiesError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    Ok(versions.map_err(AuthoritiesError::Settings)?.with_root_certificates(roots).with_no_client_auth())
}
