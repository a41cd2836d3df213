//! How long did threads of a fleet wait for a processor in a load?

use crate::live::fleet::LocalFleet;
use crate::live::waits::{thread_waits, total_gain};
use serde::Serialize;
use std::collections::BTreeMap;

/// Agents give the threads of their devices names with this beginning.
const DEVICE_THREADS: &str = "replica-";

/// The waits of all threads up to now, in nanoseconds by thread.
pub struct WaitReading {
    devices: BTreeMap<u32, u64>,
    agents: BTreeMap<u32, u64>,
    clients: BTreeMap<u32, u64>,
    service: BTreeMap<u32, u64>,
}

/// The time that threads waited for a processor in a load, in ms for each request. Threads wait side by side, so a request
/// need not have waited so long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ProcessorWaits {
    /// Threads of devices, which run batches.
    pub devices_ms: f64,
    /// The other threads of agents.
    pub agents_ms: f64,
    /// The clients.
    pub clients_ms: f64,
    /// The service, without its database.
    pub service_ms: f64,
}

impl WaitReading {
    /// Reads all threads of the fleet and of its clients, which are in this process.
    pub fn now(fleet: &LocalFleet) -> Self {
        let of_agents = |is_counted: fn(&str) -> bool| {
            let waits = fleet.agents.iter().flat_map(|agent| thread_waits(agent.id(), is_counted));
            waits.collect::<BTreeMap<u32, u64>>()
        };
        Self {
            devices: of_agents(|name| name.starts_with(DEVICE_THREADS)),
            agents: of_agents(|name| !name.starts_with(DEVICE_THREADS)),
            clients: thread_waits(std::process::id(), |_| true),
            service: thread_waits(fleet.service_id(), |_| true),
        }
    }

    /// The waits since an earlier reading, for each of this many requests.
    pub fn since(&self, before: &Self, requests: usize) -> ProcessorWaits {
        let part = |of: fn(&Self) -> &BTreeMap<u32, u64>| {
            total_gain(of(self), of(before)) as f64 / 1e6 / (requests as f64).max(1.0)
        };
        ProcessorWaits {
            devices_ms: part(|reading| &reading.devices),
            agents_ms: part(|reading| &reading.agents),
            clients_ms: part(|reading| &reading.clients),
            service_ms: part(|reading| &reading.service),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_gains_for_each_request() {
        let reading = |devices: u64, agents: u64| WaitReading {
            devices: [(1, devices), (2, 7)].into(),
            agents: [(3, agents)].into(),
            clients: BTreeMap::new(),
            service: BTreeMap::new(),
        };
        let waits = reading(9_000_000, 4_000_000).since(&reading(1_000_000, 4_000_000), 4);
        assert_eq!(waits, ProcessorWaits { devices_ms: 2.0, ..ProcessorWaits::default() });
        assert_eq!(reading(5, 5).since(&reading(1, 1), 0).clients_ms, 0.0, "no request");
    }
}
