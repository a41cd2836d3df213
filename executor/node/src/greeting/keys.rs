//! Which keys does this agent share with the others, as its target says?

use apportion_protocol::v1::{self, target::Links};
use std::collections::BTreeMap;
use std::fmt;

/// Bytes of a key.
pub const LINK_KEY_BYTES: usize = 32;
/// Keys of one pair of agents that count at a time: the newest, and the one before it. A fleet gets a new key while some
/// agents still have the last one.
pub const LINK_KEYS_MAX: usize = 2;

/// A key that two agents share. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct LinkKey([u8; LINK_KEY_BYTES]);

impl LinkKey {
    /// The key of these bytes; none if they are not [`LINK_KEY_BYTES`].
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for LinkKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LinkKey(..)")
    }
}

/// The keys of one pair of agents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairKeys {
    newest: LinkKey,
    /// None if the fleet has had one key only.
    before: Option<LinkKey>,
}

impl PairKeys {
    /// These keys, the newest first; further ones are left out. None without a key, or if one has another length.
    #[must_use]
    pub fn read(keys: &[Vec<u8>]) -> Option<Self> {
        let keys: Vec<LinkKey> =
            keys.iter().take(LINK_KEYS_MAX).map(|bytes| LinkKey::from_bytes(bytes)).collect::<Option<_>>()?;
        let mut keys = keys.into_iter();
        Some(Self { newest: keys.next()?, before: keys.next() })
    }

    /// Both keys. A pair with one key has it twice.
    pub(super) fn both(&self) -> [&LinkKey; LINK_KEYS_MAX] {
        [&self.newest, self.before.as_ref().unwrap_or(&self.newest)]
    }
}

/// The keys of one agent, by the number of the other agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkKeyring {
    own: u64,
    pairs: BTreeMap<u64, PairKeys>,
}

impl LinkKeyring {
    /// The keys that the service has given the agent `own` with this target. Agents whose keys are malformed have none.
    #[must_use]
    pub fn of_target(target: &v1::Target, own: u64) -> Self {
        let others = target.agents.iter().filter(|peer| peer.agent != own);
        let pairs = others.filter_map(|peer| Some((peer.agent, PairKeys::read(&peer.link_keys)?))).collect();
        Self { own, pairs }
    }

    /// The number of the agent that has these keys; 0 before its first target.
    #[must_use]
    pub fn own(&self) -> u64 {
        self.own
    }

    /// The keys that it shares with another agent.
    #[must_use]
    pub fn pair(&self, other: u64) -> Option<&PairKeys> {
        self.pairs.get(&other)
    }

    /// Whether it has no key at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }
}

/// The keys of links that the last target had. A stream sends each key once, so the next targets need them.
#[derive(Clone, Default)]
pub struct ReceivedKeys(BTreeMap<u64, Vec<Vec<u8>>>);

impl ReceivedKeys {
    /// Gives the target's agents the keys that they had in the target before, where it has none. Keys of agents that are
    /// not in the target are forgotten.
    pub fn complete(&mut self, target: &mut v1::Target) {
        let mut before = std::mem::take(&mut self.0);
        for peer in &mut target.agents {
            if peer.link_keys.is_empty() {
                peer.link_keys = before.remove(&peer.agent).unwrap_or_default();
            }
            self.0.insert(peer.agent, peer.link_keys.clone());
        }
    }
}

impl fmt::Debug for ReceivedKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReceivedKeys(of {} agents)", self.0.len())
    }
}

/// The target without the keys of links and without their protection: for records, and to compare two targets.
#[must_use]
pub fn without_link_keys(target: &v1::Target) -> v1::Target {
    let mut target = target.clone();
    target.agents.iter_mut().for_each(|peer| peer.link_keys.clear());
    target.set_links(Links::Plain);
    target
}
