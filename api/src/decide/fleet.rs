//! Which agents and devices does the fleet have?

use super::placement::Device;
use apportion_protocol::v1;
use apportion_wire::AgentState;
use chrono::{DateTime, Utc};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The facts about one agent.
#[derive(Clone, Debug)]
pub struct Agent {
    /// Its state.
    pub state: AgentState,
    /// Its number, name, addresses and devices, as other agents receive them.
    pub peer: v1::Peer,
    /// The identifier of its process.
    pub process_id: String,
    /// The time of its last heartbeat.
    pub seen_at: DateTime<Utc>,
    /// Its replicas that could not be loaded, or died.
    pub failed: BTreeSet<u64>,
    /// Whether no replica is placed on it, because its machine goes back.
    pub is_cordoned: bool,
    /// The zone in which it stands; empty if it is not known.
    pub zone: String,
}

/// The agents that a target is made for.
#[derive(Clone, Debug, Default)]
pub struct Fleet(Vec<Agent>);

/// The part of an agent on which the target depends.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentSignature {
    peer: v1::Peer,
    process_id: String,
    is_cordoned: bool,
    zone: String,
}

impl AgentSignature {
    fn of(agent: &Agent) -> Self {
        let (peer, process_id, zone) = (agent.peer.clone(), agent.process_id.clone(), agent.zone.clone());
        Self { peer, process_id, is_cordoned: agent.is_cordoned, zone }
    }

    /// The same agent if none of its devices measured for a profile job.
    #[must_use]
    pub fn without_claims(&self) -> Self {
        Self { peer: v1::Peer { measured: Vec::new(), ..self.peer.clone() }, ..self.clone() }
    }
}

impl Fleet {
    /// The live ones of `agents`.
    #[must_use]
    pub fn live(agents: Vec<Agent>) -> Self {
        Self(agents.into_iter().filter(|a| a.state == AgentState::Live).collect())
    }

    /// Those of `agents` with these numbers, live or not.
    #[must_use]
    pub fn members(agents: Vec<Agent>, numbers: &BTreeSet<u64>) -> Self {
        Self(agents.into_iter().filter(|a| numbers.contains(&a.peer.agent)).collect())
    }

    /// Their numbers.
    #[must_use]
    pub fn numbers(&self) -> BTreeSet<u64> {
        self.0.iter().map(|a| a.peer.agent).collect()
    }

    /// The longest time since the last heartbeat of an agent.
    #[must_use]
    pub fn longest_silence(&self, now: DateTime<Utc>) -> Duration {
        let ages = self.0.iter().map(|a| (now - a.seen_at).to_std().unwrap_or_default());
        ages.max().unwrap_or_default()
    }

    /// Two fleets with equal signatures can have the same target.
    #[must_use]
    pub fn signature(&self) -> Vec<AgentSignature> {
        self.0.iter().map(AgentSignature::of).collect()
    }

    /// The agents on which replicas are placed.
    fn open_agents(&self) -> impl Iterator<Item = &Agent> {
        self.0.iter().filter(|agent| !agent.is_cordoned)
    }

    /// Every device on which replicas are placed. One that measures for a profile job is none of them.
    #[must_use]
    pub fn devices(&self) -> Vec<Device> {
        let of_agent = |a: &Agent| {
            let of_zone = Device { zone: a.zone.clone(), ..Device::new(a.peer.agent, 0, &a.peer.hardware) };
            let is_open = |device: &u32| !a.peer.measured.contains(device);
            let open: Vec<u32> = (0..a.peer.devices).filter(is_open).collect();
            open.into_iter().map(move |device| Device { device, ..of_zone.clone() })
        };
        self.open_agents().flat_map(of_agent).collect()
    }

    /// How many devices there are of each hardware type. Those of cordoned agents, and those that measure, do not count.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<String, u32> {
        let mut counts = BTreeMap::new();
        for agent in self.open_agents() {
            let measured = agent.peer.measured.iter().filter(|device| **device < agent.peer.devices).count() as u32;
            *counts.entry(agent.peer.hardware.clone()).or_default() += agent.peer.devices - measured;
        }
        counts
    }

    /// The agents as other agents receive them.
    #[must_use]
    pub fn peers(&self) -> Vec<v1::Peer> {
        self.0.iter().map(|a| a.peer.clone()).collect()
    }

    /// Replicas that could not be loaded, or died, by the agents' last acknowledgements.
    #[must_use]
    pub fn failed(&self) -> BTreeSet<u64> {
        self.0.iter().flat_map(|a| &a.failed).copied().collect()
    }

    /// Whether there is no agent.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(number: u64) -> Agent {
        let peer = v1::Peer { agent: number, hardware: "t4".into(), devices: 2, ..Default::default() };
        let (process_id, seen_at) = (String::new(), DateTime::<Utc>::default());
        let (failed, zone) = (BTreeSet::new(), "a".to_owned());
        Agent { state: AgentState::Live, peer, process_id, seen_at, failed, is_cordoned: false, zone }
    }

    #[test]
    fn a_cordoned_agent_stays_a_member_without_devices() {
        let fleet = Fleet::live(vec![agent(1), Agent { is_cordoned: true, ..agent(2) }]);
        assert_eq!(fleet.devices().iter().map(|device| device.agent).collect::<Vec<_>>(), [1, 1]);
        assert_eq!(fleet.counts(), [("t4".to_owned(), 2)].into());
        assert_eq!((fleet.numbers().len(), fleet.peers().len()), (2, 2), "it serves until its replicas have moved");
        let mut measuring = agent(2);
        measuring.peer.measured = vec![1];
        let measured = Fleet::live(vec![agent(1), measuring]);
        let places: Vec<_> = measured.devices().iter().map(|device| (device.agent, device.device)).collect();
        assert_eq!((places, measured.counts()["t4"]), (vec![(1, 0), (1, 1), (2, 0)], 3), "a device that measures is taken");
        let reclaimed = Fleet::live(vec![agent(1), agent(2)]);
        assert_ne!(fleet.signature(), reclaimed.signature(), "the target is made again");
        assert_ne!(measured.signature(), reclaimed.signature(), "and so it is for a device that measures");
    }

    #[test]
    fn devices_stand_in_the_zone_of_their_agent() {
        let fleet = Fleet::live(vec![agent(1), Agent { zone: "b".into(), ..agent(2) }]);
        assert_eq!(fleet.devices().iter().map(|device| device.zone.as_str()).collect::<Vec<_>>(), ["a", "a", "b", "b"]);
        assert_ne!(fleet.signature(), Fleet::live(vec![agent(1), agent(2)]).signature(), "the target is made again");
    }
}
