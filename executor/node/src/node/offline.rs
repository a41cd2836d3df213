//! When does an offline query run (INFaaS sections 4 and 5)?
//!
//! Offline queries wait beside the replicas' queues and run in the gaps, one at a time. So an online query waits for at
//! most one of them.
//!
//! An offline query joins its replica's station under three conditions: nothing waits or runs on the replica's device,
//! this agent is used less than 40 %, and no replica here is slower than profiled. Otherwise it waits here. A query that
//! its station gives back waits here again.

use super::replica::{Replica, State};
use super::{Node, Work};
use crate::policies::{Handle, LEVEL_OFFLINE};
use crate::wire::End;
use apportion_domain::{Moment, Span};
use apportion_serving::DropReason;
use apportion_serving::replica::Input;
use apportion_serving::selector::WorkerLoad;

/// Offline queries that wait at one agent; more are shed.
pub const OFFLINE_MAX: usize = 10_000;

impl Node {
    /// Takes an offline query, which waits for a gap.
    pub(super) fn accept_offline(&mut self, id: u64, work: Work) {
        let waiting: usize = self.replicas.values().map(|r| r.offline.len()).sum();
        if waiting >= OFFLINE_MAX {
            self.notify_sender(&work);
            let reason = format!("task {}: {}", work.query.task, DropReason::QueueFull.name());
            return self.end_query(&work.query, End::Dropped(reason));
        }
        self.key += 1;
        let Some(replica) = self.replicas.get_mut(&id) else { return };
        replica.works.insert(self.key, work);
        replica.offline.push_back(self.key);
        self.run_offline();
    }

    /// Fills gaps: gives an offline query to each replica that may run one now.
    pub(super) fn run_offline(&mut self) {
        if self.replicas.values().all(|r| r.offline.is_empty()) || !self.is_little_used() {
            return;
        }
        let now = Moment::from_nanos(self.now_ns);
        let waiting: Vec<u64> =
            self.replicas.values().filter(|r| !r.offline.is_empty() && r.is_up()).map(|r| r.id).collect();
        for id in waiting {
            let device = self.replicas[&id].device;
            let is_busy = |r: &Replica| r.device == device && (r.online_len() > 0 || r.is_stale);
            if self.replicas.values().any(is_busy) {
                continue;
            }
            let Some(replica) = self.replicas.get_mut(&id) else { continue };
            let Some(key) = replica.offline.pop_front() else { continue };
            let query = replica.works[&key].handle(key);
            // To the policies it is a request that has just come, whatever its own time is.
            let deadline = now + Span::from_nanos(replica.of.slo_ns);
            replica.station.handle(now, Input::Arrive { query, deadline });
            self.touched.insert(id);
            self.drain_station(id);
        }
    }

    /// Whether the devices of this agent are little used, and nothing on them is slower than profiled.
    fn is_little_used(&self) -> bool {
        let ready = self.replicas.values().filter(|r| r.state == State::Ready);
        let busy: f64 = ready.map(|r| f64::from(r.load.busy_ppm) / 1e6 * r.group.share).sum();
        let devices = self.layout.devices.get(&self.agent).map_or(0, |(_, count)| *count).max(1);
        let is_calm = self.replicas.values().all(|r| r.disturbed == 0);
        WorkerLoad { utilisation: busy / f64::from(devices), is_calm }.allows_offline()
    }

    /// An offline query that its station has refused waits for another gap. False if it is none.
    pub(super) fn take_back_offline(&mut self, id: u64, query: Handle) -> bool {
        let Some(replica) = self.replicas.get_mut(&id).filter(|_| query.level == LEVEL_OFFLINE) else { return false };
        replica.offline.push_front(query.key);
        true
    }

    /// Takes what was cancelled out of those that wait.
    pub(super) fn cancel_offline(&mut self, id: u64, origin: u64, request: u64) {
        let Some(replica) = self.replicas.get_mut(&id) else { return };
        let is_it = |work: &Work| (work.query.origin, work.query.request) == (origin, request);
        let works = &replica.works;
        let (gone, kept): (Vec<u64>, Vec<u64>) = replica.offline.iter().partition(|key| is_it(&works[*key]));
        replica.offline = kept.into();
        let gone: Vec<Work> = gone.iter().filter_map(|key| replica.works.remove(key)).collect();
        gone.iter().for_each(|work| self.notify_sender(work));
    }

    /// A replica lets go: offline queries that wait there go elsewhere.
    pub(super) fn pass_on_offline(&mut self, id: u64) {
        let Some(replica) = self.replicas.get_mut(&id) else { return };
        let keys: Vec<u64> = replica.offline.drain(..).collect();
        let works: Vec<Work> = keys.iter().filter_map(|key| replica.works.remove(key)).collect();
        works.into_iter().for_each(|work| self.pass_on(work, "its replica lets go"));
    }
}
