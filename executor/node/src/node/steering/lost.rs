//! Which agents of the target are lost, and since when?
//!
//! Example: agent 2 has been out of reach for three seconds. It is taken to be gone, and its replicas are replaced.

use crate::node::fleet::FleetState;
use crate::node::site::Site;
use std::collections::BTreeMap;

/// An agent that is lost for so long is taken to be gone, and its replicas are replaced.
const GONE_NS: u64 = 3_000_000_000;

/// The lost agents.
#[derive(Debug, Default)]
pub struct LostAgents {
    since_ns: BTreeMap<u64, u64>,
}

impl LostAgents {
    /// Notices who is lost, and who is back.
    pub fn note(&mut self, site: &Site, fleet: &FleetState) {
        let agents = &fleet.layout().agents;
        for agent in agents.keys() {
            if self.is_live(site, fleet, *agent) {
                self.since_ns.remove(agent);
            } else {
                self.since_ns.entry(*agent).or_insert(site.now_ns());
            }
        }
        self.since_ns.retain(|agent, _| agents.contains_key(agent));
    }

    /// Whether an agent is there, or may still connect because the target is new.
    pub fn is_live(&self, site: &Site, fleet: &FleetState, agent: u64) -> bool {
        let may_come = || fleet.is_settling(site.now_ns()) && !self.since_ns.contains_key(&agent);
        fleet.is_reached(site, agent) || may_come()
    }

    /// Whether an agent is taken to be gone.
    pub fn is_gone(&self, site: &Site, agent: u64) -> bool {
        self.since_ns.get(&agent).is_some_and(|since| site.now_ns() >= since + GONE_NS)
    }
}
