//! Settings of a station that change while it runs: another batching discipline, another policy.

use super::batcher::Batcher;
use super::dropper::{Dropper, StationView};
use super::machine::Station;
use apportion_domain::TimeSpan;

/// How a station orders, drops and measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePolicy {
    /// Which queries are dropped.
    pub dropper: Dropper,
    /// Whether the queue is kept by remaining time, else in order of arrival.
    pub is_by_remaining_time: bool,
    /// Whether the station has a monitor.
    pub is_monitored: bool,
}

impl<Q: Copy + PartialEq> Station<Q> {
    /// Changes the batching discipline and the expected times of batches. Running batches are left alone. Members of a next
    /// batch that no longer fit go back to the queue; if batches are no longer filled ahead, all of them do.
    pub fn reconfigure(&mut self, batcher: Batcher, service: Vec<TimeSpan>) {
        self.intake.batcher = batcher;
        self.intake.service = service;
        if batcher.is_forming() && !self.is_forming {
            self.servers.add_expected_times(|size| self.intake.service(size));
        }
        self.is_forming = batcher.is_forming();
        let most = if self.is_forming { batcher.batch_max() as usize } else { 0 };
        for at in 0..self.servers.all.len() {
            let server = &mut self.servers.all[at];
            if server.forming.len() > most {
                let over = server.forming.split_off(most);
                server.entered.truncate(most);
                self.put_back(&over);
            }
        }
        self.is_open = self.is_forming && (self.is_open || !self.intake.queue.is_empty());
        self.has_room |= self.is_forming;
        self.choose_fast_paths();
    }

    /// Changes how queries are ordered and dropped. Waiting queries are put into the new order. Members of next batches
    /// stay in them, and the module states are unknown again.
    pub fn set_policy(&mut self, policy: QueuePolicy) {
        self.intake.dropper = policy.dropper;
        self.intake.view = StationView::default();
        self.admission = 0;
        if policy.is_monitored != self.monitor.is_some() {
            self.monitor = policy.is_monitored.then(Box::default);
        }
        if policy.is_by_remaining_time != self.intake.is_sorted {
            self.intake.is_sorted = policy.is_by_remaining_time;
            let mut waiting = Vec::with_capacity(self.intake.queue.len());
            self.intake.queue.take(usize::MAX, &mut waiting);
            waiting.sort_by_key(|w| w.arrived);
            self.put_back(&waiting);
        }
        self.choose_fast_paths();
    }
}
