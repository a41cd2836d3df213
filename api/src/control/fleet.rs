//! The fleet as it is: live agents and their devices.

use super::reconcile::Device;
use crate::store::{Time, agents::AgentRow};
use apportion_protocol::v1;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The agents that a target is made for, by number: the live ones, unless told otherwise.
#[derive(Clone, Debug, Default)]
pub struct Fleet(Vec<AgentRow>);

/// What makes one fleet differ from another for its target.
pub type Signature = Vec<(i64, String, i32, String, String, String)>;

impl Fleet {
    /// The live ones of `agents`.
    #[must_use]
    pub fn new(agents: Vec<AgentRow>) -> Self {
        Self(agents.into_iter().filter(|a| a.state == "live").collect())
    }

    /// Those of `agents` with these numbers, live or not.
    #[must_use]
    pub fn of(agents: Vec<AgentRow>, numbers: &BTreeSet<u64>) -> Self {
        Self(agents.into_iter().filter(|a| numbers.contains(&(a.number as u64))).collect())
    }

    /// Their numbers.
    #[must_use]
    pub fn numbers(&self) -> BTreeSet<u64> {
        self.0.iter().map(|a| a.number as u64).collect()
    }

    /// The longest time since one of them was heard of.
    #[must_use]
    pub fn oldest_word(&self, now: Time) -> Duration {
        let ages = self.0.iter().map(|a| (now - a.seen_at).to_std().unwrap_or_default());
        ages.max().unwrap_or_default()
    }

    /// Compares equal as long as the target stays right.
    #[must_use]
    pub fn signature(&self) -> Signature {
        let part = |a: &AgentRow| {
            let addresses = (a.data_address.clone(), a.ingress_http.clone());
            (a.number, a.hardware.clone(), a.devices, a.process_id.clone(), addresses.0, addresses.1)
        };
        self.0.iter().map(part).collect()
    }

    /// Every device.
    #[must_use]
    pub fn devices(&self) -> Vec<Device> {
        let of = |a: &AgentRow| {
            let (agent, hardware) = (a.number as u64, a.hardware.clone());
            (0..a.devices as u32).map(move |device| Device { agent, device, hardware: hardware.clone() })
        };
        self.0.iter().flat_map(of).collect()
    }

    /// How many devices there are of each hardware type.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<String, u32> {
        let mut counts = BTreeMap::new();
        for agent in &self.0 {
            *counts.entry(agent.hardware.clone()).or_default() += agent.devices as u32;
        }
        counts
    }

    /// As agents are told about each other.
    #[must_use]
    pub fn peers(&self) -> Vec<v1::Peer> {
        let peer = |a: &AgentRow| v1::Peer {
            agent: a.number as u64,
            name: a.name.clone(),
            data_address: a.data_address.clone(),
            ingress_http: a.ingress_http.clone(),
            hardware: a.hardware.clone(),
            devices: a.devices as u32,
        };
        self.0.iter().map(peer).collect()
    }

    /// Replicas that agents say could not be loaded, or died.
    #[must_use]
    pub fn failed(&self) -> BTreeSet<u64> {
        let replicas = self.0.iter().filter_map(|a| a.ack.as_ref()?["replicas"].as_array()).flatten();
        replicas.filter(|r| r["state"] == "failed").filter_map(|r| r["replica"].as_u64()).collect()
    }

    /// Whether there is nobody.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
