//! How is TLS set up on a link between two agents?
//!
//! Both ends show their certificates, and no session is resumed: each connection proves both agents again. A link speaks
//! TLS 1.3 alone.

use crate::error::TrustError;
use crate::trust::roots;
use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::{self, cipher_suite};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::TLS13;
use rustls::{ClientConfig, ServerConfig};
use std::fmt;
use std::sync::Arc;

/// The protocol on links (ALPN): a certificate that is shown here opens nothing elsewhere.
const LINK_PROTOCOL: &[u8] = b"apportion-link";

/// A certificate of an agent with its key and the authorities of the others. It is never printed.
#[derive(Clone)]
pub struct LinkTls {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    shown: Arc<CertifiedKey>,
}

impl fmt::Debug for LinkTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LinkTls(..)")
    }
}

impl LinkTls {
    /// Uses this certificate (DER) with its key (PKCS #8), and trusts these authorities (DER).
    ///
    /// # Errors
    /// If the certificate is of another key, or a part is malformed.
    pub fn new(certificate: &[u8], key: &[u8], authorities: &[Vec<u8>]) -> Result<Self, TrustError> {
        let provider = provider();
        let chain = vec![CertificateDer::from(certificate.to_vec())];
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.to_vec()));
        let shown = CertifiedKey::from_der(chain, key, &provider).map_err(TrustError::Settings)?;
        let roots = Arc::new(roots(authorities.iter().map(Vec::as_slice))?);

        let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone()).build();
        let server = ServerConfig::builder_with_provider(provider.clone()).with_protocol_versions(&[&TLS13]);
        let mut server = server
            .map_err(TrustError::Settings)?
            .with_client_cert_verifier(verifier.map_err(|_| TrustError::NoAuthority)?)
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(shown.clone())));
        server.alpn_protocols = vec![LINK_PROTOCOL.to_vec()];
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;

        let client = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13]);
        let mut client = client
            .map_err(TrustError::Settings)?
            .with_root_certificates(roots)
            .with_client_cert_resolver(Arc::new(SingleCertAndKey::from(shown.clone())));
        client.alpn_protocols = vec![LINK_PROTOCOL.to_vec()];
        client.resumption = Resumption::disabled();
        // The name says a number of the fleet, which is nobody else's business.
        client.enable_sni = false;
        Ok(Self { client: Arc::new(client), server: Arc::new(server), shown: Arc::new(shown) })
    }

    /// For the agent that dials.
    #[must_use]
    pub fn client(&self) -> Arc<ClientConfig> {
        self.client.clone()
    }

    /// For the agent that accepts.
    #[must_use]
    pub fn server(&self) -> Arc<ServerConfig> {
        self.server.clone()
    }

    /// The certificate with its key, to be shown to the service.
    #[must_use]
    pub fn shown(&self) -> Arc<CertifiedKey> {
        self.shown.clone()
    }
}

/// The shorter key of AES comes first: it is as far out of reach as the longer one, and large tensors cost less.
fn provider() -> Arc<CryptoProvider> {
    let cipher_suites = vec![cipher_suite::TLS13_AES_128_GCM_SHA256, cipher_suite::TLS13_CHACHA20_POLY1305_SHA256];
    Arc::new(CryptoProvider { cipher_suites, ..ring::default_provider() })
}
