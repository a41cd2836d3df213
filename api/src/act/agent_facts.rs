//! What does the row of an agent say to decisions about the fleet?

use crate::decide::fleet::Agent;
use crate::store::agents::AgentRow;
use apportion_protocol::v1;
use apportion_wire::ReplicaState;

/// The facts in an agent's row.
#[must_use]
pub fn agent_facts(row: &AgentRow) -> Agent {
    let replicas = row.ack.as_ref().and_then(|ack| ack["replicas"].as_array()).into_iter().flatten();
    let failed = replicas.filter(|r| r["state"] == ReplicaState::Failed.name()).filter_map(|r| r["replica"].as_u64());
    Agent {
        state: row.state,
        peer: v1::Peer {
            agent: row.number as u64,
            name: row.name.clone(),
            data_address: row.data_address.clone(),
            ingress_http: row.ingress_http.clone(),
            hardware: row.hardware.clone(),
            devices: row.devices as u32,
            measured: row.measured.iter().map(|device| *device as u32).collect(),
            // Each agent gets its own with the target.
            link_keys: Vec::new(),
        },
        process_id: row.process_id.clone(),
        seen_at: row.seen_at,
        failed: failed.collect(),
        is_cordoned: row.cordoned,
        zone: row.zone.clone(),
    }
}
