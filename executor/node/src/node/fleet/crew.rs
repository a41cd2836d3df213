//! Which replicas does the central queue of a group serve, and does this agent hold it?

use super::state::FleetState;
use crate::node::queues::CrewMember;
use crate::node::replicas::{LocalReplica, LocalReplicas};
use crate::node::site::Site;
use crate::wire::Announced;
use std::collections::BTreeMap;

impl FleetState {
    /// The replicas of a group that get their batches from a queue of this agent. The lowest agent with a ready replica of
    /// the group holds its queue, for all of them. While the whole group has none, an agent serves what waits there with
    /// its own replicas that drain.
    pub fn crew(&self, site: &Site, replicas: &LocalReplicas, pipeline: &str, group: u64) -> Vec<CrewMember> {
        let own = site.agent();
        // A new target may number the groups anew, which an agent's last announcement does not know yet.
        let places = self.pipeline(pipeline).into_iter().flat_map(|of| &of.replicas);
        let numbers: BTreeMap<u64, u64> = places.map(|replica| (replica.id, replica.group)).collect();
        let number = |id: u64, said: u64| numbers.get(&id).copied().unwrap_or(said);
        let here = |replica: &LocalReplica| {
            let is_of_group = replica.pipeline == pipeline && number(replica.id, replica.group_id) == group;
            is_of_group.then_some(CrewMember { agent: own, replica: replica.id })
        };
        let mut ready: Vec<CrewMember> = replicas.ready().filter_map(here).collect();
        let is_usable = |agent: u64| agent != own && self.layout().agents.contains_key(&agent);
        for (agent, announced) in self.peers().connected().filter(|(agent, _)| is_usable(*agent)) {
            let is_of_group =
                |ready: &&Announced| ready.pipeline == pipeline && number(ready.replica, ready.group) == group;
            let there = announced.ready.iter().filter(is_of_group);
            ready.extend(there.map(|ready| CrewMember { agent, replica: ready.replica }));
        }
        ready.sort_unstable();
        match ready.first() {
            Some(first) if first.agent == own => ready,
            Some(_) => Vec::new(),
            None => replicas.iter().filter(|replica| replica.is_up()).filter_map(here).collect(),
        }
    }
}
