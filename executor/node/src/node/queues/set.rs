//! Which central queues does this agent hold, and which of them have something to do?

use super::group_queue::GroupQueue;
use crate::layout::LayoutPipeline;
use crate::node::replicas::LocalReplica;
use std::collections::{BTreeMap, BTreeSet};

/// A server of a queue. Numbers of queues are unique in the life of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueueServer {
    /// The queue's number.
    pub queue: u64,
    /// The server's number in its station.
    pub server: u32,
}

/// The central queues of this agent, by number.
#[derive(Default)]
pub struct GroupQueues {
    by_number: BTreeMap<u64, GroupQueue>,
    last_number: u64,
    /// Queues whose station may start a batch.
    touched: BTreeSet<u64>,
    /// Servers whose last query has left.
    finished: BTreeSet<QueueServer>,
    /// Whether replicas or the target have changed since the queues got their servers.
    is_stale: bool,
}

impl GroupQueues {
    /// The queue with this number.
    pub fn get_mut(&mut self, number: u64) -> Option<&mut GroupQueue> {
        self.by_number.get_mut(&number)
    }

    /// The queue with this number.
    pub fn get(&self, number: u64) -> Option<&GroupQueue> {
        self.by_number.get(&number)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &GroupQueue> {
        self.by_number.values()
    }

    /// All of them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut GroupQueue> {
        self.by_number.values_mut()
    }

    /// Their numbers.
    pub fn numbers(&self) -> Vec<u64> {
        self.by_number.keys().copied().collect()
    }

    /// The number of the queue of a replica's group. There is a new one if there was none.
    pub fn number_of(&mut self, replica: &LocalReplica) -> u64 {
        if let Some((number, _)) = self.by_number.iter().find(|(_, queue)| queue.is_of(replica)) {
            return *number;
        }
        self.last_number += 1;
        self.by_number.insert(self.last_number, GroupQueue::of_replica(replica));
        self.is_stale = true;
        self.last_number
    }

    /// Whether another queue is that of the group with this number, in the new form of its pipeline if there is one. A
    /// queue that has not followed that form yet may have the number of another variant.
    pub fn has_other(&self, number: u64, pipeline: &str, group: u64, of: Option<&LayoutPipeline>) -> bool {
        let is_of = |queue: &GroupQueue| {
            let has_number = queue.pipeline == pipeline && queue.group_id() == group;
            has_number && of.is_none_or(|of| queue.may_be_group(of, group))
        };
        self.by_number.iter().any(|(other, queue)| *other != number && is_of(queue))
    }

    /// The replicas of this agent have other numbers now.
    pub fn renumber(&mut self, agent: u64, renamed: impl Fn(&u64) -> u64) {
        self.by_number.values_mut().for_each(|queue| queue.renumber(agent, &renamed));
    }

    /// Replicas or the target have changed: all queues get their servers anew.
    pub fn mark_stale(&mut self) {
        self.is_stale = !self.by_number.is_empty();
    }

    /// Whether that is so; it is not so any more.
    pub fn take_stale(&mut self) -> bool {
        std::mem::take(&mut self.is_stale)
    }

    /// The station of a queue may start a batch.
    pub fn touch(&mut self, number: u64) {
        self.touched.insert(number);
    }

    /// The stations that are due may start a batch.
    pub fn touch_due(&mut self, now_ns: u64) {
        let is_due = |queue: &GroupQueue| queue.wake_ns.is_some_and(|at| at <= now_ns);
        self.touched.extend(self.by_number.iter().filter(|(_, queue)| is_due(queue)).map(|(number, _)| *number));
    }

    /// Takes out the next queue whose station may start a batch.
    pub fn next_touched(&mut self) -> Option<u64> {
        self.touched.pop_first()
    }

    /// A query has left the replica of a server.
    pub fn note_left(&mut self, at: QueueServer) {
        if self.by_number.get_mut(&at.queue).is_some_and(|queue| queue.note_left(at.server)) {
            self.finished.insert(at);
        }
    }

    /// Takes out a server whose last query has left.
    pub fn next_finished(&mut self) -> Option<QueueServer> {
        self.finished.pop_first()
    }

    /// Whether any queue has something to do now.
    pub fn is_due(&self) -> bool {
        self.is_stale || !self.touched.is_empty() || !self.finished.is_empty()
    }

    /// Forgets the queues that no replica serves, and of which nothing waits or runs.
    pub fn forget_over(&mut self) {
        self.by_number.retain(|_, queue| !queue.is_over() || queue.is_served());
    }

    /// When the next station is due, in nanoseconds of the agent's clock.
    pub fn wake_ns(&self) -> Option<u64> {
        self.by_number.values().filter_map(|queue| queue.wake_ns).min()
    }

    /// Queries that wait in all of them.
    pub fn waiting(&self) -> usize {
        self.by_number.values().map(GroupQueue::waiting).sum()
    }
}
