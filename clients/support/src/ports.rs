//! Which TCP ports are free on this machine?

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::net::TcpListener;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// The ports that [`free_port`] chooses from.
const PORTS: Range<u16> = 20_000..32_000;

/// The ports that this process has been given. Their programs may not listen yet.
static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// No port of the range is free on loopback.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no port of {PORTS:?} is free on loopback")]
pub struct NoFreePort;

/// A TCP port on loopback that is free now. It lies below the range from which Linux takes the ports of outgoing
/// connections, so no connection takes it before its program listens there. A process is never given a port twice.
///
/// # Errors
/// If no port of the range is free, or this process has been given all that are.
pub fn free_port() -> Result<u16, NoFreePort> {
    let random = RandomState::new().hash_one(std::process::id());
    let mut ports = (0..PORTS.len() as u64).map(|n| PORTS.start + (random.wrapping_add(n) % PORTS.len() as u64) as u16);
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    let port =
        ports.find(|port| !given.contains(port) && TcpListener::bind(("127.0.0.1", *port)).is_ok()).ok_or(NoFreePort)?;
    given.insert(port);
    Ok(port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_free_port_lies_in_the_range() {
        assert!(PORTS.contains(&free_port().expect("a free port")));
    }

    #[test]
    fn no_port_is_given_twice() {
        let ports: Vec<u16> = (0..500).map(|_| free_port().expect("a free port")).collect();
        assert_eq!(ports.iter().collect::<BTreeSet<_>>().len(), ports.len());
    }
}
