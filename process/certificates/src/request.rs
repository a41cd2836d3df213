//! How does an agent ask for a certificate? Its key stays with it, and signs the request.

use crate::error::{IssueError, REQUEST_BYTES_MAX};
use rcgen::{CertificateParams, CertificateSigningRequestParams, KeyPair, PublicKey};
use rustls::pki_types::CertificateSigningRequestDer;
use std::fmt;

/// A new key of an agent. It is never printed.
pub struct AgentKey(KeyPair);

impl AgentKey {
    /// Makes a key of the curve P-256.
    ///
    /// # Errors
    /// If the system gives no random bytes.
    pub fn generate() -> Result<Self, IssueError> {
        KeyPair::generate().map(Self).map_err(IssueError::Make)
    }

    /// The key itself, as PKCS #8.
    #[must_use]
    pub fn secret(&self) -> &[u8] {
        self.0.serialized_der()
    }

    /// A request for a certificate of this key, as PKCS #10. It names nothing: the service knows the agent.
    ///
    /// # Errors
    /// If the system gives no random bytes.
    pub fn request(&self) -> Result<Vec<u8>, IssueError> {
        let request = CertificateParams::default().serialize_request(&self.0).map_err(IssueError::Make)?;
        Ok(request.der().to_vec())
    }
}

impl fmt::Debug for AgentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AgentKey(..)")
    }
}

/// A request that its own key has signed.
#[derive(Clone, Debug)]
pub struct SigningRequest {
    pub(crate) key: PublicKey,
}

impl SigningRequest {
    /// Reads a request. The names that it asks for do not count.
    ///
    /// # Errors
    /// [`IssueError::RequestBytes`], [`IssueError::Request`].
    pub fn read(request: &[u8]) -> Result<Self, IssueError> {
        if request.is_empty() || request.len() > REQUEST_BYTES_MAX {
            return Err(IssueError::RequestBytes(request.len()));
        }
        let read = CertificateSigningRequestParams::from_der(&CertificateSigningRequestDer::from(request));
        Ok(Self { key: read.map_err(IssueError::Request)?.public_key })
    }
}
