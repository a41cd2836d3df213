//! Which keys does an agent get for its connections to the others?
//!
//! Example: agents 3 and 7 are in the target. The key of this pair is the HMAC-SHA256 of 3 and 7 under the fleet's key. The
//! service gives it to these two agents alone. So an agent that somebody has taken over can speak for no other agent, and
//! one that leaves the target takes no key of others with it. A stream sends each key once: in a fleet of 1,000 agents all
//! keys are a million.

use apportion_protocol::v1::{self, target::Links};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::collections::BTreeSet;
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

/// How the connections between agents are protected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PushedLinks {
    /// Whether they use TLS.
    pub is_encrypted: bool,
    /// It rises with each change.
    pub version: i64,
}

/// The target in force, and the keys from which those of its agents' connections are derived.
#[derive(Debug)]
pub struct PushedTarget {
    target: v1::Target,
    keys: FleetKeys,
    links: PushedLinks,
    /// The numbers of the target's agents.
    agents: BTreeSet<u64>,
}

impl PushedTarget {
    /// The target without keys, the fleet's keys, and how connections are protected.
    #[must_use]
    pub fn new(mut target: v1::Target, keys: FleetKeys, links: PushedLinks) -> Self {
        let agents = target.agents.iter().map(|peer| peer.agent).collect();
        target.set_links(if links.is_encrypted { Links::Tls } else { Links::Plain });
        Self { target, keys, links, agents }
    }

    /// Later targets, and the same target with newer keys or other links, have higher values.
    #[must_use]
    pub fn order(&self) -> impl Ord + use<> {
        let fence = self.target.fence.map(|fence| (fence.incarnation, fence.generation)).unwrap_or_default();
        (fence, self.keys.newest(), self.links.version)
    }

    /// The target as one agent gets it: with those keys of its connections that were not in `before`, the last target that
    /// it got by the same stream. An agent that is not in the target gets none.
    #[must_use]
    pub fn for_agent(&self, agent: u64, before: Option<&Self>) -> v1::Target {
        let mut target = self.target.clone();
        if self.agents.contains(&agent) {
            let is_known = |before: &Self| before.keys.newest() == self.keys.newest() && before.agents.contains(&agent);
            let known = before.filter(|before| is_known(before)).map(|before| &before.agents);
            let is_new = |peer: u64| peer != agent && known.is_none_or(|known| !known.contains(&peer));
            for peer in target.agents.iter_mut().filter(|peer| is_new(peer.agent)) {
                peer.link_keys = self.keys.0.iter().map(|key| key.pair_key(agent, peer.agent)).collect();
            }
        }
        target
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pushed(agents: &[u64], keys: &FleetKeys) -> PushedTarget {
        let peer = |&agent: &u64| v1::Peer { agent, ..Default::default() };
        let target = v1::Target { agents: agents.iter().map(peer).collect(), ..Default::default() };
        PushedTarget::new(target, keys.clone(), PushedLinks::default())
    }

    fn keys_of(target: &v1::Target, agent: u64) -> &[Vec<u8>] {
        &target.agents.iter().find(|peer| peer.agent == agent).expect("it is in the target").link_keys
    }

    /// The agents whose keys agent 3 gets.
    fn with_keys(of: &PushedTarget, before: Option<&PushedTarget>) -> Vec<u64> {
        let target = of.for_agent(3, before);
        target.agents.iter().filter(|peer| !peer.link_keys.is_empty()).map(|peer| peer.agent).collect()
    }

    #[test]
    fn both_agents_of_a_pair_get_its_key_and_no_third() {
        let fleet = FleetKeys(vec![FleetKey::new(2, &[2; 32]), FleetKey::new(1, &[1; 32])]);
        let pushed = pushed(&[3, 7, 9], &fleet);
        let of = |agent| pushed.for_agent(agent, None);
        let (three, seven, nine) = (of(3), of(7), of(9));
        assert_eq!(keys_of(&three, 7), keys_of(&seven, 3));
        assert_eq!((keys_of(&three, 7).len(), keys_of(&three, 3).len()), (2, 0));
        let all = [(&three, 7), (&three, 9), (&seven, 9)].map(|(target, agent)| keys_of(target, agent));
        let different: BTreeSet<&Vec<u8>> = all.into_iter().flatten().collect();
        assert_eq!(different.len(), 6, "each pair and each key of the fleet");
        assert!(nine.agents.iter().flat_map(|peer| &peer.link_keys).all(|key| !keys_of(&three, 7).contains(key)));
    }

    #[test]
    fn a_key_is_sent_once_by_a_stream() {
        let fleet = FleetKeys(vec![FleetKey::new(1, &[1; 32])]);
        let renewed = FleetKeys(vec![FleetKey::new(2, &[2; 32]), FleetKey::new(1, &[1; 32])]);
        let first = pushed(&[3, 7], &fleet);
        assert_eq!(with_keys(&first, None), [7]);
        assert_eq!(with_keys(&first, Some(&first)), [] as [u64; 0]);
        assert_eq!(with_keys(&pushed(&[3, 7, 9], &fleet), Some(&first)), [9]);
        assert_eq!(with_keys(&pushed(&[3, 7], &renewed), Some(&first)), [7], "the fleet has a new key");
        // An agent that leaves the target loses its keys, and gets them again when it is back.
        assert_eq!(with_keys(&first, Some(&pushed(&[3, 9], &fleet))), [7]);
        assert_eq!(with_keys(&first, Some(&pushed(&[7, 9], &fleet))), [7], "agent 3 was not in the target");
    }

    #[test]
    fn a_target_with_other_links_is_later() {
        let fleet = FleetKeys(vec![FleetKey::new(1, &[1; 32])]);
        let of = |is_encrypted, version| {
            let target = v1::Target { agents: vec![v1::Peer { agent: 3, ..Default::default() }], ..Default::default() };
            PushedTarget::new(target, fleet.clone(), PushedLinks { is_encrypted, version })
        };
        let (plain, encrypted, plain_again) = (of(false, 1), of(true, 2), of(false, 3));
        assert!(plain.order() < encrypted.order() && encrypted.order() < plain_again.order());
        let links = [plain, encrypted, plain_again].map(|pushed| pushed.for_agent(3, None).links());
        assert_eq!(links, [Links::Plain, Links::Tls, Links::Plain]);
    }

    #[test]
    fn an_agent_outside_the_target_gets_no_key() {
        let fleet = FleetKeys(vec![FleetKey::new(1, &[1; 32])]);
        let pushed = pushed(&[3, 7, 9], &fleet);
        assert_eq!(pushed.for_agent(8, None), pushed.target);
        assert_eq!((fleet.newest(), FleetKeys::default().newest()), (1, 0));
        assert_eq!(format!("{fleet:?}"), "FleetKeys([FleetKey(1)])");
    }
}
