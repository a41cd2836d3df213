//! Which addresses does the agent advertise?
//!
//! An agent may listen on all addresses of its machine. Other machines need one address that leads to it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

/// What others are told instead of where the agent listens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdvertisedAddresses {
    /// The host of all addresses without one of their own.
    pub host: Option<String>,
    /// host:port of the gateway.
    pub http: Option<String>,
    /// host:port of the gateway's gRPC.
    pub grpc: Option<String>,
    /// host:port for other agents.
    pub data: Option<String>,
}

/// The addresses of an agent that is bound to `http`, `grpc` and `data`: the advertised ones, or else the bound ones. For
/// an unspecified address such as 0.0.0.0, it is this machine's address towards the control plane `join`.
#[must_use]
pub fn reachable(advertised: &AdvertisedAddresses, [http, grpc, data]: [SocketAddr; 3], join: &str) -> [String; 3] {
    let of = |own: &Option<String>, bound: SocketAddr| match (own, &advertised.host) {
        (Some(own), _) => own.clone(),
        (None, Some(host)) => with_port(host, bound.port()),
        (None, None) if bound.ip().is_unspecified() => SocketAddr::new(towards(join), bound.port()).to_string(),
        (None, None) => bound.to_string(),
    };
    [of(&advertised.http, http), of(&advertised.grpc, grpc), of(&advertised.data, data)]
}

/// Whether another machine's agents or clients are told an address of loopback although the control plane is elsewhere.
#[must_use]
pub fn is_out_of_reach(address: &str, join: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host.trim_matches(['[', ']']));
    let is_loopback = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    is_loopback && !towards(join).is_loopback()
}

fn with_port(host: &str, port: u16) -> String {
    if host.contains(':') && !host.starts_with('[') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// This machine's address on the way to a URL; loopback if there is no way. Nothing is sent.
fn towards(join: &str) -> IpAddr {
    let found = || {
        let uri: tonic::transport::Uri = join.parse().ok()?;
        let port = uri.port_u16().unwrap_or(80);
        let host = uri.host()?.trim_matches(['[', ']']).to_owned();
        let target = std::net::ToSocketAddrs::to_socket_addrs(&(host.as_str(), port)).ok()?.next()?;
        let any = if target.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(any).ok()?;
        socket.connect(target).ok()?;
        Some(socket.local_addr().ok()?.ip())
    };
    found().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

/// Why a text is no address that others can dial.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// This text is no host with a port.
    #[error("{0:?}: expected HOST:PORT, for example 10.0.0.5:8000")]
    HostAndPort(String),
    /// This text is no host.
    #[error("{0:?}: expected a host without a port, for example 10.0.0.5 or gpu1.example.com")]
    Host(String),
}

/// Reads a host and a port as others would dial them.
///
/// # Errors
/// [`AddressError::HostAndPort`].
pub fn host_and_port(text: &str) -> Result<String, AddressError> {
    let parts = text.rsplit_once(':').filter(|(host, port)| is_host(host) && port.parse::<u16>().is_ok_and(|p| p > 0));
    parts.map(|_| text.to_owned()).ok_or_else(|| AddressError::HostAndPort(text.to_owned()))
}

/// Reads a host without a port.
///
/// # Errors
/// [`AddressError::Host`].
pub fn host(text: &str) -> Result<String, AddressError> {
    let is_address = text.parse::<IpAddr>().is_ok_and(|ip| !ip.is_unspecified());
    let is_name = is_host(text) && !text.contains(':') && text.parse::<IpAddr>().is_err();
    (is_address || is_name).then(|| text.to_owned()).ok_or_else(|| AddressError::Host(text.to_owned()))
}

fn is_host(text: &str) -> bool {
    let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
    let is_unspecified = bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_unspecified());
    !text.is_empty() && !is_unspecified && text.bytes().all(|b| b.is_ascii_alphanumeric() || b".-_:[]".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOIN: &str = "http://127.0.0.1:7071";

    fn bound(host: &str) -> [SocketAddr; 3] {
        [8000, 8001, 8002].map(|port| SocketAddr::new(host.parse().expect("an address"), port))
    }

    #[test]
    fn others_are_told_what_is_advertised_or_bound() {
        let plain = reachable(&AdvertisedAddresses::default(), bound("10.0.0.5"), JOIN);
        assert_eq!(plain, ["10.0.0.5:8000", "10.0.0.5:8001", "10.0.0.5:8002"]);
        let host = Some("gpu1".to_owned());
        let mixed = AdvertisedAddresses { host, data: Some("192.0.2.1:9".into()), ..AdvertisedAddresses::default() };
        assert_eq!(reachable(&mixed, bound("0.0.0.0"), JOIN), ["gpu1:8000", "gpu1:8001", "192.0.2.1:9"]);
        let v6 = AdvertisedAddresses { host: Some("2001:db8::1".into()), ..AdvertisedAddresses::default() };
        assert_eq!(reachable(&v6, bound("::"), JOIN)[0], "[2001:db8::1]:8000");
    }

    #[test]
    fn who_listens_everywhere_tells_the_address_towards_the_control_plane() {
        assert_eq!(reachable(&AdvertisedAddresses::default(), bound("0.0.0.0"), JOIN)[2], "127.0.0.1:8002");
        assert_eq!(reachable(&AdvertisedAddresses::default(), bound("0.0.0.0"), "no URL")[0], "127.0.0.1:8000");
    }

    #[test]
    fn loopback_is_out_of_reach_of_other_machines_only() {
        assert!(!is_out_of_reach("127.0.0.1:8000", JOIN));
        assert!(!is_out_of_reach("10.0.0.5:8000", JOIN));
    }

    #[test]
    fn addresses_that_lead_nowhere_are_refused() {
        for right in ["10.0.0.5:8000", "gpu1.example.com:1", "[::1]:80"] {
            assert_eq!(host_and_port(right), Ok(right.to_owned()));
        }
        for wrong in ["", "gpu1", "gpu1:", "gpu1:0", "gpu1:70000", "0.0.0.0:8000", "[::]:8000", ":8000", "a b:1"] {
            assert!(host_and_port(wrong).expect_err(wrong).to_string().contains("expected HOST:PORT"), "{wrong}");
        }
        for right in ["10.0.0.5", "gpu1", "2001:db8::1"] {
            assert_eq!(host(right), Ok(right.to_owned()));
        }
        for wrong in ["", "0.0.0.0", "gpu1:8000", "::", "http://gpu1"] {
            assert!(host(wrong).expect_err(wrong).to_string().contains("expected a host"), "{wrong}");
        }
    }
}
