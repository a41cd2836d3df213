//! When does an offline query run (INFaaS sections 4 and 5)?
//!
//! Example: an offline query comes while a batch runs on the replica's device. It waits beside the queue, and runs when the
//! device has nothing else to do.
//!
//! Offline queries run one at a time. So an online query waits for at most one of them.
//!
//! An offline query joins its replica's station under three conditions. Nothing waits or runs on the replica's device, this
//! agent is used less than 40 %, and no replica here is slower than profiled. Otherwise it waits here. A query that its
//! station gives back waits here again.

use super::deliver::notify_sender;
use super::state::TrafficState;
use crate::node::work::LocalQuery;
use crate::wire::PartEnd;
use apportion_serving::DropReason;

/// Offline queries that wait at one agent; more are shed.
pub const OFFLINE_MAX: usize = 10_000;

impl TrafficState {
    /// Takes an offline query, which waits for a gap.
    pub(super) fn accept_offline(&mut self, id: u64, work: LocalQuery) {
        if self.replicas.waiting_offline() >= OFFLINE_MAX {
            notify_sender(&mut self.site, &mut self.fleet, &work);
            let reason = format!("task {}: {}", work.query.task, DropReason::QueueFull.name());
            return self.end_query(&work.query, PartEnd::Dropped(reason));
        }
        let key = self.replicas.next_key();
        let Some(replica) = self.replicas.get_mut(id) else { return };
        replica.works.insert(key, work);
        replica.offline.push_back(key);
        self.run_offline();
    }

    /// Fills gaps: gives an offline query to each replica that may run one now.
    pub fn run_offline(&mut self) {
        let devices = self.fleet.layout().devices.get(&self.site.agent()).map_or(0, |devices| devices.count);
        for id in self.replicas.offline_candidates(devices) {
            if self.replicas.fill_gap(id, self.site.now()) {
                self.batch_runs.touch(id);
                self.drain_station(id);
            }
        }
    }

    /// A replica lets go: offline queries that wait there go elsewhere.
    pub fn pass_on_offline(&mut self, id: u64) {
        let Some(replica) = self.replicas.get_mut(id) else { return };
        replica.take_offline().into_iter().for_each(|work| self.pass_on(work, "its replica lets go"));
    }
}
