//! Which certificates of agents count?

use crate::error::TrustError;
use rustls::client::verify_server_name;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{Error, RootCertStore};
use std::sync::Arc;

/// The authorities whose certificates count.
#[derive(Clone, Debug)]
pub struct AgentTrust(Arc<dyn ClientCertVerifier>);

impl AgentTrust {
    /// Trusts these authorities, each a certificate as DER.
    ///
    /// # Errors
    /// If there is none, or one is malformed.
    pub fn new<'a>(authorities: impl IntoIterator<Item = &'a [u8]>) -> Result<Self, TrustError> {
        let (roots, provider) = (Arc::new(roots(authorities)?), Arc::new(ring::default_provider()));
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
        verifier.map(Self).map_err(|_| TrustError::NoAuthority)
    }

    /// Checks that an authority has issued the certificate, and that it counts at this moment.
    ///
    /// # Errors
    /// [`TrustError::Certificate`] with the reason.
    pub fn check(&self, certificate: &CertificateDer<'_>, at: UnixTime) -> Result<(), TrustError> {
        self.0.verify_client_cert(certificate, &[], at).map(|_| ()).map_err(TrustError::Certificate)
    }
}

/// The certificates of authorities as rustls keeps them.
pub(crate) fn roots<'a>(authorities: impl IntoIterator<Item = &'a [u8]>) -> Result<RootCertStore, TrustError> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots.add(CertificateDer::from(authority.to_vec())).map_err(TrustError::Authority)?;
    }
    if roots.is_empty() { Err(TrustError::NoAuthority) } else { Ok(roots) }
}

/// Whether the certificate has this name ([`crate::agent_name`], [`crate::row_name`]).
#[must_use]
pub fn is_named(certificate: &CertificateDer<'_>, name: &str) -> bool {
    let check = || -> Result<(), Error> {
        let name = ServerName::try_from(name).map_err(|_| Error::General("no name".into()))?;
        verify_server_name(&ParsedCertificate::try_from(certificate)?, &name)
    };
    check().is_ok()
}
