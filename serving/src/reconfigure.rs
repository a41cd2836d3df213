//! A station goes on by other settings: other batches, another policy.

use crate::batcher::Batcher;
use crate::dropper::{DropReason, Dropper, View};
use crate::queue::Waiting;
use crate::replica::{ServerState, Station};
use apportion_domain::Span;

impl<Q: Copy + PartialEq> Station<Q> {
    /// From now on batches are formed by this batcher and expected to take these times. Batches that run are left alone; what a next
    /// batch has too many, all of it where none is filled ahead any more, goes back to the queue, where the decisions about it
    /// fall again.
    pub fn reconfigure(&mut self, batcher: Batcher, service: Vec<Span>) {
        self.batcher = batcher;
        self.service = service;
        if batcher.is_forming() && !self.is_forming {
            self.foresee_ends();
        }
        self.is_forming = batcher.is_forming();
        let most = if self.is_forming { batcher.batch_max() as usize } else { 0 };
        for at in 0..self.servers.len() {
            let server = &mut self.servers[at];
            if server.forming.len() > most {
                let over = server.forming.split_off(most);
                server.entered.truncate(most);
                self.take_back(&over);
            }
        }
        self.is_open = self.is_forming && (self.is_open || !self.queue.is_empty());
        self.has_room |= self.is_forming;
        self.settle_ways();
    }

    /// When the batches that run are expected to end, which is not reckoned where nothing is filled ahead: `ends` is their start.
    fn foresee_ends(&mut self) {
        for at in 0..self.servers.len() {
            let size = self.servers[at].members.len();
            if size > 0 && matches!(self.servers[at].state, ServerState::Busy | ServerState::Draining) {
                self.servers[at].ends = self.servers[at].ends + self.service(size);
            }
        }
    }

    /// From now on this policy drops, the queue is kept by remaining time or in order of arrival, and the station measures or not. What
    /// waits is put in that order; members of next batches stay in them, and nothing is known of module states.
    pub fn judge_by(&mut self, dropper: Dropper, is_sorted: bool, is_monitored: bool) {
        self.dropper = dropper;
        self.view = View::default();
        self.admission = 0;
        if is_monitored != self.monitor.is_some() {
            self.monitor = is_monitored.then(Box::default);
        }
        if is_sorted != self.is_sorted {
            self.is_sorted = is_sorted;
            let mut waiting = Vec::with_capacity(self.queue.len());
            self.queue.take(usize::MAX, &mut waiting);
            waiting.sort_by_key(|w| w.arrived);
            self.take_back(&waiting);
        }
        self.settle_ways();
    }

    /// Queries leave a batch that has not started and wait again, before those that came after them.
    pub(crate) fn take_back(&mut self, waiting: &[Waiting<Q>]) {
        if !self.is_sorted {
            self.queue.put_back(waiting);
            return;
        }
        for &waiting in waiting {
            if !self.queue.insert(waiting) {
                self.drop(waiting.query, DropReason::QueueFull);
            }
        }
    }
}
