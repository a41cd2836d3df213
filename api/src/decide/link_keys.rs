//! Which keys does an agent get for its connections to the others?
//!
//! Example: agents 3 and 7 are in the target. The key of this pair is the HMAC-SHA256 of 3 and 7 under the fleet's key. The
//! service gives it to these two agents alone. So an agent that somebody has taken over can speak for no other agent, and
//! one that leaves the target takes no key of others with it.

use apportion_protocol::v1;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt;

/// Begins the text of which the HMAC is taken, so that no other use of the key has the same.
const PURPOSE: &[u8] = b"apportion link key";

/// A key of the fleet. It is never printed.
#[derive(Clone)]
pub struct FleetKey {
    number: i64,
    /// The HMAC under this key, before the first byte: the pairs of a large fleet are many.
    mac: Hmac<Sha256>,
}

impl FleetKey {
    /// The key of these bytes. A newer key has a higher number.
    #[must_use]
    pub fn new(number: i64, key: &[u8]) -> Self {
        Self { number, mac: Hmac::<Sha256>::new_from_slice(key).expect("a key of HMAC has any length") }
    }

    /// The key of a pair of agents, in either order.
    fn pair_key(&self, one: u64, other: u64) -> Vec<u8> {
        let mut mac = self.mac.clone();
        mac.update(PURPOSE);
        mac.update(&one.min(other).to_be_bytes());
        mac.update(&one.max(other).to_be_bytes());
        mac.finalize().into_bytes().to_vec()
    }
}

impl fmt::Debug for FleetKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FleetKey({})", self.number)
    }
}

/// The keys of the fleet that count, the newest first.
#[derive(Clone, Debug, Default)]
pub struct FleetKeys(pub Vec<FleetKey>);

impl FleetKeys {
    /// The number of the newest; 0 if there is none.
    #[must_use]
    pub fn newest(&self) -> i64 {
        self.0.first().map_or(0, |key| key.number)
    }
}

/// A target as one agent gets it: with the keys of its connections. An agent that is not in the target gets none.
#[must_use]
pub fn with_link_keys(target: &v1::Target, agent: u64, keys: &FleetKeys) -> v1::Target {
    let mut target = target.clone();
    if target.agents.iter().any(|peer| peer.agent == agent) {
        for peer in target.agents.iter_mut().filter(|peer| peer.agent != agent) {
            peer.link_keys = keys.0.iter().map(|key| key.pair_key(agent, peer.agent)).collect();
        }
    }
    target
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn target() -> v1::Target {
        let peer = |agent| v1::Peer { agent, ..Default::default() };
        v1::Target { agents: [3, 7, 9].map(peer).to_vec(), ..Default::default() }
    }

    fn keys_of(target: &v1::Target, agent: u64) -> &[Vec<u8>] {
        &target.agents.iter().find(|peer| peer.agent == agent).expect("it is in the target").link_keys
    }

    #[test]
    fn both_agents_of_a_pair_get_its_key_and_no_third() {
        let fleet = FleetKeys(vec![FleetKey::new(2, &[2; 32]), FleetKey::new(1, &[1; 32])]);
        let of = |agent| with_link_keys(&target(), agent, &fleet);
        let (three, seven, nine) = (of(3), of(7), of(9));
        assert_eq!(keys_of(&three, 7), keys_of(&seven, 3));
        assert_eq!((keys_of(&three, 7).len(), keys_of(&three, 3).len()), (2, 0));
        let all = [(&three, 7), (&three, 9), (&seven, 9)].map(|(target, agent)| keys_of(target, agent));
        let different: BTreeSet<&Vec<u8>> = all.into_iter().flatten().collect();
        assert_eq!(different.len(), 6, "each pair and each key of the fleet");
        assert!(nine.agents.iter().flat_map(|peer| &peer.link_keys).all(|key| !keys_of(&three, 7).contains(key)));
    }

    #[test]
    fn an_agent_outside_the_target_gets_no_key() {
        let fleet = FleetKeys(vec![FleetKey::new(1, &[1; 32])]);
        assert_eq!(with_link_keys(&target(), 8, &fleet), target());
        assert_eq!((fleet.newest(), FleetKeys::default().newest()), (1, 0));
        assert_eq!(format!("{fleet:?}"), "FleetKeys([FleetKey(1)])");
    }
}
