//! How long does a message take to each other agent?
//!
//! Example: agent 1 sends ping 7 to agent 2 over the connection of its queries. Agent 2 answers at once over its own. The
//! answer is back after 0.8 ms: a hop takes 0.4 ms. The time begins and ends in the agents' loops. So it contains the waits
//! in both loops and on both connections, as the way of a query does.

use super::site::Site;
use crate::wire::Message;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

/// Most pings of one agent in a second, however many other agents there are.
pub const PINGS_PER_SECOND_MAX: u64 = 8;
/// Time between two pings, in nanoseconds.
const PING_EVERY_NS: u64 = 1_000_000_000 / PINGS_PER_SECOND_MAX;
/// Longest time that an answer may take, in nanoseconds. A later one counts as lost.
pub const ANSWER_NS_MAX: u64 = 2_000_000_000;
/// Most times that are kept of one agent, its newest.
pub const HOP_SAMPLES_MAX: usize = 64;

/// The time of a hop to another agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeasuredHop {
    /// The other agent.
    pub agent: u64,
    /// Median of half the times there and back, in nanoseconds.
    pub median_ns: u64,
    /// How many times that are, at most [`HOP_SAMPLES_MAX`].
    pub samples: usize,
}

/// A ping without an answer.
#[derive(Debug)]
struct SentPing {
    number: u64,
    at_ns: u64,
}

/// The pings of one other agent.
#[derive(Debug, Default)]
struct PeerHops {
    waiting: Option<SentPing>,
    /// Half the times there and back, the oldest first.
    hops_ns: VecDeque<u64>,
}

/// The pings of all other agents.
#[derive(Debug, Default)]
pub(super) struct HopMeter {
    by_agent: BTreeMap<u64, PeerHops>,
    /// The number of the last ping.
    last_number: u64,
    /// The agent that got it.
    last_agent: u64,
    /// When it was sent.
    last_ns: u64,
}

impl HopMeter {
    /// Pings the next one of these agents, if a ping is due. The agents take turns. Those that are not among them are
    /// forgotten.
    pub fn ping_if_due(&mut self, site: &mut Site, agents: &BTreeSet<u64>) {
        let now_ns = site.now_ns();
        if now_ns < self.last_ns + PING_EVERY_NS {
            return;
        }
        self.by_agent.retain(|agent, _| agents.contains(agent));
        let waits = |agent: &u64| {
            let ping = self.by_agent.get(agent).and_then(|peer| peer.waiting.as_ref());
            ping.is_some_and(|ping| now_ns <= ping.at_ns + ANSWER_NS_MAX)
        };
        let after = agents.range((Bound::Excluded(self.last_agent), Bound::Unbounded));
        let mut in_turn = after.chain(agents.range(..=self.last_agent)).copied();
        let Some(agent) = in_turn.find(|agent| !waits(agent)) else { return };
        self.last_number += 1;
        (self.last_agent, self.last_ns) = (agent, now_ns);
        let number = self.last_number;
        self.by_agent.entry(agent).or_default().waiting = Some(SentPing { number, at_ns: now_ns });
        let from = site.agent();
        site.send(agent, Message::Ping { from, number });
    }

    /// An agent has answered a ping.
    pub fn receive_answer(&mut self, agent: u64, number: u64, now_ns: u64) {
        let Some(peer) = self.by_agent.get_mut(&agent) else { return };
        let Some(ping) = peer.waiting.take_if(|ping| ping.number == number) else { return };
        let took_ns = now_ns.saturating_sub(ping.at_ns);
        if took_ns > ANSWER_NS_MAX {
            return;
        }
        if peer.hops_ns.len() == HOP_SAMPLES_MAX {
            peer.hops_ns.pop_front();
        }
        peer.hops_ns.push_back(took_ns / 2);
    }

    /// The times of hops, by agent; without the agents that have not answered yet.
    pub fn hops(&self) -> impl Iterator<Item = MeasuredHop> {
        self.by_agent.iter().filter_map(|(agent, peer)| {
            let mut sorted: Vec<u64> = peer.hops_ns.iter().copied().collect();
            sorted.sort_unstable();
            let median_ns = *sorted.get(sorted.len() / 2)?;
            Some(MeasuredHop { agent: *agent, median_ns, samples: sorted.len() })
        })
    }
}
