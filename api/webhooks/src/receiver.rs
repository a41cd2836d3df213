//! Which receivers may be called?

use crate::limits::URL_BYTES_MAX;
use http::uri::{Scheme, Uri};
use hyper_util::client::legacy::connect::dns::Name;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use tower_service::Service;

/// Amazon's metadata service. Its address is a private one, not a link-local one.
const AMAZON_METADATA: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);
/// The first 96 bits of an IPv6 address that a translator turns into an IPv4 one (RFC 6052).
const TRANSLATED: [u16; 6] = [0x64, 0xff9b, 0, 0, 0, 0];

/// The URL of a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiverUrl(pub(crate) Uri);

/// Why a URL is none of a receiver.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReceiverUrlError {
    /// It is too long.
    #[error("{0} bytes: expected a URL of at most {URL_BYTES_MAX} bytes")]
    Length(usize),
    /// It has another form.
    #[error("expected an http or https URL with a host, without a fragment, such as \"https://chat.example/hooks/7\"")]
    Form,
    /// It has a user or a password.
    #[error("expected a URL without a user and a password: the signature of each request shows who sends it")]
    Credentials,
    /// Its address is refused.
    #[error(transparent)]
    Address(#[from] RefusedAddress),
}

/// An address that is never called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is the address of a link, where clouds answer with secrets of the machine: expected another one")]
pub struct RefusedAddress(pub IpAddr);

impl ReceiverUrl {
    /// Reads a URL. A host that is an address is checked here; a name is checked whenever it is resolved.
    ///
    /// # Errors
    /// If the service may not call it.
    pub fn parse(url: &str) -> Result<Self, ReceiverUrlError> {
        if url.len() > URL_BYTES_MAX {
            return Err(ReceiverUrlError::Length(url.len()));
        }
        let uri: Uri = url.parse().map_err(|_| ReceiverUrlError::Form)?;
        let is_http = uri.scheme().is_some_and(|scheme| *scheme == Scheme::HTTP || *scheme == Scheme::HTTPS);
        let authority = uri.authority().filter(|authority| is_http && !authority.host().is_empty() && !url.contains('#'));
        let authority = authority.ok_or(ReceiverUrlError::Form)?;
        if authority.as_str().contains('@') {
            return Err(ReceiverUrlError::Credentials);
        }
        // A port that is no number would be left out in silence.
        if authority.as_str() != authority.host() && authority.port_u16().is_none() {
            return Err(ReceiverUrlError::Form);
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        if let Ok(address) = host.parse::<IpAddr>() {
            check_address(address)?;
        }
        Ok(Self(uri))
    }
}

/// Whether no receiver may have this address: those of a link, also inside of other addresses, and Amazon's metadata.
#[must_use]
pub fn is_refused_address(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => {
            address.is_unicast_link_local()
                || address == AMAZON_METADATA
                || translated(address).is_some_and(|v4| v4.is_link_local())
        }
    }
}

/// The IPv4 address into which a translator turns this one.
fn translated(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [.., a, b, c, d] = address.octets();
    (address.segments()[..6] == TRANSLATED).then(|| Ipv4Addr::new(a, b, c, d))
}

fn check_address(address: IpAddr) -> Result<(), RefusedAddress> {
    if is_refused_address(address) { Err(RefusedAddress(address)) } else { Ok(()) }
}

/// Why a name has no address.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResolutionError {
    /// The name service does not know one.
    #[error("the name has no address")]
    Unknown(#[source] io::Error),
    /// One of them is refused.
    #[error(transparent)]
    Refused(#[from] RefusedAddress),
}

/// Resolves names, and refuses one with a refused address. The client connects to the checked addresses and no others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CheckedResolver;

impl Service<Name> for CheckedResolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = ResolutionError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, ResolutionError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ResolutionError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await.map_err(ResolutionError::Unknown)?;
            let addresses: Vec<SocketAddr> = found.collect();
            addresses.iter().try_for_each(|address| check_address(address.ip()))?;
            Ok(addresses.into_iter())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_has_an_http_url() {
        for right in [
            "http://127.0.0.1:9000/events",
            "https://chat.example",
            "https://chat.example:8443/hooks/7?room=a",
            "http://[::1]:9000/",
            "http://10.0.0.4/",
            "HTTP://chat.example/",
        ] {
            assert!(ReceiverUrl::parse(right).is_ok(), "{right}");
        }
        for wrong in [
            "",
            "chat.example",
            "/events",
            "ftp://chat.example/",
            "file:///etc/passwd",
            "http://",
            "http:///events",
            "http://chat.example/#x",
            "http://chat example/",
            "http://chat.example:x/",
            "http://chat.example:99999/",
            "http://chat.example:/",
        ] {
            assert_eq!(ReceiverUrl::parse(wrong), Err(ReceiverUrlError::Form), "{wrong}");
        }
        for wrong in ["http://me@chat.example/", "http://me:secret@chat.example/"] {
            assert_eq!(ReceiverUrl::parse(wrong), Err(ReceiverUrlError::Credentials), "{wrong}");
        }
    }

    #[test]
    fn a_url_has_a_limit() {
        let url = |bytes: usize| format!("http://p/{}", "x".repeat(bytes - "http://p/".len()));
        assert!(ReceiverUrl::parse(&url(URL_BYTES_MAX)).is_ok());
        assert_eq!(ReceiverUrl::parse(&url(URL_BYTES_MAX + 1)), Err(ReceiverUrlError::Length(URL_BYTES_MAX + 1)));
    }

    #[test]
    fn addresses_of_a_link_are_refused_in_each_form() {
        for host in [
            "169.254.169.254",
            "169.254.0.1",
            "[fe80::1]",
            "[febf::1]",
            "[::ffff:169.254.169.254]",
            "[64:ff9b::169.254.169.254]",
            "[fd00:ec2::254]",
        ] {
            let found = ReceiverUrl::parse(&format!("http://{host}/latest"));
            assert!(matches!(found, Err(ReceiverUrlError::Address(_))), "{host}: {found:?}");
        }
        for host in ["127.0.0.1", "10.1.2.3", "192.168.0.1", "169.253.255.255", "[::1]", "[fd00::1]", "[64:ff9b::10.0.0.1]"]
        {
            assert!(ReceiverUrl::parse(&format!("http://{host}/")).is_ok(), "{host}");
        }
    }

    #[tokio::test]
    async fn a_name_with_a_refused_address_is_not_resolved() {
        let resolve = async |name: &str| CheckedResolver.call(name.parse().expect("a name")).await;
        // The second one is the same address as one number, which only the resolver of the system reads.
        for name in ["169.254.169.254", "2852039166"] {
            let refused = resolve(name).await.expect_err("a refused address");
            assert!(matches!(refused, ResolutionError::Refused(_)), "{name}: {refused}");
        }
        let found: Vec<SocketAddr> = resolve("127.0.0.1").await.expect("loopback").collect();
        assert_eq!(found, [SocketAddr::from(([127, 0, 0, 1], 0))]);
    }
}
