//! Which replicas does this agent have?

use super::replica::{LocalReplica, ReplicaPhase};
use crate::policies::QueryHandle;
use crate::steering::EXTRA_BIT;
use apportion_domain::{Moment, TimeSpan};
use apportion_serving::replica::StationInput;
use apportion_serving::selector::WorkerLoad;
use std::collections::BTreeMap;

/// The replicas of this agent, in the order of their numbers.
#[derive(Default)]
pub struct LocalReplicas {
    by_id: BTreeMap<u64, LocalReplica>,
    /// The last key given to a station's handle.
    last_key: u64,
    /// When the loads were last measured.
    rolled_ns: u64,
}

impl LocalReplicas {
    /// The replica with this number.
    pub fn get(&self, id: u64) -> Option<&LocalReplica> {
        self.by_id.get(&id)
    }

    /// The replica with this number.
    pub fn get_mut(&mut self, id: u64) -> Option<&mut LocalReplica> {
        self.by_id.get_mut(&id)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &LocalReplica> {
        self.by_id.values()
    }

    /// All of them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut LocalReplica> {
        self.by_id.values_mut()
    }

    /// The numbers of the replicas of which this is so.
    pub fn ids(&self, is_wanted: impl Fn(&LocalReplica) -> bool) -> Vec<u64> {
        self.by_id.values().filter(|r| is_wanted(r)).map(|r| r.id).collect()
    }

    /// Adds a replica under its number.
    pub fn insert(&mut self, replica: LocalReplica) {
        self.by_id.insert(replica.id, replica);
    }

    /// Takes out a replica.
    pub fn remove(&mut self, id: u64) -> Option<LocalReplica> {
        self.by_id.remove(&id)
    }

    /// A key for a station's handle that no other handle has.
    pub fn next_key(&mut self) -> u64 {
        self.last_key += 1;
        self.last_key
    }

    /// The replicas that take queries.
    pub fn ready(&self) -> impl Iterator<Item = &LocalReplica> {
        self.by_id.values().filter(|r| r.takes_queries())
    }

    /// Replicas of the target that wait for room on their device.
    pub fn blocked(&self) -> impl Iterator<Item = &LocalReplica> {
        self.by_id.values().filter(|r| r.state == ReplicaPhase::Blocked && !r.retired)
    }

    /// Replicas that would go now to make room: ready, of an earlier target, on the device of a blocked one.
    pub fn yielding(&self) -> Vec<u64> {
        let blocked: Vec<u32> = self.blocked().map(|r| r.device).collect();
        self.ids(|r| r.retired && r.state == ReplicaPhase::Ready && blocked.contains(&r.device))
    }

    /// Whether each of the target's replicas here has come up or failed. Extra replicas do not count.
    pub fn is_target_applied(&self) -> bool {
        self.by_id.values().all(|r| r.id & EXTRA_BIT > 0 || r.coming_announcement().is_none())
    }

    /// Queries that wait or run here.
    pub fn queries(&self) -> usize {
        self.by_id.values().map(LocalReplica::len).sum()
    }

    /// Offline queries that wait for a gap.
    pub fn waiting_offline(&self) -> usize {
        self.by_id.values().map(|r| r.offline.len()).sum()
    }

    /// When the next station is due, in nanoseconds of the agent's clock.
    pub fn wake_ns(&self) -> Option<u64> {
        self.by_id.values().filter_map(|r| r.wake_ns).min()
    }

    /// Ends the period of measurement of each load. Whether any replica has begun to be disturbed, or has ceased.
    pub fn roll_loads(&mut self, now_ns: u64) -> bool {
        let period_ns = now_ns.saturating_sub(self.rolled_ns);
        if period_ns == 0 {
            return false;
        }
        self.rolled_ns = now_ns;
        let changes = self.by_id.values_mut().map(|r| r.end_period(period_ns)).filter(|changed| *changed).count();
        changes > 0
    }

    /// The replicas that may run an offline query, if the devices of this agent are little used and nothing on them is
    /// slower than profiled.
    pub fn offline_candidates(&self, devices: u32) -> Vec<u64> {
        if self.by_id.values().all(|r| r.offline.is_empty()) || !self.is_little_used(devices) {
            return Vec::new();
        }
        self.ids(|r| !r.offline.is_empty() && r.is_up())
    }

    fn is_little_used(&self, devices: u32) -> bool {
        let ready = self.by_id.values().filter(|r| r.state == ReplicaPhase::Ready);
        let busy: f64 = ready.map(|r| f64::from(r.load().busy_ppm) / 1e6 * r.group.share).sum();
        let is_calm = self.by_id.values().all(|r| !r.was_slow());
        WorkerLoad { utilisation: busy / f64::from(devices.max(1)), is_calm }.allows_offline()
    }

    /// Gives an offline query to the station of a replica if nothing waits or runs on its device. Whether it did.
    pub fn fill_gap(&mut self, id: u64, now: Moment) -> bool {
        let device = self.by_id[&id].device;
        let is_busy = |r: &LocalReplica| r.device == device && (r.online_len() > 0 || r.is_stale);
        if self.by_id.values().any(is_busy) {
            return false;
        }
        let Some(replica) = self.by_id.get_mut(&id) else { return false };
        let Some(key) = replica.offline.pop_front() else { return false };
        let query: QueryHandle = replica.works[&key].handle(key);
        // To the policies it is a request that has just come, no matter when it did.
        let deadline = now + TimeSpan::from_nanos(replica.of.slo_ns);
        replica.station.handle(now, StationInput::Arrive { query, deadline });
        true
    }
}
