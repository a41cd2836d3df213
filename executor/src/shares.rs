//! How much of a bounded resource, connections or bytes, may one address hold?
//!
//! All addresses together may hold the whole, and one address seven eighths of it. So no client can take everything, and
//! one proxy in front of all clients gets nearly everything.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

/// One part in this number is for other addresses than the one that holds the most.
const OTHERS_PARTS: usize = 8;
/// The bits of an address of IPv6 that say its network: a client that has one address of a network has all of them.
const NETWORK_V6: u128 = u128::MAX << 64;

/// Who a client is, as far as its address says: for IPv6, its network. Clients behind one proxy are one.
#[must_use]
pub fn host(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & NETWORK_V6)),
        v4 => v4,
    }
}

/// The same as a number, which is never 0.
#[must_use]
pub fn sender(address: IpAddr) -> u64 {
    let mut hasher = DefaultHasher::new();
    host(address).hash(&mut hasher);
    hasher.finish() | 1
}

#[derive(Debug, Default)]
struct Held {
    all: usize,
    by_host: HashMap<IpAddr, usize>,
}

/// What there is.
#[derive(Debug)]
pub struct ClientShares {
    max: usize,
    held: Mutex<Held>,
}

impl ClientShares {
    /// So many.
    #[must_use]
    pub fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, held: Mutex::default() })
    }

    /// None of them yet.
    #[must_use]
    pub fn open(self: &Arc<Self>, address: IpAddr) -> ClientShare {
        ClientShare { of: self.clone(), host: host(address), count: 0 }
    }

    /// `count` of them for a client; none if it, or all together, would have too many.
    #[must_use]
    pub fn take(self: &Arc<Self>, address: IpAddr, count: usize) -> Option<ClientShare> {
        let mut share = self.open(address);
        share.grow(count).then_some(share)
    }

    /// How many are held.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).all
    }
}

/// What one client holds, until it is dropped.
#[derive(Debug)]
pub struct ClientShare {
    of: Arc<ClientShares>,
    host: IpAddr,
    count: usize,
}

impl ClientShare {
    /// Takes more; false if that is too much, and nothing was taken.
    #[must_use]
    pub fn grow(&mut self, by: usize) -> bool {
        if by == 0 {
            return true;
        }
        let mut held = self.of.held.lock().unwrap_or_else(PoisonError::into_inner);
        let own = held.by_host.get(&self.host).copied().unwrap_or(0);
        if held.all + by > self.of.max || own + by > self.of.max - self.of.max / OTHERS_PARTS {
            return false;
        }
        held.all += by;
        held.by_host.insert(self.host, own + by);
        self.count += by;
        true
    }

    /// Gives all of it back.
    pub fn clear(&mut self) {
        if self.count == 0 {
            return;
        }
        let mut held = self.of.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.all -= self.count;
        if let Some(own) = held.by_host.get_mut(&self.host) {
            *own -= self.count;
            if *own == 0 {
                held.by_host.remove(&self.host);
            }
        }
        self.count = 0;
    }
}

impl Drop for ClientShare {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn one_address_gets_at_most_seven_eighths() {
        let shares = ClientShares::new(16);
        let mut first = shares.take(ip("10.0.0.1"), 10).expect("free");
        assert!(first.grow(4) && !first.grow(1));
        assert!(shares.take(ip("10.0.0.1"), 1).is_none() && shares.take(ip("::ffff:10.0.0.1"), 1).is_none());
        let second = shares.take(ip("10.0.0.2"), 2).expect("free");
        assert!(shares.take(ip("10.0.0.3"), 1).is_none(), "all are held");
        drop(second);
        assert!(shares.take(ip("10.0.0.3"), 2).is_some());
        first.clear();
        drop(first);
        assert_eq!((shares.held(), shares.held.lock().expect("no panic").by_host.len()), (0, 0));
    }

    #[test]
    fn a_network_of_ipv6_is_one_sender() {
        assert_eq!(sender(ip("2001:db8::1")), sender(ip("2001:db8::2")));
        assert_ne!(sender(ip("2001:db8::1")), sender(ip("2001:db8:0:1::1")));
        assert_ne!(sender(ip("10.0.0.1")), sender(ip("10.0.0.2")));
    }
}
