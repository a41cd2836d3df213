//! Which other agents are reachable, and what did they last announce?
//!
//! An open connection does not prove that the program behind it runs: a stopped agent keeps its connections and takes
//! everything that it is sent. So each agent announces its replicas regularly. An agent that has missed three
//! announcements in a row counts as lost until it speaks again. That is soon enough for the queries that it holds: no
//! request expires in under two seconds.

use crate::wire::{Announced, PendingReplica, ReplicaLoad};
use std::collections::{BTreeMap, BTreeSet};

/// Longest silence of a connected agent, in nanoseconds: it has missed three announcements, and the last one is not
/// merely late.
pub const SILENCE_NS_MAX: u64 = 1_400_000_000;
/// Shortest time between two ticks that counts as a pause of this agent itself, in nanoseconds. Messages of other agents
/// may then wait to be read.
const PAUSE_NS_MIN: u64 = 300_000_000;

/// The content of an announcement.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Announcement {
    /// Replicas that take queries.
    pub ready: Vec<Announced>,
    /// Replicas that are loading, or wait for room on their device.
    pub coming: Vec<PendingReplica>,
    /// Replicas that would leave to make room for new ones.
    pub yielding: Vec<u64>,
    /// Loads, by replica.
    pub loads: BTreeMap<u64, ReplicaLoad>,
    /// Replicas that could not be loaded, or died.
    pub failed: BTreeSet<u64>,
}

/// Another agent.
#[derive(Debug, Default)]
pub struct Peer {
    connected: bool,
    /// It was connected, and then said nothing for [`SILENCE_NS_MAX`].
    is_silent: bool,
    /// When its last message came.
    heard_ns: u64,
    /// Empty while it is lost: a new process may answer at its address, without these replicas.
    pub announcement: Announcement,
}

/// All other agents that this one has heard of, by number.
#[derive(Debug, Default)]
pub struct PeerTable {
    by_number: BTreeMap<u64, Peer>,
    ticked_ns: u64,
}

impl PeerTable {
    /// The connection to an agent is up.
    pub fn connect(&mut self, agent: u64, now_ns: u64) {
        let peer = self.by_number.entry(agent).or_default();
        (peer.connected, peer.is_silent, peer.heard_ns) = (true, false, now_ns);
    }

    /// An agent is lost. False if this agent never heard of it.
    pub fn disconnect(&mut self, agent: u64) -> bool {
        let Some(peer) = self.by_number.get_mut(&agent) else { return false };
        (peer.connected, peer.is_silent) = (false, false);
        peer.announcement = Announcement::default();
        true
    }

    /// An agent that is lost keeps its connection, and is heard again when it speaks.
    pub fn mark_silent(&mut self, agent: u64) {
        if let Some(peer) = self.by_number.get_mut(&agent) {
            peer.is_silent = true;
        }
    }

    /// A message of an agent has come. True if that agent was silent until now.
    pub fn note_heard_from(&mut self, agent: u64, now_ns: u64) -> bool {
        let Some(peer) = self.by_number.get_mut(&agent) else { return false };
        peer.heard_ns = now_ns;
        if !peer.is_silent {
            return false;
        }
        (peer.connected, peer.is_silent) = (true, false);
        tracing::info!(agent, "an agent that was silent speaks again");
        true
    }

    /// Replaces what an agent announced last. True if its ready or coming replicas differ.
    pub fn replace_announcement(&mut self, agent: u64, new: Announcement) -> bool {
        let peer = self.by_number.entry(agent).or_default();
        let last = &peer.announcement;
        let differs = (&last.ready, &last.coming) != (&new.ready, &new.coming);
        peer.announcement = new;
        differs
    }

    /// A tick. After a pause of this agent, messages of the others may still wait to be read: the pause is no silence of
    /// theirs.
    pub fn tick(&mut self, now_ns: u64) {
        let pause_ns = now_ns.saturating_sub(self.ticked_ns);
        self.ticked_ns = now_ns;
        if pause_ns >= PAUSE_NS_MIN {
            self.by_number.values_mut().for_each(|peer| peer.heard_ns += pause_ns);
        }
    }

    /// The connected agents that have been silent for too long.
    pub fn newly_silent(&self, now_ns: u64) -> Vec<u64> {
        let is_silent = |peer: &Peer| peer.connected && now_ns >= peer.heard_ns + SILENCE_NS_MAX;
        self.by_number.iter().filter(|(_, peer)| is_silent(peer)).map(|(agent, _)| *agent).collect()
    }

    /// Forgets the agents that are neither connected nor silent and have left the target.
    pub fn forget_lost(&mut self, has_left: impl Fn(u64) -> bool) {
        self.by_number.retain(|agent, peer| peer.connected || peer.is_silent || !has_left(*agent));
    }

    /// Whether an agent is connected.
    pub fn is_connected(&self, agent: u64) -> bool {
        self.by_number.get(&agent).is_some_and(|peer| peer.connected)
    }

    /// The connected agents, in the order of their numbers.
    pub fn connected(&self) -> impl Iterator<Item = (u64, &Announcement)> {
        self.by_number.iter().filter(|(_, peer)| peer.connected).map(|(agent, peer)| (*agent, &peer.announcement))
    }

    /// What a connected agent announced last.
    pub fn announcement(&self, agent: u64) -> Option<&Announcement> {
        self.by_number.get(&agent).filter(|peer| peer.connected).map(|peer| &peer.announcement)
    }

    /// Whether an agent, connected or not, has said that this replica failed.
    pub fn has_failed(&self, agent: u64, replica: u64) -> bool {
        self.by_number.get(&agent).is_some_and(|peer| peer.announcement.failed.contains(&replica))
    }

    /// The agents that get announcements. Silent ones too: two agents that take each other for lost must hear each other
    /// again.
    pub fn listeners(&self) -> impl Iterator<Item = u64> {
        self.by_number.iter().filter(|(_, peer)| peer.connected || peer.is_silent).map(|(agent, _)| *agent)
    }
}
