//! How does an agent reach the control plane, with TLS or without?

use crate::certificates::AgentCertificates;
use apportion_tls::{AuthoritiesError, client_tls, no_authorities};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use std::path::Path;
use std::sync::Arc;
use tonic::transport::{Channel, Endpoint};

/// Connects to the processes of the control plane, and checks the certificates of those with an https URL.
#[derive(Clone)]
pub struct ControlConnector(HttpsConnector<HttpConnector>);

impl ControlConnector {
    /// A connector to these URLs. It trusts the authorities of the file, or those of this machine.
    ///
    /// # Errors
    /// If one of the URLs is https and there is no authority.
    pub fn new(urls: &[String], cacert: Option<&Path>) -> Result<Self, AuthoritiesError> {
        Self::showing(urls, cacert, &AgentCertificates::default())
    }

    /// The same. A process that asks for a certificate is shown the newest of these; each connection shows the newest of
    /// its time.
    ///
    /// # Errors
    /// If one of the URLs is https and there is no authority.
    pub fn showing(
        urls: &[String],
        cacert: Option<&Path>,
        certificates: &AgentCertificates,
    ) -> Result<Self, AuthoritiesError> {
        let is_secure = urls.iter().any(|url| url.starts_with("https:"));
        let mut tls = if is_secure { client_tls(cacert)? } else { no_authorities()? };
        tls.client_auth_cert_resolver = Arc::new(certificates.clone());
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        let https = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1();
        Ok(Self(https.wrap_connector(tcp)))
    }

    /// Connects.
    ///
    /// # Errors
    /// If the endpoint cannot be reached, or is not trusted.
    pub async fn connect(&self, endpoint: &Endpoint) -> Result<Channel, tonic::transport::Error> {
        endpoint.connect_with_connector(self.0.clone()).await
    }
}

impl Default for ControlConnector {
    /// For URLs without TLS.
    fn default() -> Self {
        Self::new(&[], None).expect("the library has its own settings")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_is_read_only_for_https() {
        let of = |url: &str| ControlConnector::new(&[url.to_owned()], Some("/none.pem".as_ref()));
        assert!(of("http://one:7071").is_ok());
        let refused = of("https://one:7071").err().expect("there is no such file").to_string();
        assert!(refused.contains("/none.pem"), "{refused}");
    }
}
