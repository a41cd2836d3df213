//! Agents that hang. A connection that is up says nothing of the program behind it: an agent that is stopped, or whose machine is, keeps its
//! connections and takes what it is sent. So agents say regularly which replicas are ready, and one that has missed three
//! announcements in a row is lost to the others, whatever the control plane does, until it speaks again.
//!
//! That is soon enough for what was sent to it: a request is given up after two seconds at the earliest.

use super::Node;

/// How often an agent announces its replicas, if nothing else made it do so.
const SAY_NS: u64 = 400_000_000;
/// After so long without a word an agent is lost: three announcements were missed, and the last of them was not merely late.
pub const SILENCE_NS_MAX: u64 = 1_400_000_000;
/// A pause of this agent's own, from one tick to the next: what it has not heard meanwhile may wait to be read.
const PAUSE_NS_MIN: u64 = 300_000_000;

impl Node {
    /// An agent has said something. Whether it had been taken for lost.
    pub(super) fn hear_of(&mut self, agent: u64) -> bool {
        let now_ns = self.now_ns;
        let Some(peer) = self.peers.get_mut(&agent) else { return false };
        peer.heard_ns = now_ns;
        if !peer.is_silent {
            return false;
        }
        (peer.connected, peer.is_silent) = (true, false);
        tracing::info!(agent, "an agent that was silent speaks again");
        true
    }

    /// Says what is due to be said, and takes those for lost who say nothing.
    pub(super) fn mind_silence(&mut self) {
        let pause_ns = self.now_ns.saturating_sub(self.ticked_ns);
        self.ticked_ns = self.now_ns;
        if pause_ns >= PAUSE_NS_MIN {
            self.peers.values_mut().for_each(|peer| peer.heard_ns += pause_ns);
        }
        if self.now_ns >= self.said_ns + SAY_NS {
            self.announce();
        }
        let now_ns = self.now_ns;
        let is_mute = |peer: &super::Peer| peer.connected && now_ns >= peer.heard_ns + SILENCE_NS_MAX;
        let mute: Vec<u64> = self.peers.iter().filter(|(_, peer)| is_mute(peer)).map(|(agent, _)| *agent).collect();
        for agent in mute {
            tracing::warn!(agent, "an agent has missed three announcements: it is lost until it speaks");
            self.lose(agent);
            self.peers.get_mut(&agent).expect("it was mute").is_silent = true;
        }
    }
}
