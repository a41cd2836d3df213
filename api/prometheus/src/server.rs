//! Which server is asked, with which token, and which authorities vouch for it?

use crate::failure::ServerError;
use crate::limits::{CA_BYTES_MAX, TOKEN_BYTES_MAX};
use http::header::HeaderValue;
use http::uri::{Scheme, Uri};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use std::sync::Arc;
use std::time::Duration;

/// A Prometheus, or another server of its HTTP API.
#[derive(Clone, Debug)]
pub struct PrometheusServer {
    /// Its URL, without `/api/v1`: `http://10.0.0.4:9090`.
    pub url: String,
    /// The token of each request.
    pub token: Option<BearerToken>,
    /// Authorities for `https`, as PEM; without them those of this machine.
    pub authorities: Option<Vec<u8>>,
    /// Time for connecting and answering together.
    pub timeout: Duration,
}

/// A secret that a server asks for. It is never printed.
#[derive(Clone)]
pub struct BearerToken(HeaderValue);

impl BearerToken {
    /// Reads a token, as a file has it: spaces and line ends around it are left out.
    ///
    /// # Errors
    /// [`ServerError::Token`].
    pub fn parse(text: &str) -> Result<Self, ServerError> {
        let token = text.trim();
        if token.is_empty() || token.len() > TOKEN_BYTES_MAX || !token.chars().all(|c| c.is_ascii_graphic()) {
            return Err(ServerError::Token);
        }
        let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| ServerError::Token)?;
        value.set_sensitive(true);
        Ok(Self(value))
    }

    pub(crate) fn header(&self) -> HeaderValue {
        self.0.clone()
    }
}

impl std::fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BearerToken(..)")
    }
}

/// The address of the instant queries of a server.
pub(crate) fn query_address(url: &str) -> Result<String, ServerError> {
    server_uri(url)?;
    Ok(format!("{}/api/v1/query", url.trim_end_matches('/')))
}

/// Scheme, host and port of a server: `http://p:80` of `http://P/prometheus`.
///
/// # Errors
/// [`ServerError::Url`].
pub fn origin(url: &str) -> Result<String, ServerError> {
    let uri = server_uri(url)?;
    let is_secure = uri.scheme() == Some(&Scheme::HTTPS);
    let (scheme, port) = if is_secure { ("https", 443) } else { ("http", 80) };
    let host = uri.host().unwrap_or_default().to_ascii_lowercase();
    Ok(format!("{scheme}://{host}:{}", uri.port_u16().unwrap_or(port)))
}

fn server_uri(url: &str) -> Result<Uri, ServerError> {
    let wrong = || ServerError::Url { value: crate::failure::quoted(url) };
    let uri: Uri = url.parse().map_err(|_| wrong())?;
    let is_http = uri.scheme().is_some_and(|s| *s == Scheme::HTTP || *s == Scheme::HTTPS);
    let is_host = uri.authority().is_some_and(|a| !a.host().is_empty() && !a.as_str().contains('@'));
    if !is_http || !is_host || uri.query().is_some() || url.contains('#') {
        return Err(wrong());
    }
    Ok(uri)
}

/// How the server is known over TLS.
pub(crate) fn tls(server: &PrometheusServer) -> Result<ClientConfig, ServerError> {
    let mut roots = RootCertStore::empty();
    match &server.authorities {
        Some(pem) => add_authorities(&mut roots, pem)?,
        None if server.url.starts_with("https:") => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                return Err(ServerError::NoAuthorities);
            }
        }
        None => {}
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    Ok(versions.map_err(ServerError::Tls)?.with_root_certificates(roots).with_no_client_auth())
}

fn add_authorities(roots: &mut RootCertStore, pem: &[u8]) -> Result<(), ServerError> {
    let wrong = |found: String| ServerError::Certificates { found };
    if pem.len() > CA_BYTES_MAX {
        return Err(wrong(format!("{} bytes", pem.len())));
    }
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|e| wrong(e.to_string()))?;
        roots.add(certificate).map_err(|e| wrong(e.to_string()))?;
    }
    if roots.is_empty() { Err(wrong("no certificate".to_owned())) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_has_an_http_url() {
        let address = |url| query_address(url).map_err(|e| e.to_string());
        assert_eq!(address("http://p:9090"), Ok("http://p:9090/api/v1/query".to_owned()));
        assert_eq!(address("https://p/prometheus/"), Ok("https://p/prometheus/api/v1/query".to_owned()));
        for wrong in ["", "p:9090", "ftp://p", "http://", "http://me:secret@p", "http://p?x=1", "http://p#x", "http://p q"]
        {
            assert!(address(wrong).expect_err(wrong).contains("expected a URL"), "{wrong}");
        }
    }

    #[test]
    fn an_origin_names_its_port() {
        let origin = |url| origin(url).map_err(|e| e.to_string());
        for (url, expected) in [
            ("http://P:9090", "http://p:9090"),
            ("http://p/prometheus", "http://p:80"),
            ("https://p", "https://p:443"),
            ("https://[::1]:9/", "https://[::1]:9"),
        ] {
            assert_eq!(origin(url).as_deref(), Ok(expected), "{url}");
        }
        assert!(origin("http://p@q").is_err());
    }

    #[test]
    fn a_token_is_one_visible_line() {
        let token = BearerToken::parse(" abc.def-1 \n").expect("a token");
        assert_eq!(token.header().to_str().expect("text"), "Bearer abc.def-1");
        assert!(!format!("{token:?}").contains("abc") && token.header().is_sensitive());
        for wrong in ["", "\n", "two words", "a\nb", "ü", &"x".repeat(TOKEN_BYTES_MAX + 1)] {
            assert!(BearerToken::parse(wrong).is_err(), "{wrong:.20}");
        }
    }

    #[test]
    fn authorities_are_certificates() {
        let server = |pem: &[u8]| PrometheusServer {
            url: "https://p".into(),
            token: None,
            authorities: Some(pem.to_vec()),
            timeout: Duration::from_secs(1),
        };
        let broken = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for (pem, found) in [(&b""[..], "no certificate"), (b"hello", "no certificate"), (broken, "expected PEM")] {
            let said = tls(&server(pem)).expect_err("no authority").to_string();
            assert!(said.contains(found), "{said}");
        }
        assert!(tls(&server(&vec![b'x'; CA_BYTES_MAX + 1])).is_err());
    }
}
